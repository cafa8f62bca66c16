"""Quantiles of mixtures against SciPy; robust critical values against linear programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from fedprior.estimation.intervals import mixture_cdf, mixture_quantile, robust_critical_value


@pytest.mark.parametrize("freedom", [1.5, 8.0, 150.0, np.inf])
def test_quantiles_invert_the_mixture_of_scipy(freedom):
    probability = np.array([0.2, 0.5, 0.3])
    location = np.array([[0.0, -3.0], [1.0, 5.0], [4.0, 5.1]])
    scale = np.array([[1.0, 0.1], [0.2, 2.0], [3.0, 0.01]])
    law = stats.norm if np.isinf(freedom) else stats.t(freedom)
    for level in (0.005, 0.025, 0.5, 0.975):
        found = mixture_quantile(level, probability, location, scale, freedom=freedom)
        mass = probability @ law.cdf((found - location) / scale)
        np.testing.assert_allclose(mass, level, atol=1e-5)
        again = mixture_cdf(found, probability, location, scale, freedom=freedom)
        np.testing.assert_allclose(again, level, atol=1e-6)


def test_one_component_is_its_own_quantile():
    found = mixture_quantile(0.975, np.ones(1), np.array([[2.0]]), np.array([[3.0]]))
    np.testing.assert_allclose(found, stats.norm.ppf(0.975, 2, 3), rtol=1e-6)


def worst_noncoverage(second, kurtosis, c):
    """The linear program over all distributions of b^2 on a fine grid."""
    top = max((c + 6) ** 2, 20 * second if np.isinf(kurtosis) else 4 * second * kurtosis)
    square = np.unique(np.r_[0, np.geomspace(1e-4, top, 1500), np.linspace(0, top, 1500), second])
    b = np.sqrt(square)
    miss = special.ndtr(-c - b) + special.ndtr(b - c)
    bound = {} if np.isinf(kurtosis) else {"A_ub": [square**2], "b_ub": [kurtosis * second**2]}
    equal = {"A_eq": [np.ones_like(square), square], "b_eq": [1, second]}
    return -optimize.linprog(-miss, **equal, **bound, method="highs").fun


@pytest.mark.parametrize(
    ("second", "kurtosis", "level"),
    [
        (0.1, np.inf, 0.95),
        (1.0, np.inf, 0.95),
        (30.0, np.inf, 0.9),
        (0.5, 3.0, 0.95),
        (5.0, 3.0, 0.99),
        (5.0, 1.2, 0.95),
        (0.01, 50.0, 0.95),
    ],
)
def test_the_worst_distribution_reaches_the_level_and_no_more(second, kurtosis, level):
    c = float(robust_critical_value(second, kurtosis=kurtosis, level=level))
    assert worst_noncoverage(second, kurtosis, c) == pytest.approx(1 - level, abs=2e-6)


def test_limits_of_the_critical_value():
    assert float(robust_critical_value(0.0)) == pytest.approx(stats.norm.ppf(0.975), abs=1e-6)
    # b of constant square (kurtosis 1) is a plain normal at distance 1
    alone = optimize.brentq(lambda c: special.ndtr(-c - 1) + special.ndtr(1 - c) - 0.05, 1, 5)
    assert float(robust_critical_value(1.0, kurtosis=1)) == pytest.approx(alone, abs=1e-5)
    # a bias far above the noise: Chebyshev's inequality on it alone
    assert float(robust_critical_value(1e8)) == pytest.approx(np.sqrt(1e8 / 0.05), rel=1e-3)


@settings(max_examples=8, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1.0, 30.0))
def test_more_bias_and_more_tail_never_narrow(second, kurtosis):
    base, wider = robust_critical_value(np.array([second, 1.1 * second]), kurtosis=kurtosis)
    (tail,) = robust_critical_value(np.array([second]), kurtosis=2 * kurtosis)
    assert wider >= base - 1e-6
    assert tail >= base - 1e-5


def test_the_table_agrees_with_single_values():
    second = np.exp(np.random.default_rng(0).uniform(-8, 6, 1000))
    table = robust_critical_value(second, kurtosis=4)
    single = robust_critical_value(second[:200], kurtosis=4)
    np.testing.assert_allclose(table[:200], single, rtol=2e-4)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"kurtosis must be at least 1, got 0\.5"):
        robust_critical_value(1.0, kurtosis=0.5)
    with pytest.raises(ValueError, match="second_moment must be finite numbers"):
        robust_critical_value(np.inf)
