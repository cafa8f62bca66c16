"""`fedprior algorithms`, `fedprior datasets`, and help."""

import json

import pytest

import fedprior


def test_algorithms(command):
    found = command("algorithms", "--json")
    answer = json.loads(found.out)
    names = [row["name"] for row in answer["algorithms"]]
    assert answer["format"] == 1
    assert {"adaped", "adaped-fine-tuning", "fedavg", "fedavg-fine-tuning", "local"} <= set(names)
    assert all(row["population"] and row["sends"] for row in answer["algorithms"])
    shown = command("algorithms")
    assert all(name in shown.out for name in names)
    assert "In Python only: fedprior.multitask" in shown.out
    assert (found.err, shown.err) == ("", "")


def test_datasets(command):
    answer = json.loads(command("datasets", "--json").out)
    names = [row["name"] for row in answer["datasets"]]
    assert {"digits", "mnist", "mnist-writers"} <= set(names)
    assert all(name in command("datasets").out for name in names)


@pytest.mark.parametrize("name", ["train", "estimate", "personalize", "algorithms", "datasets"])
def test_every_command_has_an_example(command, name):
    found = command(name, "--help")
    assert found.code == 0
    assert f"Example: fedprior {name}" in " ".join(found.out.replace("│", " ").split())
    assert found.err == ""


def test_version_and_help(command):
    assert command("--version").out.strip() == fedprior.__version__
    found = command("--help")
    assert found.code == 0
    for name in ("train", "estimate", "personalize", "reproduce", "privacy", "algorithms"):
        assert name in found.out


def test_an_unknown_command_or_option_is_bad_input(command):
    for words in (["trian"], ["train", "--rounds", "3"], ["train", "--seed", "many"]):
        found = command(*words)
        assert (found.code, found.out) == (2, "")
        assert found.err
