"""Means whose population is a regression on covariates, against dense linear algebra."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from fedprior.estimation import Covariates, GroupMeans, GroupMixture, Means, estimate_means
from fedprior.estimation.gaussian.bins import bins_of
from fedprior.estimation.gaussian.coefficients import coefficients_of
from fedprior.estimation.gaussian.fit import common_law, law_of, restricted_maximum
from fedprior.estimation.gaussian.nodes import integrated
from fedprior.estimation.gaussian.posterior import apply_rule, mean_rule, mixture_of, spread_about
from fedprior.regression import PersonalRegression


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


def rows(num_groups=30, *, seed=1, noise=0.5):
    """Rows of shops in two regions, whose sales grow with their size."""
    random = np.random.default_rng(seed)
    label = np.repeat([f"shop{number:02d}" for number in range(num_groups)], 4)
    size = np.repeat(random.uniform(10, 50, num_groups), 4)
    region = np.repeat(np.where(np.arange(num_groups) % 3 == 0, "south", "north"), 4)
    theta = 1 + 0.1 * size + np.where(region == "south", -2.0, 0.0)
    theta = theta + np.repeat(0.2 * random.normal(size=num_groups), 4)
    return theta + noise * random.normal(size=len(label)), label, size, region


def test_words_become_indicators_and_frames_are_read_by_name():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    y, label, size, region = rows()
    columns = {"size": size, "region": region}
    models = [
        GroupMeans().fit(y, label, covariates=each)
        for each in (columns, pandas.DataFrame(columns), polars.DataFrame(columns))
    ]
    for model in models:
        found = model.population_.coefficients
        assert found.names == ("intercept", "size", "region=south")
        np.testing.assert_allclose(found.values, [1, 0.1, -2], atol=0.6)
        assert (found.lower < found.values).all()
        assert (found.values < found.upper).all()
        np.testing.assert_array_equal(model.personal_, models[0].personal_)
    array = GroupMeans().fit(y, label, covariates=size).population_.coefficients
    assert array.names == ("intercept", "covariate_0")
    series = GroupMeans().fit(y, label, covariates=pandas.Series(size, name="size"))
    assert series.population_.coefficients.names == ("intercept", "size")


@pytest.mark.parametrize("with_errors", [False, True])
def test_groups_without_a_value_are_predicted_in_the_table_and_as_unseen_ones(with_errors):
    y, label, size, region = rows()
    columns = {"size": size, "region": region}
    gone = np.isin(label, ["shop03", "shop17"])
    errors = np.full(len(y), 0.5) if with_errors else None
    table = GroupMeans().fit(
        np.where(gone, np.nan, y), label, covariates=columns, standard_errors=errors
    )
    assert (table.num_dropped_, len(table.groups_)) == (8, 30)
    assert table.n_[[3, 17]].tolist() == [0, 0]
    assert np.isnan(table.raw_[[3, 17]]).all()
    kept = {name: each[~gone] for name, each in columns.items()}
    less = GroupMeans().fit(
        y[~gone],
        label[~gone],
        covariates=kept,
        standard_errors=None if errors is None else errors[~gone],
    )
    asked = {"size": [size[12], 20.0, size[68]], "region": [region[12], "north", region[68]]}
    who = ["shop03", "shop00", "shop17"]
    found = less.predict(who, covariates=asked)
    np.testing.assert_allclose(found, table.predict(who), rtol=1e-9)
    assert found[1] == less.personal_[0]  # its own data count, not the covariates that were passed
    for one, other in zip(less.interval(who, covariates=asked), table.interval(who), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    np.testing.assert_allclose(found, [y[12:16].mean(), found[1], y[68:72].mean()], atol=1.5)
    frame = table.to_frame()
    assert frame["weight"][3] == 0


def test_statistics_take_one_row_of_covariates_per_group():
    y, label, size, _ = rows()
    model = GroupMeans().fit(y, label, covariates={"size": size})
    statistics = model.statistics_
    again = GroupMeans.from_statistics(
        statistics.n,
        statistics.mean,
        within=statistics.within,
        groups=model.groups_,
        covariates={"size": size[::4]},
    )
    np.testing.assert_array_equal(again.personal_, model.personal_)
    mean = statistics.mean.copy()
    mean[5] = np.nan
    gap = GroupMeans.from_statistics(
        statistics.n, mean, within=statistics.within, covariates={"size": size[::4]}
    )
    assert gap.n_[5] == 0
    assert gap.personal_[5] == pytest.approx(model.personal_[5], abs=1.5)


def test_a_group_without_a_covariate_is_dropped_and_told():
    y, label, size, _ = rows()
    size = size.copy()
    size[:4] = np.nan  # all rows of shop00
    size[4:7] = np.nan  # all but one of shop01
    model = GroupMeans().fit(y, label, covariates={"size": size})
    assert len(model.groups_) == 29
    assert "Groups dropped because a covariate is missing: 1." in model.notes_
    with pytest.raises(ValueError, match=r"number of groups without a covariate must be 0 in"):
        GroupMeans(strict=True).fit(y, label, covariates={"size": size})


def test_misuse_is_told_in_one_line():
    y, label, size, region = rows()
    odd = size.copy()
    odd[8] += 1
    with pytest.raises(
        ValueError, match=r"'size' must be constant within a group, got .* 'shop02'"
    ):
        GroupMeans().fit(y, label, covariates={"size": odd})
    model = GroupMeans().fit(y, label, covariates={"region": region})
    with pytest.raises(ValueError, match=r"covariates are needed for groups not seen in fit"):
        model.predict(["elsewhere"])
    assert np.isfinite(model.predict(["shop01"]))
    with pytest.raises(ValueError, match=r"covariates must be known for groups not seen"):
        model.predict(["elsewhere"], covariates={"region": ["west"]})
    with pytest.raises(ValueError, match=r"covariates must be with 'region', got 'none'"):
        model.predict(["elsewhere"], covariates={"size": [1.0]})
    with pytest.raises(ValueError, match=r"one row for each of the 120 rows, got 119"):
        GroupMeans().fit(y, label, covariates={"size": size[1:]})
    with pytest.raises(ValueError, match=r"covariates cannot be combined with a mixture"):
        GroupMixture(2).fit(y, label, covariates={"size": size})
    for options in ({"method": "paper"}, {"population": "auto"}):
        with pytest.raises(ValueError, match=r"covariates cannot be combined with method"):
            GroupMeans(**options).fit(y, label, covariates={"size": size})


def test_radon_by_uranium_is_the_mixed_model_of_regress():
    """85 counties; restricted likelihood from county sums is that of the 919 houses."""
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
    path = root / "grouped_regression" / "radon_minnesota.csv"
    if not path.is_file():
        pytest.skip("real data (radon): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open() as file:
        houses = list(csv.DictReader(file))
    y, uranium = (
        np.array([float(row[name]) for row in houses]) for name in ("log.radon", "uranium")
    )
    county = np.array([row["county.name"] for row in houses])
    mixed = PersonalRegression().fit(uranium[:, None], y, groups=county).population_
    model = GroupMeans().fit(y, county, covariates={"uranium": uranium})
    covariates = Covariates(names=("uranium",), values=model._covariates.values)
    bins = bins_of(model.statistics_, covariates=covariates)
    law = common_law(bins)
    best = restricted_maximum(bins, law)
    found = coefficients_of(bins, law, best, level=0.95, r_squared=0.0)
    np.testing.assert_allclose(found.values, [mixed.mean[0], mixed.fixed[0]], rtol=1e-5)
    errors = [mixed.mean_errors[0], mixed.fixed_errors[0]]
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-4)
    assert best.noise[0] == pytest.approx(mixed.noise_variance, rel=1e-5)
    assert best.ratio[0] * best.noise[0] == pytest.approx(mixed.covariance[0, 0], rel=1e-3)
    # The answer itself integrates over the variances: the same slope, wider intervals.
    coefficients = model.population_.coefficients
    np.testing.assert_allclose(coefficients.values, found.values, atol=0.002)
    assert (coefficients.standard_errors > found.standard_errors).all()
    assert coefficients.r_squared == pytest.approx(0.853, abs=0.001)
