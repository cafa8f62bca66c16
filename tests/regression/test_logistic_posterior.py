"""The integral over one group's theta, against SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from fedprior.regression.logistic import posterior
from fedprior.regression.logistic.laws import terms_at, weighed
from fedprior.regression.logistic.parts import across, along, parts_of
from fedprior.regression.logistic.posterior import (
    laplace_posterior,
    propagated_posterior,
    variational_posterior,
)
from fedprior.regression.logistic.quadrature import by_points
from fedprior.regression.logistic.sigmoid import averaged, averaged_softplus, tilted
from fedprior.regression.rows import GroupedRows

SOLVES = {
    "laplace": laplace_posterior,
    "variational": variational_posterior,
    "propagate": propagated_posterior,
    "quadrature": by_points(propagated_posterior),
}


def one_group(size=12, scale=2.0, shift=0.3, seed=0, width=1):
    """A part of one group, its design x scale and a constant offset."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(size, width))
    y = (draws.random(size) < special.expit(1.5 * x.sum(axis=1) + shift)).astype(float)
    part = parts_of(GroupedRows.of(x, y, np.zeros(size, int), 1), 2)[0]
    return part, part.x * scale, np.full(part.y.shape, shift)


def integrals(part, design, offset):
    """log p(y), mean and variance of z by SciPy, one coefficient."""

    def density(z, power=0):
        odds = design[0, :, 0, 0] * z + offset[0, :, 0]
        sign = 2 * part.y[0, :, 0] - 1
        return z**power * np.prod(special.expit(sign * odds)) * stats.norm.pdf(z)

    zero, one, two = (integrate.quad(density, -12, 12, args=(k,))[0] for k in (0, 1, 2))
    return np.log(zero), one / zero, two / zero - (one / zero) ** 2


@settings(max_examples=20, deadline=None)
@given(st.floats(-8, 8), st.floats(0, 30))
def test_the_averaged_logistic_function_is_the_integral(a, variance):
    t = np.linspace(-10, 10, 20_001)
    density = stats.norm.pdf(t) * (t[1] - t[0])  # the trapezoid rule is exact on such functions

    def mean(function):
        return density @ function(a + np.sqrt(variance) * t)

    at, v = np.array([a]), np.array([variance])
    found = averaged(at, v)
    assert found.value[0] == pytest.approx(mean(special.expit), abs=3e-7)
    slope = mean(lambda u: special.expit(u) * special.expit(-u))
    assert found.slope[0] == pytest.approx(slope, abs=1e-6)
    softplus = mean(lambda u: np.logaddexp(0, u))
    assert averaged_softplus(at, v)[0] == pytest.approx(softplus, abs=3e-6)


