"""`fedprior algorithms`, and help."""

import json
import re

import pytest

import fedprior
from fedprior.cli import catalog
from fedprior.learning.catalog import METHODS


def test_algorithms(command):
    found = command("algorithms", "--json")
    answer = json.loads(found.out)
    names = [row["name"] for row in answer["algorithms"]]
    assert answer["format"] == 1
    assert {"adaped", "adaped-fine-tuning", "fedavg", "fedavg-fine-tuning", "local"} <= set(names)
    assert all(row["population"] and row["sends"] for row in answer["algorithms"])
    assert (answer["model"], answer["parameters"]) == ("lenet5", 44_426)
    averaging = answer["algorithms"][names.index("fedavg")]
    assert averaging["upload_bytes"] == 4 * 44_426
    assert averaging["server_trusted_with"] == "sums only"
    assert found.err == ""


def test_algorithms_in_words(command, monkeypatch):
    """One entry a method within 80 columns; a method that refuses the model has no bytes."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = command("algorithms", "--model", "logistic")
    assert all(len(line.rstrip()) <= 80 for line in shown.out.splitlines())
    heads = [line for line in shown.out.splitlines() if re.match(r"\S+ +up ", line)]
    assert [line.split()[0] for line in heads] == list(METHODS)
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in heads}
    assert found["fedavg"] == "up 31.4 kB down 31.4 kB server: sums only"
    assert found["mixture-clustering"].endswith("server: every client's model")
    assert found["fedper"] == "up - down - server: -"
    assert "In Python only: fedprior.learning.multitask" in " ".join(shown.out.split())
    assert shown.err == ""


def test_what_is_listed_is_what_the_methods_send():
    """Every method's traced bytes and its own words, for each model; no JAX at run time."""
    for model, answer in catalog.traced().items():
        assert catalog.listed(model) == answer, (
            "algorithms.json is out of date: python -m fedprior.cli.catalog"
        )


def test_an_unknown_model_is_bad_input(command):
    found = command("algorithms", "--model", "lenet")
    assert (found.code, found.out) == (2, "")
    assert "Did you mean lenet5?" in found.err


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


def test_every_option_and_argument_is_explained():
    import typer

    from fedprior.cli.main import build

    def unexplained(command, name):
        for each in getattr(command, "commands", {}).values():
            yield from unexplained(each, f"{name} {each.name}")
        for each in command.params:
            if not getattr(each, "help", None):
                yield f"{name} {each.name}"

    assert list(unexplained(typer.main.get_command(build()), "fedprior")) == []
