"""`fedprior privacy audit`: what it prints, and how it ends."""

import importlib
import json
import pkgutil
import sys

import pytest
from faults import HalfNoise

import fedprior.channels
from fedprior.audit import channels, prices, suite
from fedprior.audit.finding import Finding, chance_of_false_alarm
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.cli.main import main
from fedprior.core.protocols import PrivateChannel

KEYS = {"class", "mechanism", "claim", "measured", "detects", "false_alarm", "passed", "detail"}


def cheap(channel):
    options = {"draws": 20_000, "seed": 0, "confidence": 0.9999, "delta": 0.01}
    return suite.Task("central", lambda: channels.attack_central(channel, **options))


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*words, tasks=None):
        if tasks is not None:
            monkeypatch.setattr(suite, "tasks", lambda **options: tasks)
        monkeypatch.setattr(sys, "argv", ["fedprior", "privacy", "audit", *words])
        monkeypatch.setenv("COLUMNS", "160")
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return call


SOUND = CentralGaussian(clip=0.5, noise_multiplier=1.0)
BROKEN = HalfNoise(clip=0.5, noise_multiplier=1.0)


def test_sound_mechanisms_end_with_0_and_say_so(run):
    code, out, err = run(tasks=[cheap(SOUND)])
    assert code == 0
    assert "1 of 1 attacks found nothing" in out
    assert "the probability of any false alarm is at most 0.0001." in out
    assert "Claimed: epsilon 2.3" in out
    assert "Detects a true epsilon of" in out
    assert all(sentence in out for sentence in suite.CANNOT_SEE)
    assert err == ""


def test_a_broken_mechanism_ends_with_1_and_is_named(run):
    code, out, _ = run(tasks=[cheap(SOUND), cheap(BROKEN)])
    assert code == 1
    assert "1 of 2 attacks found nothing" in out
    assert "FAILS: CentralGaussian" in out


def test_json_has_the_fields_that_were_promised(run):
    code, out, _ = run("--json", tasks=[cheap(SOUND), cheap(BROKEN)])
    found = json.loads(out)
    assert code == 1
    assert found["format"] == 2
    assert found["cannot_see"]
    assert [check["passed"] for check in found["attacks"]] == [True, False]
    for check in found["attacks"]:
        assert set(check) >= KEYS
        assert (check["lower_bound"] <= check["claimed"]) == check["passed"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--confidence", "1"], "audit: confidence must be below 1"),
        (["--confidence", "0"], "audit: confidence must be a positive number"),
        (["--runs", "7"], "audit: runs must be a whole number of at least 100"),
        (["--seed", "-1"], "audit: seed must be a whole number of at least 0"),
    ],
)
def test_bad_options_are_refused_in_one_line(run, words, line):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert line in err
    assert len(err.splitlines()) == 1


def test_an_epsilon_without_bound_is_null():
    finding = Finding(
        family="channels",
        mechanism="m",
        detects="nothing",
        claimed=1.0,
        lower_bound=float("inf"),
        delta=0.0,
        relation="add-remove",
        confidence=0.9,
        detail="",
    )
    assert finding.describe()["lower_bound"] is None
    assert not finding.passed
    assert chance_of_false_alarm([finding, finding]) == pytest.approx(0.2)


def test_every_private_channel_that_is_shipped_is_audited():
    private = set()
    for module in pkgutil.iter_modules(fedprior.channels.__path__, "fedprior.channels."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and PrivateChannel in value.__mro__[1:]:
                private.add(value)
    audited = (
        *suite.CENTRAL,
        *suite.CHAINS,
        *suite.DISTRIBUTED,
        *suite.LOCAL,
        *suite.ONE_BIT,
        *suite.RESPONSES,
        *suite.MATRICES,
    )
    assert private == {type(channel) for channel in audited}


def test_the_list_of_attacks_covers_what_the_claims_rest_on():
    names = [task.name for task in suite.tasks(quick=True)]
    assert names.count("attack") == 3  # AdaPeD, AdaMAP, FedAvg
    assert names.count("check prices") == len(prices.CASES)
    for name in ("keys", "specials", "sizes", "source", "whole run", "ledger", "replacement"):
        assert any(name in each for each in names), name


@pytest.mark.evidence
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_everything_that_is_shipped_passes(run, seed):
    code, out, _ = run("--json", "--seed", str(seed))
    assert code == 0
    assert all(check["passed"] for check in json.loads(out)["attacks"])
