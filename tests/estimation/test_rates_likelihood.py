"""The beta-binomial likelihood against SciPy's, its derivatives, and its maximum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from fedprior.estimation.conjugate import fit as fits
from fedprior.estimation.conjugate.likelihood import (
    log_likelihood,
    slope_at,
    tally,
)
from fedprior.estimation.families.rising import rising, rising_slopes
from fedprior.estimation.statistics import Counts, collapse


def counts(seed, m, alpha, beta, most=60):
    draws = np.random.default_rng(seed)
    n = draws.integers(0, most, m)
    return Counts(n=n, successes=draws.binomial(n, draws.beta(alpha, beta, m)))


def data_of(seed, m, alpha, beta, most=60):
    return tally(collapse(counts(seed, m, alpha, beta, most)))


def at(data, mean, size):
    return float(log_likelihood(data, np.array([mean]), np.array([size]))[0])


@pytest.mark.parametrize("size", [1e-3, 0.5, 7.0, 300.0, 1e5])
def test_differs_from_scipys_by_a_constant(size):
    given = counts(0, 200, 2, 8)
    data = tally(collapse(given))

    def scipys(mean, size):
        alpha, beta = mean * size, (1 - mean) * size
        return stats.betabinom.logpmf(given.successes, given.n, alpha, beta).sum()

    found = at(data, 0.23, size) - at(data, 0.4, 5.0)
    assert found == pytest.approx(scipys(0.23, size) - scipys(0.4, 5.0), rel=1e-7)


def test_reaches_the_binomial_likelihood_of_one_rate():
    data = data_of(1, 500, 3, 7)
    won, lost = data.total_successes, data.total_failures
    binomial = won * np.log(0.3) + lost * np.log(0.7)
    assert at(data, 0.3, 1e15) == pytest.approx(binomial, abs=1e-6)


def test_keeps_its_digits_where_log_gammas_cancel():
    # log Gamma(a + z) - log Gamma(a) is z log(a) + sum log(1 + k / a) for whole z
    shape, count = np.array([0.3, 15.0, 17.0, 1e6, 1e12]), np.array([1.0, 7.0, 40.0])
    exact = np.array([[np.log1p(np.arange(z) / a).sum() for z in (1, 7, 40)] for a in shape])
    np.testing.assert_allclose(rising(shape[:, None], count), exact, rtol=1e-9, atol=1e-12)
    seven = rising(shape, np.full(5, 7.0))
    np.testing.assert_allclose(seven, exact[:, 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [0.2, 15.9, 16.1, 900.0])
def test_slopes_are_the_derivatives(shape):
    count, step = np.array([2.0, 30.0, 800.0]), 1e-3 * shape
    first, second = rising_slopes(shape, count)
    up, middle, down = rising(np.array([[shape + step], [shape], [shape - step]]), count)
    np.testing.assert_allclose(first, (up - down) / (2 * step), rtol=1e-4)
    np.testing.assert_allclose(second, (up - 2 * middle + down) / step**2, rtol=1e-3)


@pytest.mark.parametrize(("mean", "size"), [(0.2, 0.4), (0.31, 9.0), (0.5, 4000.0)])
def test_gradient_and_hessian(mean, size):
    data, step = data_of(2, 300, 2, 5), 1e-5

    def moved(by_mean, by_size):
        logit = np.log(mean / (1 - mean)) + by_mean
        return 1 / (1 + np.exp(-logit)), size * np.exp(by_size)

    found = slope_at(data, mean, size)
    shifts = np.eye(2) * step
    gradient = [(at(data, *moved(*s)) - at(data, *moved(*-s))) / (2 * step) for s in shifts]
    hessian = [
        (slope_at(data, *moved(*s)).gradient - slope_at(data, *moved(*-s)).gradient) / (2 * step)
        for s in shifts
    ]
    np.testing.assert_allclose(found.gradient, gradient, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("alpha", "beta", "m"),
    [(2, 8, 12), (2, 8, 3000), (0.2, 0.3, 200), (40, 60, 500), (400, 600, 30), (1, 60, 300)],
)
def test_the_fit_is_the_maximum(alpha, beta, m):
    data = data_of(3, m, alpha, beta)
    found = fits.by_likelihood(data)
    most = np.log(fits.narrowest(data))

    def loss(place):
        return -at(data, 1 / (1 + np.exp(-place[0])), np.exp(place[1]))

    best = min(
        optimize.minimize(loss, [-1.0, start], method="L-BFGS-B", bounds=[(-9, 9), (-13, most)]).fun
        for start in (0.0, 3.0, 8.0)
    )
    assert at(data, found.mean, found.concentration) >= -best - 1e-6 * m


def test_a_point_mass_and_the_other_extreme():
    draws = np.random.default_rng(4)
    even = np.full(400, 10)
    one = tally(collapse(Counts(n=even, successes=np.full(400, 3))))
    assert fits.by_likelihood(one).is_point
    assert fits.by_likelihood(one).variance == 0
    assert fits.by_moments(one).is_point
    split = tally(collapse(Counts(n=even, successes=10 * draws.integers(0, 2, 400))))
    assert fits.by_likelihood(split).concentration < 1e-4


def test_standard_errors_are_those_of_repeated_fits():
    # detects a wrong Jacobian: 100 fits estimate a standard deviation to 7%
    found = [fits.by_likelihood(data_of(seed, 400, 4, 6, 30)) for seed in range(100)]
    errors = found[0].standard_errors(1.0)
    for name, values in {
        "mean": [each.mean for each in found],
        "concentration": [each.concentration for each in found],
        "heterogeneity": [np.sqrt(each.variance) for each in found],
    }.items():
        assert errors[name] == pytest.approx(np.std(values), rel=0.35)  # 5 of these


def test_moments_are_unbiased_with_equal_sizes():
    # every outcome of 3 groups of 4 trials, rates 0.2 / 0.5 / 0.6 in any order: mean of sigma^2
    rates, n = np.array([0.2, 0.5, 0.6]), 4
    total = 0.0
    law = [[stats.binom.pmf(range(n + 1), n, rate) for rate in rates]]
    mixed = np.mean(law[0], axis=0)  # a group's rate drawn from the three
    for z in np.ndindex(n + 1, n + 1, n + 1):
        x = np.array(z) / n
        mean, spread = x.mean(), x.var(ddof=1)
        variance = (n * spread - mean * (1 - mean) - spread / 3) / (n - 1)
        total += np.prod(mixed[list(z)]) * variance
        data = tally(collapse(Counts(n=np.full(3, n), successes=np.array(z))))
        if 0 < mean < 1 and 1e-4 < variance < mean * (1 - mean):
            assert fits.by_moments(data).variance == pytest.approx(variance)
    assert total == pytest.approx(rates.var())


def test_moments_with_unequal_sizes():
    n, z = np.array([2, 5, 9, 1]), np.array([2, 1, 8, 0])
    found = fits.by_moments(tally(collapse(Counts(n=n, successes=z))))
    mean = z.sum() / n.sum()
    brackets = z * (z - 1) - 2 * mean * z * (n - 1) + mean**2 * n * (n - 1)
    assert found.mean == pytest.approx(mean)
    assert found.variance == pytest.approx(brackets.sum() / (n * (n - 1)).sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.floats(0.05, 20), st.floats(0.05, 20))
def test_the_fit_is_the_same_with_successes_and_failures_exchanged(seed, m, alpha, beta):
    given_ = counts(seed, m, alpha, beta, 12)
    data = tally(collapse(given_))
    if len(data.n) == 0 or data.n.max() < 2 or not data.total_successes * data.total_failures:
        return
    other = tally(collapse(Counts(n=given_.n, successes=given_.n - given_.successes)))
    first, second = fits.by_likelihood(data), fits.by_likelihood(other)
    assert first.mean == pytest.approx(1 - second.mean, abs=1e-5)
    assert np.log(first.concentration) == pytest.approx(np.log(second.concentration), abs=1e-3)
