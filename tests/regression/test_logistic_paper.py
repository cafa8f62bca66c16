"""Algorithm 3, its signs set right (ERRATA 34 to 37)."""

import numpy as np
import pytest
from scipy import special

from fedprior.regression.logistic import fit_logistic, pooled_logistic
from fedprior.regression.logistic.laws import terms_at
from fedprior.regression.logistic.parts import along, parts_of
from fedprior.regression.logistic.posterior import laplace_posterior, odds_of
from fedprior.regression.paper.logistic import descend_logistic
from fedprior.regression.rows import GroupedRows


def rows_of(groups=200, size=8, scale=0.5, seed=0):
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(groups), size)
    x = draws.normal(size=(groups * size, 2))
    theta = np.array([0.5, -1.0]) + scale * draws.normal(size=(groups, 2))
    y = draws.random(len(place)) < special.expit((x * theta[place]).sum(axis=1))
    return GroupedRows.of(x, y.astype(float), place, groups)


def test_with_a_floor_of_one_theta_is_the_mode():
    """The variance held at its start and many steps: each theta_i minimizes the penalized loss."""
    rows = rows_of(groups=20)
    parts = parts_of(rows, 2)
    found = descend_logistic(
        parts, np.zeros(2), 0.7, num_groups=20, steps=2000, rate=0.5, floor=1.0
    )
    assert found.at_floor
    mode, _ = laplace_posterior(
        parts[0],
        parts[0].x * np.sqrt(0.7),
        odds_of(parts[0].x, np.tile(found.mean, (20, 1))),
        None,
        50,
    )
    np.testing.assert_allclose(found.theta, found.mean + np.sqrt(0.7) * mode.mean, atol=1e-6)
    np.testing.assert_allclose(found.theta.mean(axis=0), found.mean, atol=1e-6)


def test_the_joint_mode_collapses_and_says_so():
    """True variance 0.25: the default finds it, the joint mode sits on its floor (ERRATA 37)."""
    rows = rows_of(groups=400)
    found = fit_logistic(rows, method="paper", max_rounds=400)
    assert any("Floor active" in note for note in found.notes)
    assert found.population.covariance[0, 0] < 0.001
    assert found.log_likelihood is None
    pooled = pooled_logistic(rows).coefficients
    np.testing.assert_allclose(found.theta, np.tile(pooled, (400, 1)), atol=0.05)
    default = fit_logistic(rows).population
    assert abs(default.covariance[0, 0] - 0.25) < 4.9 * default.covariance_errors[0, 0]


def test_the_printed_sign_diverges():
    """theta - rate (grad + (mean - theta) / variance): away from the mean, without end (35)."""
    rows = rows_of(groups=10, size=3)
    part = parts_of(rows, 2)[0]
    steps = {}
    for sign in (1, -1):
        theta = np.zeros((10, 2))
        for _ in range(300):
            pull = along(part.x, terms_at(odds_of(part.x, theta), part.y).pull)
            theta = theta + 0.01 * (pull - sign * (theta - 0.1) / 0.25)
        steps[sign] = np.abs(theta).max()
    assert steps[1] < 1
    assert steps[-1] > 1e3


def test_softmax_descends_too():
    rows = rows_of(groups=30)
    three = GroupedRows(
        x=rows.x, fixed=rows.fixed, y=np.arange(rows.num_rows) % 3.0, start=rows.start
    )
    found = fit_logistic(three, num_classes=3, method="paper", max_rounds=50)
    assert found.theta.shape == (30, 4)
    assert found.rounds == 50


def test_bad_input():
    rows = rows_of(groups=5)
    with pytest.raises(ValueError, match=r"floor must be in \(0, 1\]"):
        fit_logistic(rows, method="paper", floor=0.0)
    with pytest.raises(ValueError, match=r"rate must be in \(0, 1\]"):
        fit_logistic(rows, method="paper", rate=2.0)
