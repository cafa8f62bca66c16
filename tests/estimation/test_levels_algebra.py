"""Likelihoods and posteriors of several grouping factors against dense matrices."""

import numpy as np
import pytest
from scipy import optimize, special, stats

from fedprior.estimation.levels.cells import crossed_cells, nested_cells
from fedprior.estimation.levels.crossed import MOST, Crossed, kernel
from fedprior.estimation.levels.gaussian import GaussianProblem
from fedprior.estimation.levels.laplace import LaplaceProblem
from fedprior.estimation.levels.own import own_rates
from fedprior.estimation.levels.problem import LevelRows, Normal

DESIGNS = ["nested", "three levels", "crossed", "three crossed", "one factor", "mixed"]


def drawn(name, seed=0, rows=60):
    """Cells of an unbalanced random design, and the cell of each row."""
    draws = np.random.default_rng([seed, DESIGNS.index(name)])
    first, second, third = (draws.integers(0, size, rows) for size in (4, 6, 9))
    if name == "one factor":
        return nested_cells(("a",), [compact(second)])
    if name in ("nested", "three levels"):
        columns = [first, second, third][: 2 + (name == "three levels")]
        return nested_cells(tuple("abc"[: len(columns)]), [compact(each) for each in columns])
    if name == "mixed":  # the third lies in the second, and both cross the first
        second = third // 2
    columns = [first, second, third][: 2 + (name != "crossed")]
    return crossed_cells(tuple("abc"[: len(columns)]), [compact(each) for each in columns])


def compact(column):
    return np.unique(column, return_inverse=True)[1]


def problem(name, family="gaussian", seed=0, **options):
    cells, cell = drawn(name, seed)
    draws = np.random.default_rng([seed, 7])
    rows = len(cell)
    x = np.column_stack([np.ones(rows), draws.normal(size=(rows, 2))])
    y, size, more = draws.normal(size=rows), np.ones(rows), {"num_rows": rows}
    if family == "binomial":
        size = draws.integers(1, 9, rows).astype(float)
        y = draws.binomial(size.astype(int), 0.4).astype(float)
    elif family == "poisson":
        size = draws.uniform(0.5, 4, rows)
        y = draws.poisson(1.5 * size).astype(float)
    if options.pop("known", False):
        size, more = draws.uniform(0.5, 4, rows), {"num_rows": rows, "known": True}
    found = LevelRows(cells=cells, cell=cell, x=x, y=y, size=size, family=family, **more)
    algebra = kernel("test", cells)
    if family == "gaussian":
        return GaussianProblem(rows=found, kernel=algebra, **options)
    return LaplaceProblem(rows=found, kernel=algebra)


def indicators(rows):
    """Z of each factor, (rows, levels)."""
    return [
        np.eye(size)[place[rows.cell]]
        for place, size in zip(rows.cells.places, rows.cells.sizes, strict=True)
    ]


def ratios_of(rows, seed=0):
    return np.random.default_rng([seed, 3]).uniform(0.2, 2, len(rows.cells.sizes))


