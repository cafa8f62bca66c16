"""The matrix mechanism beside Poisson sampling: the same epsilon, for each adversary."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fedprior.cli.privacy import app
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import gaussian
from fedprior.privacy.participation import Participation
from fedprior.privacy.planning import noise_multiplier
from fedprior.privacy.strategy import banded_strategy, sensitivity, squared_errors, squared_noise
from fedprior.privacy.turns import alternatives

SETTING = {"target": 2.0, "delta": 1e-5, "rounds": 20, "rate": 0.1, "num_clients": 1000}


@pytest.fixture(scope="module")
def found():
    return alternatives(**SETTING, most=5, apart=4)


def by(found, mechanism, cohorts, sees):
    return next(
        each
        for each in found
        if (each.mechanism, each.sees) == (mechanism, sees) and each.cohorts.startswith(cohorts)
    )


def test_every_row_costs_the_same(found):
    plain = by(found, "independent", "Poisson", "cohorts, too")
    assert plain.noise_multiplier == pytest.approx(
        noise_multiplier(gaussian(1), target=2.0, delta=1e-5, rounds=20), rel=1e-3
    )
    turns = by(found, "matrix", "any", "cohorts, too")
    strategy, rule = banded_strategy(20, bands=4), Participation(rounds=20, apart=4)
    event = gaussian(turns.noise_multiplier / sensitivity(strategy, rule))
    assert epsilon([(event, 1)], delta=1e-5) == pytest.approx(2.0, rel=1e-3)
    assert turns.noise_multiplier == by(found, "matrix", "any", "models").noise_multiplier


def test_noise_is_that_of_the_mean_and_of_its_sums(found):
    strategy = banded_strategy(20, bands=4)
    turns = by(found, "matrix", "any", "models")
    per = turns.noise_multiplier / 100
    assert turns.update_noise == pytest.approx(per * np.sqrt(squared_noise(strategy, 20).mean()))
    assert turns.learned_noise == pytest.approx(per * np.sqrt(squared_errors(strategy, 20).mean()))
    plain = by(found, "independent", "Poisson", "models")
    assert plain.update_noise == pytest.approx(plain.noise_multiplier / 100)
    assert plain.learned_noise == pytest.approx(plain.update_noise * np.sqrt(10.5))


def test_who_sees_cohorts_is_served_better_by_turns(found):
    plain, turns = (
        by(found, kind, drawn, "cohorts, too")
        for kind, drawn in (("independent", "Poisson"), ("matrix", "any"))
    )
    assert turns.learned_noise < 0.5 * plain.learned_noise
    cyclic = by(found, "matrix", "cyclic Poisson, 4 parts, rate 0.4", "models")
    assert cyclic.learned_noise < by(found, "matrix", "any", "models").learned_noise


def test_amplification_is_claimed_only_for_all_turns(found):
    fewer = alternatives(**SETTING, most=4, apart=4)
    assert len(fewer) == len(found) - 1


def test_cohorts_that_the_rule_forbids_are_refused():
    with pytest.raises(ValueError, match=r"sampling rate must be at most 0\.05"):
        alternatives(**SETTING, most=1, apart=4)


COMMAND = (
    "plan --epsilon 2 --delta 1e-5 --clients 1000 --sampling-rate 0.1 --rounds 20 --participation"
)


def test_the_command_compares(found):
    done = CliRunner().invoke(app, [*COMMAND.split(), "5,4", "--json"])
    rows = json.loads(done.stdout)["participation"]
    assert rows == [each.describe() for each in found]
    shown = CliRunner().invoke(app, [*COMMAND.split(), "5,4"]).stdout
    assert "matrix" in shown
    assert "The same epsilon for each row, 20 rounds" in shown


@pytest.mark.parametrize("word", ["5;4", "0,4", "5,4,3", "often"])
def test_other_words_are_refused(word):
    done = CliRunner().invoke(app, [*COMMAND.split(), word])
    assert "--participation must be K or K,B" in str(done.exception)
