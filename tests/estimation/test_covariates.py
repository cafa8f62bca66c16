"""Means whose population is a regression on covariates, against dense linear algebra."""

import numpy as np
import pytest
from scipy import optimize

from fedprior.estimation import Covariates, Means, estimate_means
from fedprior.estimation.gaussian.bins import bins_of
from fedprior.estimation.gaussian.fit import common_law, law_of, restricted_maximum
from fedprior.estimation.gaussian.nodes import integrated
from fedprior.estimation.gaussian.posterior import apply_rule, mean_rule, mixture_of, spread_about


def draws(num_groups, *, seed=0, slopes=(1.0, -0.5), spread=0.3, noise=1.0, dimension=None):
    """Groups of 2 to 9 rows about a regression on two covariates, and theta."""
    random = np.random.default_rng([seed, num_groups])
    z = np.stack([random.normal(40, 10, num_groups), random.normal(0, 0.01, num_groups)], axis=1)
    shape = (num_groups,) if dimension is None else (num_groups, dimension)
    standard = (z - [40, 0]) / [10, 0.01]
    location = (standard @ np.array(slopes)).reshape(num_groups, *[1] * (len(shape) - 1))
    theta = 3 + location + spread * random.normal(size=shape)
    n = random.integers(2, 10, num_groups)
    wide = n.reshape(num_groups, *[1] * (len(shape) - 1))
    mean = theta + np.sqrt(noise / wide) * random.normal(size=shape)
    within = noise * random.chisquare((n - 1) * (dimension or 1))
    covariates = Covariates(names=("latitude", "size"), values=z)
    return Means(n=n, mean=mean, within=within), covariates, theta


def dense(statistics, covariates, ratio, noise):
    """-2 log L at its pieces, coefficients and covariance, by whole matrices."""
    x = np.column_stack([np.ones(len(covariates.values)), covariates.values])
    total = noise * (1 / statistics.n + ratio)
    normal = x.T @ (x / total[:, None])
    covariance = np.linalg.inv(normal)
    coefficients = covariance @ (x.T @ (statistics.mean / total))
    squares = ((statistics.mean - x @ coefficients) ** 2 / total).sum()
    twice = np.log(total).sum() + np.linalg.slogdet(normal)[1] + squares
    freedom = (statistics.n - 1).sum()
    return twice + freedom * np.log(noise) + statistics.within.sum() / noise, coefficients, x


def test_the_fit_is_the_restricted_maximum_of_the_dense_model():
    statistics, covariates, _ = draws(150)
    found = estimate_means(statistics, covariates=covariates).population
    best = optimize.minimize(
        lambda logs: dense(statistics, covariates, *np.exp(logs))[0],
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9},
    )
    ratio, noise = np.exp(best.x)
    assert found.parameters["noise_variance"] == pytest.approx(noise, rel=1e-4)
    assert found.parameters["variance"] == pytest.approx(ratio * noise, rel=1e-3)
    coefficients = dense(statistics, covariates, ratio, noise)[1]
    np.testing.assert_allclose(found.coefficients.values, coefficients, rtol=1e-4)
    assert found.coefficients.names == ("intercept", "latitude", "size")
    assert 0.8 < found.coefficients.r_squared < 1


@pytest.mark.parametrize("num_groups", [12, 200])
def test_known_variances_give_the_posterior_of_the_dense_model(num_groups):
    """A flat prior on the coefficients, theta given data jointly normal; one group has no rows."""
    statistics, covariates, _ = draws(num_groups)
    n = statistics.n.copy()
    n[3] = 0
    mean = np.where(n > 0, statistics.mean, np.nan)
    found = estimate_means(
        Means(n=n, mean=mean), covariates=covariates, theta_variance=0.09, noise_variance=1.0
    )
    x = np.column_stack([np.ones(num_groups), covariates.values])
    some = n > 0
    total = 0.09 + 1 / n[some]
    covariance = np.linalg.inv(x[some].T @ (x[some] / total[:, None]))
    location = x @ (covariance @ (x[some].T @ (mean[some] / total)))
    shrinkage = np.where(some, 1 / np.maximum(n, 1), 1.0)
    shrinkage[some] /= total
    personal = np.where(some, mean - shrinkage * (mean - location), location)
    error = np.einsum("ip,pq,iq->i", x, covariance, x)
    scale = np.sqrt(0.09 * shrinkage + shrinkage**2 * error)
    np.testing.assert_allclose(found.personal, personal, rtol=1e-9)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-7)
    assert found.weight[3] == 0
    assert np.isnan(found.raw[3])
    assert found.upper[3] - found.lower[3] > 2 * 1.9 * 0.3