def dense_gaussian(rows, ratios, restricted):
    """-2 log likelihood by the covariance of all rows."""
    total = np.diag(1 / rows.size)
    total = total + sum(r * z @ z.T for r, z in zip(ratios, indicators(rows), strict=True))
    inverse = np.linalg.inv(total)
    normal = rows.x.T @ inverse @ rows.x
    beta = np.linalg.solve(normal, rows.x.T @ inverse @ rows.y)
    left = rows.y - rows.x @ beta
    freedom = len(rows.y) - restricted * rows.num_fixed
    noise = 1.0 if rows.known else left @ inverse @ left / freedom
    twice = np.linalg.slogdet(total)[1] + left @ inverse @ left / noise
    twice += freedom * np.log(2 * np.pi * noise)
    return twice + restricted * np.linalg.slogdet(normal)[1], beta, noise, normal


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_the_likelihood_is_that_of_the_dense_covariance(name, restricted, known):
    model = problem(name, restricted=restricted, known=known)
    ratios = ratios_of(model.rows)
    twice, slope = model.objective(np.sqrt(ratios))
    assert twice == pytest.approx(dense_gaussian(model.rows, ratios, restricted)[0], abs=1e-8)
    numeric = optimize.approx_fprime(np.sqrt(ratios), lambda each: model.objective(each)[0], 1e-6)
    np.testing.assert_allclose(slope, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_factor_without_variance_is_as_if_it_were_not_there(name):
    model = problem(name)
    ratios = ratios_of(model.rows)
    ratios[0] = 0.0
    assert model.objective(np.sqrt(ratios))[0] == pytest.approx(
        dense_gaussian(model.rows, ratios, True)[0], abs=1e-8
    )
    assert np.isfinite(model.information(0 * ratios)).all()


@pytest.mark.parametrize("name", DESIGNS)
def test_values_are_the_best_linear_unbiased_predictions(name):
    """Of cells and levels, with the variance of their errors; the mean row is (1, 0, 0)."""
    model = problem(name)
    rows, ratios = model.rows, ratios_of(model.rows)
    state = model.state(ratios)
    _, beta, noise, _ = dense_gaussian(rows, ratios, True)
    z = np.hstack(indicators(rows))
    prior = np.diag(1 / np.repeat(ratios, rows.cells.sizes))
    system = np.block([[rows.x.T @ rows.x, rows.x.T @ z], [z.T @ rows.x, z.T @ z + prior]])
    inverse = np.linalg.inv(system)
    solution = inverse @ np.concatenate([rows.x.T @ rows.y, z.T @ rows.y])
    np.testing.assert_allclose(state.beta, beta, atol=1e-9)
    assert state.noise == pytest.approx(noise)

    def expected(chosen):
        row = np.concatenate([[1.0, 0.0, 0.0], chosen])
        return row @ solution, noise * row @ inverse @ row

    starts = np.concatenate([[0], np.cumsum(rows.cells.sizes)])
    places = np.array(rows.cells.places)
    for cell in range(rows.cells.number):
        chosen = np.zeros(starts[-1])
        chosen[starts[:-1] + places[:, cell]] = 1
        found = state.cells.location[cell], state.cells.variance[cell]
        np.testing.assert_allclose(found, expected(chosen), atol=1e-9)
        for k in range(len(starts) - 1):
            above = range(k + 1) if rows.cells.nested else [k]
            chosen = np.zeros(starts[-1])
            chosen[[starts[j] + places[j, cell] for j in above]] = 1
            node = state.nodes[k]
            found = node.location[places[k, cell]], node.variance[places[k, cell]]
            np.testing.assert_allclose(found, expected(chosen), atol=1e-9)


def dense_laplace(rows, variances, beta):
    """-2 log of Laplace's approximation by a general optimizer over all effects."""
    z = np.hstack(indicators(rows)) * np.repeat(np.sqrt(variances), rows.cells.sizes)

    def terms(effects):
        predictor = rows.x @ beta + z @ effects
        if rows.family == "binomial":
            rate = special.expit(predictor)
            size = rows.size.astype(int)
            return stats.binom.logpmf(rows.y, size, rate).sum(), rows.size * rate * (1 - rate)
        mean = rows.size * np.exp(predictor)
        return stats.poisson.logpmf(rows.y, mean).sum(), mean

    found = optimize.minimize(
        lambda effects: effects @ effects / 2 - terms(effects)[0], np.zeros(z.shape[1]), tol=1e-10
    )
    value, weight = terms(found.x)
    curvature = np.eye(z.shape[1]) + z.T @ (weight[:, None] * z)
    return found.x @ found.x - 2 * value + np.linalg.slogdet(curvature)[1]


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_laplace_is_that_of_the_dense_curvature(name, family):
    model = problem(name, family)
    scales = np.sqrt(ratios_of(model.rows))
    at = np.concatenate([scales, [0.1, -0.2, 0.3]])
    twice, slope = model.objective(at)
    assert twice == pytest.approx(dense_laplace(model.rows, scales**2, at[-3:]), abs=1e-5)
    numeric = optimize.approx_fprime(at, lambda each: model.objective(each)[0], 1e-6)
    np.testing.assert_allclose(slope, numeric, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_a_chain_is_the_same_by_both_ways_of_elimination(family):
    model = problem("three levels", family)
    other = type(model)(rows=model.rows, kernel=Crossed.of("test", model.rows.cells))
    ratios = ratios_of(model.rows)
    assert model.density(ratios) == pytest.approx(other.density(ratios), abs=1e-7)
    np.testing.assert_allclose(model.information(ratios), other.information(ratios), rtol=1e-6)
    for one, two in zip(model.state(ratios).cells, other.state(ratios).cells, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-7)


def test_crossed_columns_that_nest_are_a_chain():
    inner = np.array([0, 1, 2, 3, 0, 1])
    cells, cell = crossed_cells(("inner", "outer"), [inner, inner // 2])
    assert cells.nested
    assert cells.names == ("outer", "inner")
    assert cells.places[1].tolist() == [0, 1, 2, 3]
    assert cell.tolist() == inner.tolist()
    assert not crossed_cells(("a", "b"), [inner, np.arange(6) % 5])[0].nested


def test_too_many_crossed_levels_are_refused():
    number = MOST + 1
    one, other = np.arange(number), np.roll(np.arange(number), 1)
    pairs = [np.append(one, one), np.append(one, other)]
    cells, _ = crossed_cells(("a", "b"), pairs)
    assert not cells.nested
    with pytest.raises(ValueError, match="at most 3,000 for all crossed factors but the largest"):
        kernel("test", cells)


@pytest.mark.parametrize(("family", "y", "size"), [("poisson", 0, 2.5), ("binomial", 1, 3.0)])
def test_the_rate_of_a_cell_is_integrated_with_its_own_likelihood(family, y, size):
    """Against a fine grid: p(y | eta) N(eta; rest), for a mixture of two laws of the rest."""
    cells, cell = nested_cells(("a",), [np.arange(2)])
    rows = LevelRows(
        cells=cells,
        cell=cell,
        x=np.ones((2, 1)),
        y=np.full(2, float(y)),
        size=np.full(2, size),
        family=family,
    )
    rest = [Normal(np.array([-0.5, 0.3]), np.array([0.8, 0.4])) for _ in range(2)]
    rest[1] = Normal(rest[1].location + 0.4, rest[1].variance * 2)
    chance = np.array([0.7, 0.3])
    found = own_rates(rows, rest, rest, chance, 0.9)
    grid = np.linspace(-12, 12, 200_001)
    inverse = np.exp if family == "poisson" else special.expit
    own = (
        stats.poisson.pmf(y, size * np.exp(grid))
        if family == "poisson"
        else stats.binom.pmf(y, int(size), special.expit(grid))
    )
    for place in range(2):
        density = np.zeros_like(grid)
        for weight, law in zip(chance, rest, strict=True):
            part = own * stats.norm.pdf(grid, law.location[place], np.sqrt(law.variance[place]))
            density += weight * part / part.sum()
        mean = density @ inverse(grid)
        spread = np.sqrt(density @ (inverse(grid) - mean) ** 2)
        ends = inverse(grid[np.searchsorted(np.cumsum(density), [0.05, 0.95])])
        np.testing.assert_allclose(
            [each[place] for each in found], [mean, spread, *ends], rtol=5e-3
        )
