"""Federated EM of linear regressions: its laws, and that it ends where the default does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.regression.linear import fit_linear
from fedprior.regression.linear.em import (
    LinearGamma,
    add_messages,
    expected,
    linear_messages,
    maximize_linear,
    sum_over_groups,
)
from fedprior.regression.result import RegressionPopulation
from fedprior.regression.rows import GroupedRows

COVARIANCES = ["isotropic", "diagonal", "full"]


def drawn(seed, groups=10, d=3, p=1, largest=6):
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(groups), draws.integers(0, largest, groups, endpoint=True))
    x = np.column_stack([np.ones(len(place)), draws.normal(size=(len(place), d - 1))])
    theta = draws.normal(1, 0.7, (groups, d))
    fixed = draws.normal(size=(len(place), p))
    y = (x * theta[place]).sum(axis=1) + fixed.sum(axis=1) + 0.5 * draws.normal(size=len(place))
    return GroupedRows.of(x, y, place, groups, fixed=fixed)


def somewhere(seed, d=3, p=1, covariance="full"):
    draws = np.random.default_rng(seed)
    root = draws.normal(size=(d, d))
    matrix = root @ root.T
    if covariance == "diagonal":
        matrix = np.diag(np.diag(matrix))
    if covariance == "isotropic":
        matrix = matrix[0, 0] * np.eye(d)
    return LinearGamma(
        draws.normal(size=d), matrix, draws.normal(size=p), float(np.exp(draws.normal()))
    )


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    covariance=st.sampled_from(COVARIANCES),
    d=st.integers(1, 4),
    largest=st.sampled_from([2, 8]),
)
def test_a_round_never_lowers_the_marginal_likelihood(seed, covariance, d, largest):
    rows = drawn(seed, d=d, largest=largest)
    gamma = somewhere(seed, d=d, covariance=covariance)
    levels = []
    for _ in range(6):
        sent = expected(rows, gamma, covariance=covariance)
        levels.append(float(sent.log_likelihood))
        gamma = maximize_linear(sent, gamma)
    assert (np.diff(levels) >= -1e-9 * np.abs(levels[:-1])).all()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_messages_add_and_each_is_of_one_group_only(covariance):
    rows = drawn(1)
    gamma = somewhere(2, covariance=covariance)
    whole = expected(rows, gamma, covariance=covariance)
    parts = []
    for group in range(rows.num_groups):
        alone = rows.subset(rows.place == group)
        parts += [
            sum_over_groups(linear_messages(block, gamma, covariance=covariance))
            for block in alone.blocks()
        ]
    together = parts[0]
    for part in parts[1:]:
        together = add_messages(together, part)
    for one, other in zip(whole, together, strict=True):
        assert np.allclose(one, other)
    assert together.num_groups == (rows.sizes > 0).sum()
    assert together.num_rows == rows.num_rows


def test_log_likelihood_and_statistics_are_those_of_the_posterior():
    """One group by plain algebra."""
    rows, gamma = drawn(3, groups=1, largest=6), somewhere(4)
    sent = expected(rows, gamma, covariance="full")
    noise, x = gamma.noise_variance, rows.x
    residual = rows.y - x @ gamma.mean - rows.fixed @ gamma.fixed
    sigma = np.linalg.inv(np.linalg.inv(gamma.covariance) + x.T @ x / noise)
    shift = sigma @ x.T @ residual / noise
    left = residual - x @ shift
    assert np.allclose(sent.shift, shift)
    assert np.allclose(sent.spread, sigma + np.outer(shift, shift))
    assert sent.squares == pytest.approx(left @ left + np.trace(x @ sigma @ x.T))
    assert np.allclose(sent.pull, rows.fixed.T @ left)
    total_variance = noise * np.eye(len(x)) + x @ gamma.covariance @ x.T
    wanted = len(x) * np.log(2 * np.pi) + np.linalg.slogdet(total_variance)[1]
    wanted += residual @ np.linalg.solve(total_variance, residual)
    assert sent.log_likelihood == pytest.approx(-wanted / 2)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_em_ends_at_the_maximum(covariance):
    rows = drawn(5, groups=60, largest=9)
    fit = fit_linear(rows, covariance=covariance)
    slow = fit_linear(rows, covariance=covariance, method="em", tolerance=1e-12, max_rounds=3000)
    assert slow.converged
    assert slow.log_likelihood == pytest.approx(fit.log_likelihood, abs=1e-5)
    assert np.allclose(slow.theta, fit.theta, atol=1e-3)
    assert np.allclose(slow.errors, fit.errors, atol=1e-3)
    assert (np.diff(slow.history) >= 0).all()
    assert len(slow.history) == slow.rounds


def test_em_says_when_it_did_not_settle():
    fit = fit_linear(drawn(6, groups=30), method="em", max_rounds=2)
    assert not fit.converged
    assert any("Raise max_rounds" in note for note in fit.notes)


def test_em_from_the_maximum_stays():
    rows = drawn(7, groups=60, largest=9)
    fit = fit_linear(rows, covariance="full")
    again = fit_linear(rows, covariance="full", method="em", start=fit.population, max_rounds=5)
    assert isinstance(again.population, RegressionPopulation)
    assert again.converged
    assert np.allclose(again.theta, fit.theta, atol=1e-4)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_units_of_fixed_features_do_not_matter(unit):
    """The step of the server."""
    rows = drawn(8, groups=40, p=2)
    other = replace(rows, fixed=rows.fixed * [1.0, unit])
    gamma = somewhere(9, p=2)
    there = gamma._replace(fixed=gamma.fixed / [1.0, unit])
    found = maximize_linear(expected(other, there, covariance="full"), there)
    wanted = maximize_linear(expected(rows, gamma, covariance="full"), gamma)
    np.testing.assert_allclose(found.fixed * [1.0, unit], wanted.fixed, rtol=1e-8)
    assert found.noise_variance == pytest.approx(wanted.noise_variance)


def test_a_year_beside_an_intercept():
    rows = drawn(10, groups=60, d=2, largest=9)
    year = replace(rows, fixed=2005 + 9 * rows.fixed)
    here, there = (fit_linear(each, method="em") for each in (rows, year))
    assert there.converged
    assert there.rounds == here.rounds
    np.testing.assert_allclose(9 * there.population.fixed, here.population.fixed, rtol=1e-6)
    np.testing.assert_allclose(
        9 * there.population.fixed_errors, here.population.fixed_errors, rtol=1e-6
    )
    middle = there.population.mean[0] + 2005 * there.population.fixed.sum()
    assert middle == pytest.approx(here.population.mean[0], abs=1e-6)
