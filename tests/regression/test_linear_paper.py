"""Algorithm 2 with floors: it runs, collapses where ERRATA 31 says, and says so."""

import numpy as np
import pytest

from fedprior.experiments.linear import draw
from fedprior.regression.linear import fit_linear, pooled_linear
from fedprior.regression.rows import GroupedRows


def test_the_papers_setting_collapses_to_the_pooled_fit_and_says_so():
    rows, theta, truth = draw(0, 400, 10, 50)
    pooled = pooled_linear(rows)[0]
    for start in (None, truth):
        fit = fit_linear(rows, method="paper", start=start)
        begin = 1e-3 * (start or truth).covariance[0, 0]
        assert fit.population.covariance[0, 0] == pytest.approx(begin, rel=2)
        assert len(fit.notes) == 1
        assert "floor of the spread is active" in fit.notes[0]
        apart = np.mean((fit.theta - fit.population.mean) ** 2)
        assert apart < 1e-3 * truth.covariance[0, 0]
        assert np.isfinite(fit.theta).all()
    error = np.mean(((fit.theta - theta) ** 2).sum(axis=1))
    assert error == pytest.approx(np.mean(((pooled - theta) ** 2).sum(axis=1)), rel=0.05)


def test_a_large_spread_is_a_stationary_point_and_too_small():
    """sigma^2 = (V - 2s + sqrt(V^2 - 4Vs)) / 2 with s = noise / n (ERRATA 31), here with X = 1.

    The joint noise is the mean square about theta, which makes a fixed point of both; V and s are
    set by the data exactly.
    """
    draws = np.random.default_rng(0)
    m, n = 200, 10
    level, noise = draws.normal(size=(m, 1)), draws.normal(size=(m, n))
    level = (level - level.mean()) / level.std()  # variance of group means, V = 1
    noise -= noise.mean(axis=1, keepdims=True)
    noise *= 0.5 / np.sqrt((noise**2).mean())
    rows = GroupedRows.of(
        np.ones((m * n, 1)), (level + noise).ravel(), np.repeat(np.arange(m), n), m
    )
    fit = fit_linear(rows, method="paper", max_rounds=2000)
    spread, found = fit.population.covariance[0, 0], fit.population.noise_variance
    s = found / n
    assert fit.notes == ()
    assert spread == pytest.approx((1 - 2 * s + np.sqrt(1 - 4 * s)) / 2, rel=1e-6)
    assert spread < fit_linear(rows).population.covariance[0, 0]
    assert found == pytest.approx(np.mean((rows.y - fit.theta[rows.place, 0]) ** 2), rel=1e-6)


def test_the_floor_of_the_noise():
    """Started from almost no noise, with n < d, every theta interpolates."""
    rows, _, truth = draw(1, 60, 4, 12)
    start = type(truth)(
        kind="gaussian",
        mean=truth.mean,
        covariance=np.eye(12),
        components=(),
        fixed=truth.fixed,
        noise_variance=1e-4,
    )
    fit = fit_linear(rows, method="paper", start=start, floor=0.5)
    assert any("floor of the noise is active" in note for note in fit.notes)


def test_groups_without_rows_take_the_mean():
    rows, _, _ = draw(2, 50, 6, 3)
    keep = rows.place != 7
    fit = fit_linear(rows.subset(keep), method="paper")
    assert np.array_equal(fit.theta[7], fit.population.mean)
    assert "1 groups without rows have the population's mean." in fit.notes
