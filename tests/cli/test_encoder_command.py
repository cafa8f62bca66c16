"""`fedprior encoder`, and runs that use what it wrote."""

import json

import pytest

import fedprior
from fedprior.data.encoder import Encoder


@pytest.fixture
def public(tmp_path, new_rows):
    return new_rows(tmp_path / "public.csv", "p", rows=40, seed=3)


NAMES = ("--client", "shop", "--label", "outcome")


def test_an_encoder_of_public_rows(command, public, tmp_path):
    out = tmp_path / "encoder.json"
    found = command("encoder", public, *NAMES, "--out", out)
    assert (found.code, found.out) == (0, "")
    assert "which must be public" in found.err
    encoder = Encoder.from_json(out.read_text())
    assert encoder.features == ["price", "color"]
    assert encoder.classes == ("no", "yes")
    options = ("--features", "price", "--json", "--quiet")
    again = command("encoder", public, *NAMES, "--out", out)
    assert (again.code, "exists already. Overwrite it with --force" in again.err) == (2, True)
    answer = command("encoder", public, *NAMES, *options, "--out", out, "--force")
    wanted = {"features": ["price"], "inputs": 2, "classes": ["no", "yes"]}
    assert json.loads(answer.out) == {"format": 1, "out": str(out), **wanted}
    assert answer.err == ""


def test_help_says_that_rows_must_be_public(command):
    assert "PUBLIC" in command("encoder", "--help").out


def test_whether_a_label_is_a_quantity_can_be_said(command, tmp_path):
    sample, out = tmp_path / "sample.csv", tmp_path / "encoder.json"
    sample.write_text("size,sales\n1,10\n2,20\n3,30\n")
    given = ("encoder", sample, "--client", "shop", "--label", "sales", "--out", out, "--force")
    assert json.loads(command(*given, "--json").out)["classes"] == ["10", "20", "30"]
    assert json.loads(command(*given, "--json", "--regression").out)["classes"] is None


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--out", "encoder.toml"), "--out must be a .json file"),
        (("--out", "nowhere/encoder.json"), "--out must be in a folder that exists"),
        (("--out", "encoder.json", "--features", "prise"), "Did you mean price?"),
        (("--out", "encoder.json", "--features", "color,outcome"), "neither the client nor"),
    ],
)
def test_refusals(refused, public, tmp_path, monkeypatch, words, wanted):
    monkeypatch.chdir(tmp_path)
    refused("encoder", public, *NAMES, *words, wanted=wanted)
    assert not (tmp_path / "encoder.json").exists()


def test_a_run_uses_it_and_so_do_new_rows(
    command, refused, public, fast, table, new_rows, tmp_path
):
    out, run = tmp_path / "encoder.json", tmp_path / "run"
    command("encoder", public, *NAMES, "--out", out)
    on = ("--data", table, "--encoder", out, "--algorithm", "local")
    found = command("train", *on, *fast(), "--out", run)
    assert found.code == 0, found.err
    assert "by the encoder" in found.err
    assert fedprior.load(run).encoder == Encoder.from_json(out.read_text())
    new = new_rows(tmp_path / "new.csv", "ag", rows=2, labels=False)
    predicted = tmp_path / "predicted.csv"
    assert command("personalize", run, "--data", new, "--out", predicted).code == 0
    assert len(predicted.read_text().splitlines()) == 5
    changed = json.loads(out.read_text())
    changed["classes"].append("perhaps")
    out.write_text(json.dumps(changed))
    refused("train", "--resume", run, wanted="has changed since the run started")
    assert "perhaps" not in fedprior.load(run).classes_
