"""Cohorts: the law of who takes part, keyed draws, and caps that are never passed in silence."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedprior

FALSE_ALARM = 1e-6  # of each statistical test


def p_value_of_counts(observed, expected):
    """Chi-square test; cells with an expected count below 5 are put together."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    rare = expected < 5
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    statistic = ((observed - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, len(expected) - 1)


def test_poisson_sizes_are_binomial():
    """Detects a rate off by 0.02, or a size that is fixed."""
    cohort, num_clients, rounds = fedprior.Poisson(rate=0.3), 12, 4000
    sizes = [len(cohort.draw(0, number, num_clients)) for number in range(rounds)]
    expected = rounds * stats.binom.pmf(np.arange(num_clients + 1), num_clients, 0.3)
    observed = np.bincount(sizes, minlength=num_clients + 1)
    assert p_value_of_counts(observed, expected) > FALSE_ALARM


def test_poisson_clients_are_independent():
    """Every subset of 3 clients has the product law; detects one client tied to another."""
    cohort, rounds = fedprior.Poisson(rate=0.4), 4000
    seen = Counter(tuple(cohort.draw(1, number, 3).tolist()) for number in range(rounds))
    subsets = [tuple(c for c in range(3) if bits >> c & 1) for bits in range(8)]
    expected = [rounds * 0.4 ** len(own) * 0.6 ** (3 - len(own)) for own in subsets]
    assert set(seen) <= set(subsets)
    assert p_value_of_counts([seen[own] for own in subsets], expected) > FALSE_ALARM


def test_fixed_size_is_uniform_without_replacement():
    """Every pair of 5 clients equally often; detects a favored client or pair."""
    cohort, rounds = fedprior.FixedSize(size=2), 4000
    seen = Counter(tuple(cohort.draw(2, number, 5).tolist()) for number in range(rounds))
    assert all(len(set(pair)) == 2 for pair in seen)
    counts = [seen[a, b] for a in range(5) for b in range(a + 1, 5)]
    assert sum(counts) == rounds
    assert p_value_of_counts(counts, np.full(10, rounds / 10)) > FALSE_ALARM


@given(
    num_clients=st.integers(1, 500),
    rate=st.floats(0.001, 1),
    cap=st.none() | st.integers(1, 600),
)
def test_overflow_is_the_binomial_tail(num_clients, rate, cap):
    cohort = fedprior.Poisson(rate=rate, cap=cap)
    capacity = cohort.capacity(num_clients)
    assert 1 <= capacity <= num_clients
    assert cohort.overflow(num_clients) == stats.binom.sf(capacity, num_clients, rate)
    assert cohort.expected_size(num_clients) == rate * num_clients
    if cap is None:
        assert cohort.overflow(num_clients) <= 1e-15
        smaller = stats.binom.sf(capacity - 1, num_clients, rate)
        assert smaller > 1e-15 or capacity == 1
    else:
        assert capacity == min(cap, num_clients)


def test_overflow_is_as_frequent_as_it_says():
    """Detects a cohort that is cut, and a cap off by one."""
    cohort, rounds = fedprior.Poisson(rate=0.5, cap=6), 2000
    passed = 0
    for number in range(rounds):
        try:
            assert len(cohort.draw(0, number, 10)) <= 6
        except fedprior.PrivacyError:
            passed += 1
    test = stats.binomtest(passed, rounds, cohort.overflow(10))
    assert test.pvalue > FALSE_ALARM


@pytest.mark.parametrize("store", ["device", "disk"])
def test_a_cohort_above_the_cap_stops_the_run(toy, plane, store):
    cohort = fedprior.Poisson(rate=0.9, cap=2)
    refusal = r"Poisson: cap must be at least the size .* got 2 for the \d clients of round \d"
    with pytest.raises(fedprior.PrivacyError, match=refusal):
        fedprior.simulate(toy, plane, rounds=3, cohort=cohort, store=store)
    with pytest.raises(fedprior.PrivacyError, match=refusal):
        fedprior.debug(toy, plane, rounds=3, cohort=cohort)


def test_more_clients_than_there_are_is_refused(toy, plane):
    refusal = r"FixedSize: size must be at most the number of clients \(6\), got 7"
    for engine in (fedprior.simulate, fedprior.debug):
        with pytest.raises(ValueError, match=refusal):
            engine(toy, plane, rounds=1, cohort=fedprior.FixedSize(size=7))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="FixedSize: size must be a whole number of at least 1"):
        fedprior.FixedSize(size=0)
    for rate in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"Poisson: rate must be in \(0, 1\], got"):
            fedprior.Poisson(rate=rate)
    with pytest.raises(TypeError, match="Poisson: cap must be a whole number"):
        fedprior.Poisson(rate=0.5, cap=2.5)
