"""The audit of cohorts: the sampler that draws is the one that is accounted for."""

from dataclasses import replace

import numpy as np
import pytest
from faults import POWER, Dealt, Eager, FixedUnderPoisson, Households
from scipy.stats import binom

from fedprior.audit.cohorts import check_cohort, deviations
from fedprior.privacy.cohort import Everyone, FixedSize, Poisson
from fedprior.privacy.events import gaussian

CONFIDENCE = 1 - 1e-6
ALARM = (1 - CONFIDENCE) / 6  # of each of the tests
ROUNDS = 1500
AT = {"num_clients": 6, "rounds": ROUNDS, "seed": 0, "confidence": CONFIDENCE, "delta": 1e-3}


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_poisson_cohorts_pass(rate):
    found = check_cohort(Poisson(rate=rate, cap=6), **AT)
    assert found.passed, found
    assert 0 < found.lower_bound < found.claimed


def test_a_cohort_of_everyone_has_nothing_to_show():
    found = check_cohort(Everyone(), **AT)
    assert found.passed
    assert (found.lower_bound, found.confidence) == (0.0, 1.0)


@pytest.mark.parametrize("amplifies", [False, True])
def test_cohorts_of_one_size_pass(amplifies):
    found = check_cohort(FixedSize(size=3, amplifies=amplifies), **AT)
    assert found.passed, found
    assert found.relation == "replace-one"


def test_cohorts_of_one_size_under_a_poisson_claim_are_caught():
    """Power 1: 1,500 cohorts of 3 where Binomial(6, 1/2) has 3 in 31% of the rounds is a chi-square
    of 3,300 on 6 degrees, whatever is drawn.
    """
    found = check_cohort(FixedUnderPoisson(rate=0.5, cap=6), **AT)
    assert "cohort sizes do not follow poisson sampling" in found.faults
    assert not found.passed


def test_clients_that_are_dealt_out_are_caught():
    """Power 1: in 750 pairs of successive rounds no client comes twice, where each pair has it
    with probability 1/4: probability 1e-94.
    """
    assert binom.cdf(0, ROUNDS // 2, 0.25) < 1e-90
    found = check_cohort(Dealt(rate=0.5, cap=6), **AT)
    assert "rounds depend on each other" in found.faults


def test_clients_that_come_together_are_caught():
    """Power above 0.999: a household comes together in Binomial(1500, 1/2) rounds where
    Binomial(1500, 1/4) is accounted for; the two are 19 standard deviations apart.
    """
    limit = binom.isf(ALARM / 2 / 15, ROUNDS, 0.25)
    assert binom.sf(limit, ROUNDS, 0.5) > POWER
    found = check_cohort(Households(rate=0.5, cap=6), **AT)
    assert "clients are drawn together too often or too rarely" in found.faults


def test_clients_drawn_too_often_are_caught():
    """Power above 0.999: 9,000 coins at 0.55 against the upper critical value at 0.5."""
    limit = binom.isf(ALARM / 2, 6 * ROUNDS, 0.5)
    assert binom.sf(limit, 6 * ROUNDS, 0.55) > POWER
    found = check_cohort(Eager(rate=0.5, cap=6), **AT)
    assert any(fault.startswith("clients are drawn at rate 0.5") for fault in found.faults)
    assert found.lower_bound > found.claimed


def test_fixed_size_sampling_is_held_to_its_own_claim():
    event = replace(gaussian(1.0), sampling="fixed", size=2, num_clients=6)
    cohort = FixedSize(size=2)
    draws = np.zeros((ROUNDS, 6), bool)
    for round in range(ROUNDS):
        draws[round, cohort.draw(0, round, 6)] = True
    assert deviations(draws, event, alarm=ALARM) == []
    draws[7] = False  # one empty cohort
    assert deviations(draws, event, alarm=ALARM) == ["cohort sizes do not follow fixed sampling"]