def test_covariates_that_are_functions_of_size_are_columns_of_the_bins():
    """The same model in two ways: sums over groups within bins, and one row for each bin."""
    statistics, _, _ = draws(40)
    grown = np.log(statistics.n)[:, None]
    with_rows = bins_of(statistics, covariates=Covariates(names=("log n",), values=grown))
    bare = bins_of(statistics)
    z = with_rows.covariates
    value = (-np.log(bare.unit) - z.middle[0]) / z.scale[0]
    columns = np.column_stack([np.ones(bare.num_bins + 1), np.append(value, 0.0)])
    answers = []
    raw = statistics.mean[:, None]
    for bins, law in (
        (with_rows, common_law(with_rows)),
        (bare, law_of(bare, columns, np.ones(bare.num_bins + 1))),
    ):
        nodes = integrated(bins, law)
        rule = mean_rule(nodes)
        rows = apply_rule(bins, law, raw, rule, spread_about(nodes, rule), score=1.96)
        mixture = mixture_of(bins, law, nodes, raw)
        best = restricted_maximum(bins, law).ratio
        answers.append((best, rows.personal, rows.scale, mixture.quantile(0.975)))
        spread = np.tensordot(nodes.probability, mixture.location**2, axes=1)
        spread -= np.tensordot(nodes.probability, mixture.location, axes=1) ** 2
        own = np.tensordot(nodes.probability, mixture.scale**2, axes=1) * nodes.inflation
        np.testing.assert_allclose(rows.scale**2, spread + own, rtol=1e-7)
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("num_groups", [30, 300])
def test_units_of_covariates_do_not_matter(num_groups):
    statistics, covariates, _ = draws(num_groups)
    moved = Covariates(names=covariates.names, values=covariates.values * [1e-3, 1e5] + [1e6, -3])
    first, second = (estimate_means(statistics, covariates=each) for each in (covariates, moved))
    np.testing.assert_allclose(first.personal, second.personal, rtol=1e-5)
    slopes = [each.population.coefficients.values[1:] for each in (first, second)]
    np.testing.assert_allclose(slopes[0], slopes[1] * [1e-3, 1e5], rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"by_size": True},
        {"population": "nonparametric"},
        {"population": "point"},
        {"fit": "moments"},
        {"intervals": "robust"},
        {"above": 3.0, "ranks": True},
        {"theta_variance": 0.09},
    ],
)
@pytest.mark.parametrize("num_groups", [40, 150])
def test_covariates_help_with_every_option(num_groups, options):
    statistics, covariates, theta = draws(num_groups)
    found = estimate_means(statistics, covariates=covariates, **options)
    bare = estimate_means(statistics)
    error, before = (((each.personal - theta) ** 2).mean() for each in (found, bare))
    assert error < 0.9 * before
    inside = (found.lower <= theta) & (theta <= found.upper)
    assert inside.mean() > 0.85
    assert found.gain_over_pooled > 50


def test_values_of_several_coordinates_have_one_regression_each():
    statistics, covariates, _ = draws(60, dimension=2)
    found = estimate_means(statistics, covariates=covariates).population.coefficients
    assert found.values.shape == found.lower.shape == (3, 2)
    alone = [
        estimate_means(
            Means(n=statistics.n, mean=statistics.mean[:, j], within=statistics.within / 2),
            covariates=covariates,
        ).population.coefficients.values
        for j in range(2)
    ]
    np.testing.assert_allclose(found.values, np.stack(alone, axis=1), rtol=0.01)


@pytest.mark.parametrize(
    ("values", "names", "match"),
    [
        (np.ones((40, 1)), ("a",), r"covariate 'a' must be of more than one value, got 1.0"),
        (
            np.arange(40.0)[:, None] * [1, 2] + [0, 1],
            ("a", "b"),
            r"must be columns that do not determine one another, got \"'b'",
        ),
        (np.arange(39.0)[:, None], ("a",), r"covariates must be one row for each of the 40"),
        (np.full((40, 1), np.nan), ("a",), r"values must be finite, got \[nan\]. See group 1 of"),
        (np.ones((40, 2)), ("a",), r"values must be of shape \(groups, 1\), got \(40, 2\)"),
    ],
)
def test_covariates_that_say_nothing_are_refused(values, names, match):
    statistics, _, _ = draws(40)
    with pytest.raises(ValueError, match=match):
        estimate_means(statistics, covariates=Covariates(names=names, values=values))


def test_a_regression_takes_more_groups_than_covariates():
    statistics, covariates, _ = draws(3)
    with pytest.raises(ValueError, match=r"number of groups with data must be at least 4"):
        estimate_means(statistics, covariates=covariates)
    statistics, covariates, _ = draws(4)
    assert np.isfinite(estimate_means(statistics, covariates=covariates).upper).all()
