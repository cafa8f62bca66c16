"""Private rates promise a bound that populations of every shape keep."""

import numpy as np
import pytest
from scipy import stats

from fedprior.core import random
from fedprior.experiments.private_rates import (
    EPSILONS,
    POPULATIONS,
    RateSetting,
    draw_setting,
    keep,
    private_rates,
)

FALSE_ALARM = 1e-6
BROKEN = 0.025  # the largest share of promises that may fail
BETAS = ("Beta(1, 1)", "Beta(4, 4)", "Beta(2, 5)", "Beta(0.5, 20)")


def most(number):
    """So many of `number` promises fail with probability 1e-6 if each fails with 2.5%."""
    return stats.binom.isf(FALSE_ALARM, number, BROKEN)


def test_promises_hold_and_nobody_is_worse_than_local():
    """19 populations, 8 settings each that often share: a share of 15% would be detected."""
    kept = []
    for place, population in enumerate(POPULATIONS.values()):
        for run in range(8):
            setting = draw_setting(random.stream(5, "cohort", run), (300, 2_000), EPSILONS[2:])
            kept.append(keep(population, setting, random.stream(5, "partition", place, run)))
    assert sum(each.promised > each.realized for each in kept) <= most(len(kept))
    assert sum(each.realized < 0 for each in kept) <= most(len(kept))
    assert sum(not each.fell_back for each in kept) > len(kept) / 4
    assert np.mean([each.coverage for each in kept]) > 0.95


def ratio(name, setting, runs):
    """Medians of the promised and of the realized gain."""
    streams = [random.stream(7, "partition", run) for run in range(runs)]
    kept = [keep(POPULATIONS[name], setting, stream) for stream in streams]
    return [np.median([getattr(each, part) for each in kept]) for part in ("promised", "realized")]


@pytest.mark.parametrize("name", ["Beta(1, 1)", "Beta(4, 4)", "Beta(2, 5)"])
def test_promises_are_half_of_what_comes_true_for_betas(name):
    for scheme in ("k-ary", "two-round"):
        promised, realized = ratio(name, RateSetting(np.full(2_000, 10), 2.0, scheme), 9)
        assert promised >= realized / 2 > 3


def test_refusals_and_the_same_rows_again():
    with pytest.raises(ValueError, match="runs"):
        private_rates(runs=0)
    few = private_rates(runs=1, seed=2, num_groups=(50,))
    assert few == private_rates(runs=1, seed=2, num_groups=(50,))
    assert [row.population for row in few] == list(POPULATIONS)


@pytest.mark.evidence
@pytest.mark.parametrize("name", sorted(POPULATIONS))
def test_fewer_than_one_promise_in_forty_is_broken(name):
    """400 settings of the grid and 400 with 2,000 groups or more: a share of 8% would be seen.

    All populations together: a share of 3.1%.
    """
    for seed, numbers, epsilons in (
        (1, (50, 300, 2_000, 20_000), EPSILONS),
        (2, (2_000, 20_000), EPSILONS[2:]),
    ):
        kept = [
            keep(
                POPULATIONS[name],
                draw_setting(random.stream(seed, "cohort", run), numbers, epsilons),
                random.stream(seed, "partition", sorted(POPULATIONS).index(name), run),
            )
            for run in range(400)
        ]
        assert sum(each.promised > each.realized for each in kept) <= most(len(kept))
        assert sum(each.realized < 0 for each in kept) <= most(len(kept))
        assert np.mean([each.coverage for each in kept]) > 0.95


@pytest.mark.evidence
@pytest.mark.parametrize("scheme", ["k-ary", "two-round", "auto"])
@pytest.mark.parametrize("name", BETAS)
def test_promises_of_the_grid_are_half_of_what_comes_true(name, scheme):
    for number in (300, 2_000, 20_000):
        for size in (5, 30, 100):
            for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
                setting = RateSetting(np.full(number, size), epsilon, scheme)
                promised, realized = ratio(name, setting, 40)
                assert promised >= realized / 2
