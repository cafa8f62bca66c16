"""The note on rows of a group that vary more than counts of one rate."""

import numpy as np
import pytest

from fedprior import GroupEvents, GroupRates
from fedprior.estimation.groups import EstimationWarning

SAID = "vary more than"


def events(seed, m, rows, *, dispersion=None, mean=3.0, equal=False):
    """Rows of Poisson counts with one rate per group, or of counts with a Gamma for each row."""
    draws = np.random.default_rng(seed)
    group = np.repeat(np.arange(m), rows)
    size = np.ones(m * rows) if equal else draws.lognormal(0, 1, m * rows)
    rate = mean * draws.gamma(2, 0.5, m)[group]
    if dispersion is not None:
        rate = rate * draws.gamma(dispersion, 1 / dispersion, len(rate))
    return draws.poisson(size * rate), group, size


def noted(model):
    return any(SAID in note for note in model.notes_)


@pytest.mark.parametrize("m", [3, 200])
@pytest.mark.parametrize("mean", [0.02, 3.0, 300.0])
def test_counts_of_one_rate_are_left_alone(m, mean):
    # A false alarm has a chance of 3e-5 or so, more with rare events, whose sums are skewed.
    alarms = 0
    for seed in range(20):
        happened, group, size = events(seed, m, 10, mean=mean)
        if happened.sum() > 0:
            alarms += noted(GroupEvents().fit(happened, group, exposure=size))
    assert alarms <= 1


@pytest.mark.parametrize("equal", [True, False])
def test_rows_with_rates_of_their_own_are_noted(equal):
    happened, group, size = events(0, 60, 10, dispersion=1.0, equal=equal)
    with pytest.warns(EstimationWarning, match="more than Poisson counts of one rate"):
        GroupEvents().fit(happened, group, exposure=size)


def test_rates_of_successes():
    draws = np.random.default_rng(1)
    group, trials = np.repeat(np.arange(50), 8), draws.integers(1, 40, 400)
    rate = draws.beta(4, 6, 50)[group]
    assert not noted(GroupRates().fit_counts(draws.binomial(trials, rate), trials, group))
    moved = np.clip(rate + draws.normal(0, 0.2, 400), 0.01, 0.99)
    with pytest.warns(EstimationWarning, match="more than binomial counts of one rate"):
        GroupRates().fit_counts(draws.binomial(trials, moved), trials, group)


def test_single_trials_say_nothing():
    draws = np.random.default_rng(2)
    group = np.repeat(np.arange(20), 15)
    outcome = draws.binomial(1, draws.beta(2, 2, 20)[group])
    assert not noted(GroupRates().fit_counts(outcome, np.ones(300, int), group))
