"""The warning that a group's size carries information: its level for any shape, and its power."""

import numpy as np
import pytest

from fedprior.estimation.conjugate.fit import by_likelihood
from fedprior.estimation.conjugate.likelihood import tally
from fedprior.estimation.conjugate.size_test import size_warning
from fedprior.estimation.statistics import Counts, collapse

POPULATIONS = {
    "most at .02 and a tail": lambda m, r: np.where(r.random(m) < 0.9, 0.02, r.beta(2, 3, m)),
    "Beta(2, 8)": lambda m, r: r.beta(2, 8, m),
    "two rates": lambda m, r: np.where(r.random(m) < 0.5, 0.2, 0.6),
    "80% zeros": lambda m, r: np.where(r.random(m) < 0.8, 0, r.beta(2, 6, m)),
    "seven spikes": lambda m, r: r.choice(np.linspace(0.05, 0.95, 7), m),
    "uniform": lambda m, r: r.random(m),
    "a spike and a slab": lambda m, r: np.where(r.random(m) < 0.95, 0.1, r.random(m)),
    "Beta(.2, .2)": lambda m, r: r.beta(0.2, 0.2, m),
    "one rate": lambda m, r: np.full(m, 0.1),
    "rare": lambda m, r: np.exp(r.normal(-5, 1.2, m)).clip(0, 1),
}


def warned(population, num_groups, seed, *, slope=0.0):
    """Whether groups of sizes 3 to 300 are warned of; `slope` in logits per unit of log n."""
    draws = np.random.default_rng([seed, num_groups])
    n = np.exp(draws.uniform(np.log(3), np.log(300), num_groups)).astype(int)
    rate = POPULATIONS[population](num_groups, draws)
    if slope:
        inside = np.clip(rate, 1e-6, 1 - 1e-6)
        logit = np.log(inside / (1 - inside)) + slope * (np.log(n) - np.log(n).mean())
        rate = 1 / (1 + np.exp(-logit))
    pairs = collapse(Counts(n=n, successes=draws.binomial(n, rate)))
    return bool(size_warning(pairs, by_likelihood(tally(pairs))))


@pytest.mark.parametrize("seed", range(3))
def test_a_shape_is_no_effect_of_size(seed):
    # The score of a fitted Beta, which it replaces, warned here every time.
    assert not warned("most at .02 and a tail", 2000, seed)


@pytest.mark.parametrize("seed", range(3))
def test_a_real_effect_is_found(seed):
    assert warned("Beta(2, 8)", 500, seed, slope=0.4)


@pytest.mark.evidence
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(("num_groups", "runs"), [(100, 200), (500, 200), (2000, 100)])
def test_false_alarms_are_rare_for_any_shape(population, num_groups, runs):
    alarms = sum(warned(population, num_groups, seed) for seed in range(runs))
    assert alarms <= 0.06 * runs


@pytest.mark.evidence
def test_power_is_at_least_that_of_the_score_test():
    # The Beta score test at 1e-3 found 60% of these with 100 groups and 98% with 300 (slope .3).
    assert sum(warned("Beta(2, 8)", 100, seed, slope=0.4) for seed in range(200)) >= 110
    assert sum(warned("Beta(2, 8)", 300, seed, slope=0.3) for seed in range(100)) >= 92
