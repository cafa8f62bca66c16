"""One logistic regression for all groups, and one for each."""

import numpy as np
import pytest
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from fedprior.regression.logistic import local_logistic, pooled_logistic
from fedprior.regression.rows import GroupedRows


def rows_of(num_classes=2, groups=30, size=20, seed=0, fixed=1):
    draws = np.random.default_rng(seed)
    count = groups * size
    x = np.column_stack([np.ones(count), draws.normal(size=count)])
    shared = draws.normal(size=(count, fixed))
    odds = np.column_stack(
        [x @ draws.normal(size=(2, num_classes)) + draws.gumbel(size=(count, num_classes))]
    )
    y = odds.argmax(axis=1).astype(float)
    return GroupedRows.of(x, y, np.repeat(np.arange(groups), size), groups, fixed=shared)


def test_pooled_is_the_maximum_of_the_likelihood():
    """Against SciPy's minimizer, and errors against the inverse of the information by hand."""
    rows = rows_of()
    columns = np.concatenate([rows.x, rows.fixed], axis=1)
    sign = 2 * rows.y - 1

    def loss(b):
        return np.logaddexp(0, -sign * (columns @ b)).sum()

    wanted = optimize.minimize(loss, np.zeros(3), method="BFGS", tol=1e-8).x
    found = pooled_logistic(rows)
    np.testing.assert_allclose(found.coefficients, wanted, atol=1e-5)
    p = special.expit(columns @ found.coefficients)
    information = (columns * (p * (1 - p))[:, None]).T @ columns
    np.testing.assert_allclose(
        found.errors, np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-6
    )


def test_pooled_softmax_is_scikit_learns():
    rows = rows_of(num_classes=3, fixed=0)
    peer = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=1000)
    peer.fit(rows.x, rows.y.astype(int))
    wanted = (peer.coef_[1:] - peer.coef_[0]).ravel()
    np.testing.assert_allclose(pooled_logistic(rows, num_classes=3).coefficients, wanted, atol=1e-4)


def test_separated_classes_are_held():
    x = np.column_stack([np.ones(40), np.linspace(-1, 1, 40)])
    rows = GroupedRows.of(x, (x[:, 1] > 0).astype(float), np.arange(40) % 4, 4)
    found = pooled_logistic(rows)
    assert np.isfinite(found.coefficients).all()
    assert 5 < found.coefficients[1] < 50


def test_local_is_each_groups_own_ridge_regression():
    rows = rows_of(groups=4, fixed=0)
    found = local_logistic(rows, ridge=0.5)
    for group in range(4):
        own = rows.place == group
        peer = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10, max_iter=1000)
        peer.fit(rows.x[own], rows.y[own].astype(int))
        np.testing.assert_allclose(found[group], peer.coef_[0], atol=1e-5)


def test_local_survives_separation_and_empty_groups():
    x = np.column_stack([np.ones(12), np.linspace(-1, 1, 12)])
    y = np.array([1.0] * 6 + [0, 1] * 3)
    rows = GroupedRows.of(x, y, np.repeat([0, 2], 6), 3)
    found = local_logistic(rows)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 30
    np.testing.assert_array_equal(found[1], 0)
    with pytest.raises(ValueError, match="ridge must be a positive number"):
        local_logistic(rows, ridge=0.0)


def test_local_takes_the_pooled_fixed_coefficients():
    rows = rows_of(groups=3, size=60)
    beta = pooled_logistic(rows).coefficients[2:]
    found = local_logistic(rows)
    own = rows.place == 1
    sign = 2 * rows.y[own] - 1

    def loss(theta):
        odds = rows.x[own] @ theta + rows.fixed[own] @ beta
        return np.logaddexp(0, -sign * odds).sum() + 0.005 * theta @ theta

    wanted = optimize.minimize(loss, np.zeros(2), method="BFGS", tol=1e-9).x
    np.testing.assert_allclose(found[1], wanted, atol=1e-5)
