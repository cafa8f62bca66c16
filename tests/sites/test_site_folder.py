"""The folder of a site: what it holds, what it accepts, and what is left when it leaves."""

import json
import stat

import numpy as np
import pytest

from fedprior.core.files import read_json, write_json
from fedprior.sites import keys
from fedprior.sites.folder import (
    NotAccepted,
    accept,
    leave,
    make_site,
    open_site,
    simulated_site,
)

PRIVATE = (
    'methods=["fedavg"]',
    "privacy.epsilon=8",
    "privacy.delta=1e-2",
    "privacy.allow_delta=true",
    "privacy.noise=secure",
    "data.most_samples=12",
)


def test_samples_are_kept_as_they_are(made, tmp_path, federation):
    made()
    site = open_site(tmp_path / "site-1")
    assert site.clients == ("client-2", "client-3", "client-4")
    for number, name in enumerate(site.clients, start=2):
        for part in ("train", "valid", "test"):
            rows = getattr(federation, part).client(number)
            x, y = site.samples(name)[part]
            np.testing.assert_array_equal(x, rows.x)
            np.testing.assert_array_equal(y, rows.y)


def test_a_card_of_a_private_run_counts_nothing(made, tmp_path, federation):
    """Names, shapes and the key; not how many samples there are."""
    card = made(*PRIVATE)[2]["site-0"]
    assert card == read_json(tmp_path / "site-0" / "card.json")
    assert card["largest"] is None
    assert made()[2]["site-0"]["largest"] == federation.part((0, 1)).train.largest
    told = {"format", "clients", "key", "shape", "target_shape", "inputs", "targets"}
    assert card.keys() == told | {"classes", "encoder", "largest"}


def test_keys_and_settings_stay_when_a_site_is_made_again(made, tmp_path):
    made()
    site = tmp_path / "site-0"
    (site / "site.toml").write_text("share_scores = true\n")
    key = (site / "node.key").read_bytes()
    made()
    assert (site / "node.key").read_bytes() == key
    assert open_site(site).share_scores


@pytest.mark.parametrize(
    "text", ["", "share_scores = false", 'share_scores = "true"', "share_scores = 1"]
)
def test_scores_are_shared_by_a_plain_yes_only(made, tmp_path, text):
    made()
    (tmp_path / "site-0" / "site.toml").write_text(text)
    assert not open_site(tmp_path / "site-0").share_scores


def test_a_private_key_is_nobody_elses(made, tmp_path):
    made()
    mode = stat.S_IMODE((tmp_path / "site-0" / "node.key").stat().st_mode)
    assert mode == 0o600
    assert b"PRIVATE" not in (tmp_path / "site-0" / "node.pub").read_bytes()


def test_signatures(made, tmp_path):
    cards = made()[2]
    key = tmp_path / "site-0" / "node.key"
    signed = keys.sign(key, b"content")
    assert keys.is_signed(cards["site-0"]["key"], b"content", signed)
    assert not keys.is_signed(cards["site-0"]["key"], b"contents", signed)
    assert not keys.is_signed(cards["site-1"]["key"], b"content", signed)
    for nonsense in (b"", b"\x00" * 96, signed[:-1], signed + b"\x00"):
        assert not keys.is_signed(cards["site-0"]["key"], b"content", nonsense)
    for nobody in ("", "ssh-rsa AAAA", "not a key", "\x00"):
        assert not keys.is_signed(nobody, b"content", signed)


def test_nothing_is_accepted_by_itself(made, tmp_path):
    document = made()[0]
    site = open_site(tmp_path / "site-0")
    for given in (None, document.to_json()):  # the server cannot bring one along
        with pytest.raises(NotAccepted):
            site.agreed(document.token, given)
    accept(tmp_path / "site-0", tmp_path / "app" / "agreement.json")
    site = open_site(tmp_path / "site-0")
    assert site.agreed(document.token, None) == document
    with pytest.raises(NotAccepted):
        site.agreed("0" * 32, document.to_json())


def test_a_simulation_takes_what_it_is_given(made, tmp_path, federation):
    document = made()[0]
    site = simulated_site(tmp_path / "simulated", federation, 1, 2)
    assert site.clients == ("client-1", "client-3")
    assert site.agreed(document.token, document.to_json()) == document
    assert site.sign(b"content") == b""
    with pytest.raises(NotAccepted):
        site.agreed(document.token, None)


def test_an_agreement_must_fit_the_samples(made, tmp_path, federation):
    made()
    path = tmp_path / "app" / "agreement.json"
    whole = path.read_text()
    for change, reason in (
        ({"classes": ["x", "y", "z"]}, "differs from the data here in its classes"),
        ({"facts": {"shape": [5]}}, "differs from the data here in its shape"),
        ({"facts": {"most_samples": 2}}, "between 1 and 2 training samples"),
        ({"code": "0" * 32}, "for another version of fedprior"),
        ({"config": {"model": {"name": "lenet5"}}}, "lenet5 only for"),
        ({"more": 1}, "its entries must be"),
        ({"format": 2}, "format of .* must be 1, got 2"),
    ):
        given = json.loads(whole)
        for name, value in change.items():
            part = given.get(name)
            given[name] = value
            if isinstance(part, dict):
                given[name] = part | {k: _merged(part[k], v) for k, v in value.items()}
        path.write_text(json.dumps(given))
        with pytest.raises(ValueError, match=reason):
            accept(tmp_path / "site-0", path)
        assert not (tmp_path / "site-0" / "agreement.json").exists()


def _merged(old, new):
    return old | new if isinstance(old, dict) else new


def test_leaving_deletes_everything(made, tmp_path):
    made()
    folder = tmp_path / "site-0"
    accept(folder, tmp_path / "app" / "agreement.json")
    left = ["memory/abc/0.memory", "model/clients/thetas.rows", "scores.json", "errors.log"]
    left += ["card.json.123-456.tmp", "data/0.safetensors.1-2.tmp", "errors.log.9-9.tmp"]
    for name in left:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("of client-0")
    assert leave(folder) == ["client-0", "client-1"]
    assert {path.name for path in folder.rglob("*")} == {"node.key", "node.pub", "site.toml"}
    with pytest.raises(ValueError, match="is no site with data"):
        open_site(folder)


def test_a_log_that_cannot_be_written_says_nothing_to_anybody(made, tmp_path):
    made()
    site = open_site(tmp_path / "site-0")
    site.log(ValueError("a line\nand another, \ud800"))
    (line,) = (tmp_path / "site-0" / "errors.log").read_text().splitlines()
    assert line.endswith("ValueError: a line and another, \\ud800")
    (tmp_path / "site-0" / "errors.log").unlink()
    (tmp_path / "site-0" / "errors.log").mkdir()
    site.log(ValueError("words"))


def test_a_card_that_was_edited(made, tmp_path, federation):
    made()
    path = tmp_path / "site-0" / "card.json"
    card = read_json(path)
    path.write_text(path.read_text().replace("client-0", "client-9"))
    with pytest.raises(ValueError, match="damaged or was edited"):
        open_site(tmp_path / "site-0")
    write_json(path, card)
    assert open_site(tmp_path / "site-0").clients == ("client-0", "client-1")


def test_samples_of_clients_that_are_gone_are_deleted(made, tmp_path, federation):
    """A site that is made again for fewer clients keeps nothing of the others."""
    made()
    make_site(tmp_path / "site-1", federation.part((2,)), private=False)
    assert [path.name for path in (tmp_path / "site-1" / "data").iterdir()] == ["0.safetensors"]
