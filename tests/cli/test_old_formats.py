"""What fedprior 0.1.0 wrote: refused by its format with the way out, or read as it was.

tests/formats/0.1.0 was written by that version, with --quiet and these settings:

    fedprior train --algorithm fedavg --set data.name=synthetic --set data.options.num_clients=3
        --set training.rounds=2 --set model.name=logistic --set privacy.epsilon=3
        --set privacy.delta=1e-3 --set privacy.clip=1 --out run
    fedprior sweep --algorithm fedavg --set data.name=synthetic --set data.options.num_clients=3
        --set training.rounds=1 --set model.name=logistic --over lr=0.1,0.2 --out sweep
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedprior
from fedprior.core.files import read_json, read_sealed, seal, write_json
from fedprior.sites.folder import read_card
from fedprior.sites.roster import Roster

WRITTEN = Path(__file__).parents[1] / "formats" / "0.1.0"
REFUSED = "must be 2, got 1. It was written by fedprior 0.1.0. Use that version, or "


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(WRITTEN, tmp_path / "old"))


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--resume", "run"),
        ("personalize", "run", "--data", "rows", "--out", "new.csv"),
        ("export", "run", "--out", "model.safetensors"),
    ],
)
def test_a_run_is_refused(refused, old, monkeypatch, words):
    monkeypatch.chdir(old)
    Path("rows").mkdir()
    before = contents(old)
    again = "train again with this version (fedprior train run/config.toml --out NEW)."
    refused(*words, wanted=f"run: format of run {REFUSED}{again} What a private run spent still")
    assert contents(old) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_way_out_of_a_run_works(command, old):
    """Its configuration has the keys that it had: the same training, at a budget of its own."""
    again = old / "again"
    answer = command("train", old / "run" / "config.toml", "--out", again, "--json", "--quiet")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["format"] == 2
    assert read_sealed(again / "config.toml").startswith("format = 2\n")
    assert fedprior.load(again).facts["method"] == "fedavg"


def test_a_run_that_does_not_state_its_format_is_refused(refused, old):
    file = old / "run" / "config.toml"
    file.write_text(seal(read_sealed(file).replace("format = 1\n", "")))
    refused("train", "--resume", old / "run", wanted="must be 2, got None. It was edited, or")


def test_a_sweep_is_refused(refused, old):
    words = [
        *("--algorithm", "fedavg", "--over", "lr=0.1,0.2", "--out", old / "sweep"),
        *("--set", "data.name=synthetic", "--set", "data.options.num_clients=3"),
        *("--set", "training.rounds=1", "--set", "model.name=logistic"),
    ]
    wanted = f"sweep: format of {old / 'sweep'} {REFUSED}sweep again into another folder"
    refused("sweep", *words, wanted=wanted)


def test_a_ledger_is_read_and_what_was_spent_counts(command, old):
    """Its format has not changed. Refusing it would hide what was spent."""
    answer = command("privacy", "spent", old / "run", "--json")
    assert answer.code == 0, answer.err
    (row,) = json.loads(answer.out)["ledgers"]
    stated = json.loads((old / "run" / "summary.json").read_text())["privacy"][0]
    assert row["epsilon"] == pytest.approx(stated["epsilon"], rel=1e-9)
    assert row["rounds"] == 2


def test_a_model_is_read(old):
    """Its format has not changed either."""
    model = fedprior.load(old / "run" / "model" / "fedavg" / "seed-0" / "model.safetensors")
    found = model.predict(np.zeros((2, *model.shape), np.float32))
    assert len(found) == 2


@pytest.mark.parametrize(("kind", "read"), [("card", read_card), ("roster", Roster.read)])
def test_files_of_sites_state_their_format(tmp_path, kind, read):
    file = tmp_path / f"{kind}.json"
    for number in (0, 2, None):
        write_json(file, {"format": number})
        with pytest.raises(ValueError, match=f"{kind}: format of .* must be 1, got {number}"):
            read(file)
    assert read_json(file) == {"format": None}
