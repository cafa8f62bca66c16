"""The lower confidence bound on epsilon: valid, and close to the truth where that can be known."""

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from fedprior.audit.bound import lower_bound, lower_limit, two_sided, upper_limit
from fedprior.privacy.calibrate import gaussian_epsilon

FALSE_ALARM = 1e-6


def gaussian_scores(draws, runs, *, scale=1.0):
    return 1 + scale * draws.standard_normal(runs), scale * draws.standard_normal(runs)


@pytest.mark.parametrize("hits", [0, 1, 37, 99, 100])
def test_limits_are_those_of_clopper_and_pearson(hits):
    low = beta.ppf(0.01, hits, 101 - hits) if hits else 0.0
    high = beta.isf(0.01, hits + 1, 100 - hits) if hits < 100 else 1.0
    assert float(lower_limit(hits, 100, 0.01)) == pytest.approx(low)
    assert float(upper_limit(hits, 100, 0.01)) == pytest.approx(high)


def test_limits_of_rare_events_hold_their_level():
    """Exactly: the mass of the counts whose limit lies on the wrong side of the true rate."""
    runs, rate, alarm = 5000, 1e-3, 1e-4
    counts = np.arange(200)
    mass = binom.pmf(counts, runs, rate)
    assert mass[lower_limit(counts, runs, alarm) > rate].sum() <= alarm
    assert mass[upper_limit(counts, runs, alarm) < rate].sum() <= alarm


def test_a_count_far_out_is_improbable_and_an_even_one_is_not():
    assert two_sided(np.array([500, 510]), 1000, 0.5) > 0.5
    assert two_sided(np.array([500, 620]), 1000, 0.5) < 1e-10


@pytest.mark.parametrize("kind", ["gaussian", "response"])
def test_the_bound_is_valid(kind):
    """At confidence 0.8 at most a fifth of the bounds may lie above the true epsilon.

    500 audits; a rate of 0.33 would be seen. The best event is known in advance for an answer at
    random, so that its level is the one most nearly used up.
    """
    draws = np.random.default_rng(5)
    audits, runs, delta = 500, 2000, 0.01 if kind == "gaussian" else 0.0
    truth = gaussian_epsilon(1.0, delta, sensitivity=1.0) if kind == "gaussian" else 1.0
    above = 0
    for _ in range(audits):
        if kind == "gaussian":
            scores = gaussian_scores(draws, runs)
        else:
            chance = np.e / (1 + np.e)
            scores = draws.random(runs) < chance, draws.random(runs) >= chance
        above += lower_bound(*scores, delta=delta, confidence=0.8).epsilon > truth
    assert binomtest(above, audits, 0.2, alternative="greater").pvalue > FALSE_ALARM


def test_the_bound_is_tight_for_a_gaussian():
    """0.85 of the true epsilon from 400,000 runs."""
    scores = gaussian_scores(np.random.default_rng(6), 400_000)
    truth = gaussian_epsilon(1.0, 0.01, sensitivity=1.0)
    found = lower_bound(*scores, delta=0.01, confidence=0.9999).epsilon
    assert 0.85 * truth < found <= truth


@pytest.mark.parametrize("where", ["present", "absent"])
def test_both_directions_are_tried(where):
    """A rare sign of one world tells nothing in the other direction: 0.95 and 1 are close."""
    sign = np.random.default_rng(9).random(4000) < 0.05
    scores = (1.0 * sign, np.zeros(4000)) if where == "present" else (np.zeros(4000), -1.0 * sign)
    found = lower_bound(*scores, delta=0.0, confidence=0.9999)
    assert found.epsilon > np.log(0.03 / 0.006)


def test_equal_worlds_show_nothing():
    draws = np.random.default_rng(7)
    found = lower_bound(draws.normal(size=999), draws.normal(size=998), delta=0.0, confidence=0.9)
    assert found.epsilon < 0.3


def test_worlds_apart_are_limited_by_the_number_of_runs():
    found = lower_bound(np.full(2000, np.inf), np.zeros(2000), delta=0.0, confidence=0.99)
    assert 5 < found.epsilon < np.log(1000)


def test_the_tested_half_is_not_the_half_that_chose():
    """Scores that only the first half tells apart give no bound."""
    draws = np.random.default_rng(8)
    first = np.full(500, 5.0)
    present = np.concatenate([first, draws.normal(size=500)])
    absent = np.concatenate([-first, draws.normal(size=500)])
    assert lower_bound(present, absent, delta=0.0, confidence=0.99).epsilon < 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confidence": 1.0}, "confidence must be below 1"),
        ({"confidence": 0.0}, "confidence must be a positive number"),
        ({"delta": 1.0}, "delta must be in"),
        ({"present": np.array([1.0])}, "present must be at least 2 scores"),
        ({"absent": np.array([1.0, np.nan])}, "absent must be at least 2 scores, none of them NaN"),
    ],
)
def test_bad_arguments_are_refused(changes, words):
    fields = {"present": np.ones(4), "absent": np.ones(4), "delta": 0.0, "confidence": 0.9}
    fields |= changes
    with pytest.raises(ValueError, match=words):
        lower_bound(fields.pop("present"), fields.pop("absent"), **fields)
