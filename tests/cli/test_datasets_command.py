"""`fedprior datasets` and `fedprior datasets write`."""

import json

import pytest

from fedprior.data.examples import EXAMPLES


def test_the_list(command):
    answer = json.loads(command("datasets", "--json").out)
    names = [row["name"] for row in answer["datasets"]]
    assert {"digits", "mnist", "mnist-writers"} <= set(names)
    assert [row["name"] for row in answer["tables"]] == list(EXAMPLES)
    shown = command("datasets").out
    assert all(name in shown for name in (*names, *EXAMPLES))


def test_tables_are_written(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = command("datasets", "write", "visits")
    assert (found.code, found.out) == (0, "")
    assert found.err == "Simulated rows, written to visits.csv, new.csv, public.csv\n"
    assert all((tmp_path / name).exists() for name in EXAMPLES["visits"].files)
    found = command("datasets", "write", "sales", "--out", "a/b.parquet", "--json")
    assert json.loads(found.out) == {"format": 1, "files": ["a/b.parquet"]}
    assert (tmp_path / "a/b.parquet").read_bytes()[:4] == b"PAR1"


def test_all_of_them_and_their_names(command, tmp_path):
    assert command("datasets", "write", "all", "--out", tmp_path).code == 0
    files = [name for example in EXAMPLES.values() for name in example.files]
    assert all((tmp_path / name).exists() for name in files)
    assert all(name in command("datasets", "write").out for name in EXAMPLES)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["visit"], "NAME must be one of counts, radon, visits"),
        (["visit"], "Did you mean visits?"),
        (["visits", "--out", "a.csv"], "--out must be a folder, because visits has 3 files"),
        (["radon", "--out", "file.txt"], "--out must be a file that can be written"),
        (["radon", "--seed", "-1"], "seed must be"),
    ],
)
def test_refused(refused, tmp_path, monkeypatch, words, wanted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("not a folder")
    refused("datasets", "write", *words, wanted=wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