def test_its_logarithm_holds_far_out():
    a = np.array([-400.0, -25.0, 0.0, 25.0])
    found = tilted(a, np.full(4, 1e-12))
    np.testing.assert_allclose(found.log, -np.logaddexp(0, -a), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(found.pull, special.expit(-a), rtol=3e-3, atol=1e-9)
    assert (found.weight >= 0).all()
    assert np.isfinite(tilted(a, np.full(4, 50.0)).log).all()


@pytest.mark.parametrize("size", [1, 5, 30])
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_quadrature_is_the_integral(size, scale):
    part, design, offset = one_group(size, scale)
    evidence, mean, variance = integrals(part, design, offset)
    found, _ = by_points(propagated_posterior)(part, design, offset, None, 50)
    assert found.evidence[0] == pytest.approx(evidence, abs=2e-5)
    assert found.mean[0, 0] == pytest.approx(mean, abs=1e-4)
    assert found.spread[0, 0, 0] == pytest.approx(variance, abs=3e-4)


def test_the_approximations_err_in_their_order():
    """Laplace errs most, propagation least; a variational bound lies below the evidence."""
    part, design, offset = one_group()
    evidence, mean, _ = integrals(part, design, offset)
    found = {name: solve(part, design, offset, None, 60)[0] for name, solve in SOLVES.items()}
    error = {name: abs(each.mean[0, 0] - mean) for name, each in found.items()}
    assert error["quadrature"] < error["propagate"] < error["laplace"] / 10
    assert error["variational"] < error["laplace"] / 5
    assert found["variational"].evidence[0] < evidence
    for name in ("variational", "propagate"):
        gap = abs(found[name].evidence[0] - evidence)
        assert gap < abs(found["laplace"].evidence[0] - evidence)


@pytest.mark.parametrize("name", ["laplace", "variational", "propagate"])
def test_pull_and_weights_belong_to_the_posterior(name):
    """design' pull = mean, inverse(spread) = I + design' weigh(design)."""
    part, design, offset = one_group(size=9, scale=1.5, width=4)
    found, _ = SOLVES[name](part, design, offset, None, 200)
    np.testing.assert_allclose(along(design, found.pull), found.mean, atol=1e-5)
    precision = np.eye(4) + across(design, found.weigh(design))
    np.testing.assert_allclose(np.linalg.inv(found.spread), precision, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["variational", "propagate", "quadrature"])
def test_pull_is_the_slope_of_the_evidence(name):
    """By finite differences in the offset of one row."""
    part, design, offset = one_group(size=7, scale=1.2, width=2)
    found, _ = SOLVES[name](part, design, offset, None, 200)
    for row in range(3):
        sides = []
        for move in (1e-3, -1e-3):
            other = offset.copy()
            other[0, row, 0] += move
            sides.append(SOLVES[name](part, design, other, None, 200)[0].evidence[0])
        # the nodes of a product rule move with the offset, which costs the last digits
        wanted = pytest.approx((sides[0] - sides[1]) / 2e-3, abs=2e-4)
        assert found.pull[0, row, 0] == wanted


def test_a_separated_group_has_a_finite_posterior():
    part, design, offset = one_group(size=20, scale=5.0)
    part = part._replace(y=np.ones_like(part.y))
    for name, solve in SOLVES.items():
        found, _ = solve(part, design, offset, None, 100)
        assert np.isfinite(found.evidence).all(), name
        assert np.abs(found.mean).max() < 10, name


def test_softmax_terms_are_scipys():
    draws = np.random.default_rng(2)
    odds = 30 * draws.normal(size=(2, 5, 3))
    y = np.zeros_like(odds)
    y[:, :3, 1] = 1
    found = terms_at(odds, y)
    whole = np.concatenate([np.zeros((2, 5, 1)), odds], axis=-1)
    logs = special.log_softmax(whole, axis=-1)
    wanted = logs[:, :3, 2].sum(axis=1) + logs[:, 3:, 0].sum(axis=1)
    np.testing.assert_allclose(found.log_likelihood, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.expected, np.exp(logs)[..., 1:], atol=1e-12)
    p = found.expected[0, 0]
    columns = draws.normal(size=(2, 5, 3, 4))
    wanted = (np.diag(p) - np.outer(p, p)) @ columns[0, 0]
    np.testing.assert_allclose(weighed(found.expected, columns)[0, 0], wanted, atol=1e-12)


def test_softmax_quadrature_is_the_integral():
    """Three classes, one feature: two coefficients, against the trapezoid rule."""
    draws = np.random.default_rng(4)
    x = draws.normal(size=(6, 1))
    rows = GroupedRows.of(x, np.array([0.0, 1, 2, 2, 1, 2]), np.zeros(6, int), 1)
    part = parts_of(rows, 3)[0]
    design, offset = 1.5 * part.x, np.full(part.y.shape, 0.2)

    line = np.linspace(-7, 7, 101)
    z = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    odds = (design[0] @ z.T).transpose(2, 0, 1) + offset
    log_likelihood = terms_at(odds, part.y).log_likelihood
    density = np.exp(log_likelihood + stats.norm.logpdf(z).sum(axis=1))
    evidence = np.log(density.sum() * (line[1] - line[0]) ** 2)
    found, _ = by_points(laplace_posterior)(part, design, offset, None, 50)
    assert found.evidence[0] == pytest.approx(evidence, abs=2e-3)


def softmax_groups(scale, *, num_groups=30, size=8, num_classes=3, width=2):
    """A part of groups of `num_classes` classes, and its design x scale."""
    draws = np.random.default_rng(4)
    place = np.repeat(np.arange(num_groups), size)
    x = draws.normal(size=(len(place), width))
    theta = scale * draws.normal(size=(num_groups, num_classes - 1, width))
    odds = np.einsum("rd,rcd->rc", x, theta[place])
    odds = np.column_stack([np.zeros(len(place)), odds])
    y = (odds + draws.gumbel(size=odds.shape)).argmax(axis=1)
    part = parts_of(GroupedRows.of(x, y.astype(float), place, num_groups), num_classes)[0]
    return part, part.x * scale, np.zeros(part.y.shape)


def test_free_points_add_no_slope_where_a_variance_is_small():
    """(E z^2 - 1) / variance, twice the slope of the evidence by it, has a limit at variance 0.

    Moments of the points themselves have errors of 0.05 at any variance, and no limit.
    """
    part, design, offset = softmax_groups(1.0)
    slopes = []
    for scale in (1e-1, 1e-2, 1e-3):
        small = design * np.array([1.0, 1.0, 1.0, scale])
        found, _ = by_points(laplace_posterior)(part, small, offset, None, 50)
        slopes.append((found.mean[:, 3] ** 2 + found.spread[:, 3, 3] - 1) / scale**2)
    np.testing.assert_allclose(slopes[1], slopes[2], rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(slopes[0], slopes[2], rtol=0.2, atol=0.5)


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_free_points_give_a_spread_between_nothing_and_the_priors(scale):
    for part, design, offset in (
        softmax_groups(scale),
        softmax_groups(scale, num_classes=6, width=4),
    ):
        found, _ = by_points(laplace_posterior)(part, design, offset, None, 50)
        values = np.linalg.eigvalsh(found.spread)
        assert values.min() > 0
        assert values.max() < 1 + 1e-9
        assert np.isfinite(found.mean).all()


@pytest.mark.parametrize(("size", "width"), [(3, 7), (7, 7), (12, 4)])
def test_sites_are_conditioned_on_alike_by_rows_and_by_columns(size, width):
    """The precision is I + X'WX, whichever of n and D is smaller."""
    draws = np.random.default_rng(size)
    columns = draws.normal(size=(5, size, width))
    weight, lean = draws.random((5, size)), draws.normal(size=(5, size))
    precision = np.eye(width) + columns.transpose(0, 2, 1) @ (weight[..., None] * columns)
    spread = np.linalg.inv(precision)
    mean = (spread @ (columns.transpose(0, 2, 1) @ lean[..., None]))[..., 0]
    for condition in (posterior._by_rows(columns), posterior._by_columns(columns)):
        found = condition(weight, lean)
        np.testing.assert_allclose(found.mean, mean, atol=1e-12)
        np.testing.assert_allclose(found.spread(), spread, atol=1e-12)
        np.testing.assert_allclose(found.odds, (columns @ mean[..., None])[..., 0], atol=1e-12)
        variance = np.einsum("gna,gab,gnb->gn", columns, spread, columns)
        np.testing.assert_allclose(found.variance, variance, atol=1e-12)
        np.testing.assert_allclose(found.log_spread, -np.linalg.slogdet(precision)[1], atol=1e-12)
