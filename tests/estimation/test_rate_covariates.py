"""Covariates of rates and of events: the twin by SciPy, few groups, new groups, refusals."""

import numpy as np
import pytest
from covariate_runs import draw, repeat
from scipy import optimize, stats

from fedprior.estimation import (
    Counts,
    Covariates,
    Events,
    GroupEvents,
    GroupRates,
    estimate_events,
    estimate_rates,
)
from fedprior.estimation.conjugate.fit import by_likelihood
from fedprior.estimation.conjugate.likelihood import tally
from fedprior.estimation.conjugate.regression import RegressionColumns, regression_of
from fedprior.estimation.families.quantiles import beta_quantile, gamma_quantile
from fedprior.estimation.statistics import collapse, collapse_events

FALSE_ALARM = 1e-6


def random(seed=0):
    return np.random.default_rng(seed)


def twin(kind, statistics, x):
    """Maximum of likelihood and Jeffreys' prior, by SciPy's distributions and finite differences.

    Parameters are the intercept, the slopes and the log of M, or of the shape for events.
    """
    held = statistics.n > 0
    n, x = statistics.n[held], np.column_stack([np.ones(held.sum()), x[held]])

    def log_likelihood(at):
        size = np.exp(at[-1])
        if kind == "rates":
            mean = 1 / (1 + np.exp(-x @ at[:-1]))
            shapes = mean * size, (1 - mean) * size
            return stats.betabinom.logpmf(statistics.successes[held], n, *shapes).sum()
        mean = n * np.exp(x @ at[:-1])
        return stats.nbinom.logpmf(statistics.events[held], size, size / (size + mean)).sum()

    start = np.zeros(x.shape[1] + 1)
    start[0], start[-1] = -1.0, 2.0
    found = optimize.minimize(lambda at: -log_likelihood(at), start, method="Nelder-Mead")
    return optimize.minimize(lambda at: -log_likelihood(at), found.x, method="BFGS").x


@pytest.mark.parametrize("kind", ["rates", "events"])
def test_many_groups_have_the_coefficients_of_the_twin(kind):
    statistics, covariates, _, _ = draw(kind, 600, random(3))
    estimate = estimate_rates if kind == "rates" else estimate_events
    found = estimate(statistics, covariates=covariates).population
    wanted = twin(kind, statistics, covariates.values)
    # The prior moves estimates by a small part of their standard errors of about 0.05.
    np.testing.assert_allclose(found.coefficients.values, wanted[:-1], atol=4e-3)
    size = found.parameters["concentration" if kind == "rates" else "shape"]
    assert np.log(size) == pytest.approx(wanted[-1], abs=0.05)
    assert found.coefficients.names == ("intercept", "age", "west")
    assert found.coefficients.link == ("logit" if kind == "rates" else "log")


@pytest.mark.parametrize("kind", ["rates", "events"])
@pytest.mark.parametrize("point", [False, True])
def test_slopes_are_those_of_the_value(kind, point):
    statistics, covariates, _, _ = draw(kind, 30, random(5))
    merge = collapse if kind == "rates" else collapse_events
    pairs = merge(statistics, merge=False)
    ones = np.ones((len(pairs.n), 1))
    design = RegressionColumns(np.column_stack([ones, covariates.values]), ones)
    problem = regression_of(pairs, design, by_likelihood(tally(pairs)))
    at = np.array([-0.8, 0.5, 0.3, 9.0 if point else 1.5])
    slopes = problem.slopes(at)
    step = 1e-5
    for place in range(4):
        moved = step * np.eye(4)[place]
        rise = (problem.value(at + moved) - problem.value(at - moved)) / (2 * step)
        assert slopes.gradient[place] == pytest.approx(rise, rel=1e-5, abs=1e-5)
        bent = (problem.slopes(at + moved).gradient - problem.slopes(at - moved).gradient) / step
        # all but the curvature of Jeffreys' prior, of the order of the number of coefficients
        np.testing.assert_allclose(slopes.hessian[place], bent / 2, atol=1.0)


def test_without_use_covariates_change_little():
    statistics, *_ = draw("rates", 2000, random(7))
    noise = Covariates(names=("noise",), values=random(8).normal(size=(2002, 1)))
    found, plain = estimate_rates(statistics, covariates=noise), estimate_rates(statistics)
    np.testing.assert_allclose(found.personal, plain.personal, atol=0.02)
    np.testing.assert_allclose(found.upper - found.lower, plain.upper - plain.lower, rtol=0.05)
    assert found.population.coefficients.r_squared < 0.02
    assert abs(found.gain_over_raw - plain.gain_over_raw) < 1


@pytest.mark.parametrize("kind", ["rates", "events"])
def test_rows_that_stand_for_several_groups_are_those_groups(kind):
    statistics, covariates, _, _ = draw(kind, 60, random(11))
    times = random(12).integers(1, 4, 62)
    order = np.repeat(np.arange(62), times)
    long = Covariates(names=covariates.names, values=covariates.values[order])
    if kind == "rates":
        short = Counts(n=statistics.n, successes=statistics.successes, count=times)
        every = Counts(n=statistics.n[order], successes=statistics.successes[order])
        one, other = (
            estimate_rates(short, covariates=covariates, ranks=True),
            estimate_rates(every, covariates=long, ranks=True),
        )
    else:
        short = Events(exposure=statistics.exposure, events=statistics.events, count=times)
        every = Events(exposure=statistics.exposure[order], events=statistics.events[order])
        one, other = (
            estimate_events(short, covariates=covariates, ranks=True),
            estimate_events(every, covariates=long, ranks=True),
        )
    np.testing.assert_allclose(one.personal[order], other.personal, rtol=1e-6)
    np.testing.assert_allclose(one.lower[order], other.lower, rtol=1e-6, atol=1e-9)
    assert one.gain_over_raw == pytest.approx(other.gain_over_raw, abs=1e-4)
    first, second = one.population.coefficients, other.population.coefficients
    np.testing.assert_allclose(first.values, second.values, rtol=1e-6)
    np.testing.assert_allclose(first.standard_errors, second.standard_errors, rtol=1e-5)


@pytest.mark.parametrize("num_groups", [12, 300])
@pytest.mark.parametrize("kind", ["rates", "events"])
def test_units_of_covariates_and_of_exposure_do_not_matter(kind, num_groups):
    statistics, covariates, _, _ = draw(kind, num_groups, random(13))
    turned = Covariates(names=covariates.names, values=covariates.values * [1e6, -1] + [7e6, 3])
    estimate = estimate_rates if kind == "rates" else estimate_events
    one, other = (estimate(statistics, covariates=each) for each in (covariates, turned))
    np.testing.assert_allclose(one.personal, other.personal, rtol=1e-6)
    np.testing.assert_allclose(one.upper, other.upper, rtol=1e-6)
    first, second = one.population.coefficients, other.population.coefficients
    np.testing.assert_allclose(second.values[1:] * [1e6, -1], first.values[1:], rtol=1e-5)
    if kind == "events":
        days = Events(exposure=365 * statistics.exposure, events=statistics.events)
        daily = estimate_events(days, covariates=covariates)
        np.testing.assert_allclose(365 * daily.personal, one.personal, rtol=1e-6)
        wanted = first.values - [np.log(365), 0, 0]
        np.testing.assert_allclose(daily.population.coefficients.values, wanted, rtol=1e-5)
        assert 365 * daily.population.mean == pytest.approx(one.population.mean, rel=1e-6)


@pytest.mark.parametrize("num_groups", [8, 40, 400])
@pytest.mark.parametrize("kind", ["rates", "events"])
def test_complete_separation_stays_finite_and_honest(kind, num_groups):
    """All groups of one word are without a success: its slope is finite, its groups are not 0."""
    word = np.arange(num_groups) % 2
    n = np.full(num_groups, 6)
    won = np.where(word == 1, 0, 1 + np.arange(num_groups) % 4)
    covariates = Covariates(names=("none",), values=word[:, None].astype(float))
    if kind == "rates":
        found = estimate_rates(Counts(n=n, successes=won), covariates=covariates)
    else:
        found = estimate_events(Events(exposure=n, events=won), covariates=covariates)
    told = found.population.coefficients
    assert -12 < told.values[1] < -1
    assert np.isfinite([told.lower, told.upper, told.standard_errors]).all()
    poor = word == 1
    total = 6 * poor.sum()
    assert (found.upper[poor] > 0.5 / total).all()
    assert (found.personal[poor] < 0.12).all()
    assert (found.personal[~poor] > 0.15).all()


def test_groups_without_trials_are_predicted_with_wider_intervals():
    statistics, covariates, *_ = draw("rates", 200, random(17))
    found = estimate_rates(statistics, covariates=covariates, above=0.3)
    assert np.isnan(found.raw[-2:]).all()
    assert (found.weight[-2:] == 0).all()
    told = found.population.coefficients.values
    mean = 1 / (1 + np.exp(-(told[0] + covariates.values[-2:] @ told[1:])))
    np.testing.assert_allclose(found.personal[-2:], mean, rtol=1e-9)
    size = found.population.parameters["concentration"]
    scale = np.sqrt(mean * (1 - mean) / (size + 1))
    assert (found.scale[-2:] > scale).all()
    np.testing.assert_allclose(found.scale[-2:], scale, rtol=0.05)
    wanted = stats.beta.sf(0.3, mean * size, (1 - mean) * size)
    np.testing.assert_allclose(found.above[-2:], wanted, atol=0.03)


@pytest.mark.parametrize("kind", ["rates", "events"])
def test_point_is_the_regression_alone(kind):
    statistics, covariates, _, _ = draw(kind, 300, random(19), spread=0.0)
    estimate = estimate_rates if kind == "rates" else estimate_events
    found = estimate(statistics, covariates=covariates, population="point")
    held, x = statistics.n > 0, np.column_stack([np.ones(302), covariates.values])
    told = found.population.coefficients
    eta = x @ told.values
    mean = 1 / (1 + np.exp(-eta)) if kind == "rates" else np.exp(eta)
    np.testing.assert_allclose(found.personal, mean, rtol=1e-9)
    won = statistics.successes if kind == "rates" else statistics.events
    variance = mean * (1 - mean) if kind == "rates" else mean
    weight = (statistics.n * variance)[held]
    covariance = np.linalg.inv(x[held].T @ (weight[:, None] * x[held]))
    score = x[held].T @ (won - statistics.n * mean)[held]
    assert (np.abs(covariance @ score) < 0.1 * np.sqrt(np.diag(covariance))).all()  # Firth's bias
    np.testing.assert_allclose(told.standard_errors, np.sqrt(np.diag(covariance)), rtol=1e-3)
    assert (found.population.kind, found.weight.max()) == ("point", 0)
    assert np.isnan(told.r_squared)
    assert any("since differences cannot be ruled out" in note for note in found.notes)


def test_size_and_covariates_together():
    draws = random(23)
    n = draws.integers(3, 200, 3000)
    x = draws.normal(size=(3000, 1))
    mean = 1 / (1 + np.exp(-(-2 + 0.5 * np.log(n / 20) + 0.7 * x[:, 0])))
    theta = draws.beta(30 * mean, 30 * (1 - mean))
    counts = Counts(n=n, successes=draws.binomial(n, theta))
    covariates = Covariates(names=("x",), values=x)
    found = estimate_rates(counts, covariates=covariates, by_size=True)
    told = found.population.coefficients
    assert told.names == ("x",)  # there is no one intercept
    assert told.values[0] == pytest.approx(0.7, abs=5 * told.standard_errors[0])
    assert found.population.by_size
    errors = [
        ((each.personal - theta) ** 2).mean()
        for each in (
            found,
            estimate_rates(counts, covariates=covariates),
            estimate_rates(counts, by_size=True),
        )
    ]
    assert errors[0] < 0.97 * min(errors[1:])
    assert ((found.lower <= theta) & (theta <= found.upper)).mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"prior": (2, 5)}, "covariates cannot be combined with prior"),
        ({"method": "paper"}, "covariates cannot be combined with method='paper'"),
        ({"fit": "moments"}, "covariates cannot be combined with fit='moments'"),
        ({"intervals": "robust"}, "covariates cannot be combined with intervals='robust'"),
        ({"population": "nonparametric"}, "cannot be combined with population='nonparametric'"),
        ({"population": "scale-mixture"}, "cannot be combined with population='scale-mixture'"),
        ({"population": "auto"}, "covariates cannot be combined with population='auto'"),
        ({"population": "point", "by_size": True}, "cannot be combined"),
    ],
)
def test_options_that_do_not_go_with_covariates(options, wanted):
    statistics, covariates, _, _ = draw("rates", 30, random(29))
    with pytest.raises(ValueError, match=wanted):
        estimate_rates(statistics, covariates=covariates, **options)


def test_data_that_no_regression_can_be_fitted_to():
    covariates = Covariates(names=("x",), values=np.arange(6.0)[:, None])
    n = np.full(6, 5)
    with pytest.raises(ValueError, match="covariates need outcomes that are not all equal"):
        estimate_rates(Counts(n=n, successes=0 * n), covariates=covariates)
    with pytest.raises(ValueError, match="covariates need outcomes that are not all equal"):
        estimate_events(Events(exposure=n, events=0 * n), covariates=covariates)
    counts = Counts(n=n, successes=np.arange(6) % 4)
    with pytest.raises(ValueError, match="one row for each of the 6 groups, got 5"):
        estimate_rates(counts, covariates=Covariates(names=("x",), values=np.ones((5, 1))))
    with pytest.raises(ValueError, match="covariate 'x' must be of more than one value"):
        estimate_rates(counts, covariates=Covariates(names=("x",), values=np.ones((6, 1))))
    twice = Covariates(names=("x", "y"), values=np.arange(6.0)[:, None] * [1, 2])
    with pytest.raises(ValueError, match="'y', a linear function of 'x'"):
        estimate_rates(counts, covariates=twice)
    few = Counts(n=np.array([5, 5, 0, 0, 0, 0]), successes=np.array([1, 3, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="number of groups with data must be at least 3"):
        estimate_rates(few, covariates=covariates)


def table(kind, number=40, seed=31):
    """Rows of groups with a number and a word; all rows of group 3 lack their outcome."""
    draws = random(seed)
    place = np.repeat(np.arange(number), 6)
    age, region = draws.normal(size=number), np.where(np.arange(number) % 3, "east", "west")
    eta = -0.5 + 0.8 * age + 0.5 * (region == "west")
    if kind == "rates":
        rate = 1 / (1 + np.exp(-eta - 0.3 * draws.normal(size=number)))
        y = draws.binomial(1, rate[place]).astype(float)
    else:
        y = draws.poisson(np.exp(eta + 0.3 * draws.normal(size=number))[place]).astype(float)
    y[place == 3] = np.nan
    return y, place, {"age": age[place], "region": region[place]}


@pytest.mark.parametrize("kind", ["rates", "events"])
def test_estimators_take_covariates_and_predict_new_groups(kind):
    y, place, columns = table(kind)
    estimator = {"rates": GroupRates, "events": GroupEvents}[kind]
    model = estimator().fit(y, place, covariates=columns)
    assert (model.num_dropped_, model.n_[3], model.weight_[3]) == (6, 0, 0)
    assert model.population_.coefficients.names == ("intercept", "age", "region=west")
    known = ~np.isnan(y)
    less = estimator().fit(
        y[known], place[known], covariates={name: each[known] for name, each in columns.items()}
    )
    asked = {"age": [columns["age"][18]], "region": [columns["region"][18]]}
    np.testing.assert_allclose(less.predict([3], covariates=asked), model.predict([3]), rtol=1e-6)
    for one, other in zip(less.interval([3], covariates=asked), model.interval([3]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    high, low = (less.predict([99], covariates={"age": [x], "region": ["east"]}) for x in (2, -2))
    assert high > low
    with pytest.raises(ValueError, match="covariates are needed for groups not seen in fit"):
        less.predict([99])
    with pytest.raises(ValueError, match="covariates must be known for groups not seen in fit"):
        less.predict([99], covariates={"age": [1.0], "region": ["north"]})


def test_counts_take_covariates_with_and_without_count():
    y, place, columns = table("rates")
    known = ~np.isnan(y)
    rows = GroupRates().fit(y, place, covariates=columns)
    won = np.bincount(place, np.where(known, y, 0.0))
    n = np.bincount(place, known)
    each = {name: cells[::6] for name, cells in columns.items()}
    sums = GroupRates.from_counts(won, n, covariates=each)
    np.testing.assert_allclose(sums.personal_, rows.personal_, rtol=1e-9)
    times = GroupRates.from_counts(won, n, count=np.ones(40), covariates=each)
    np.testing.assert_allclose(times.personal_, rows.personal_, rtol=1e-9)
    gap = won.astype(float)
    gap[3] = np.nan
    gaps = GroupRates.from_counts(gap, n, count=np.full(40, 2.0), covariates=each)
    assert (len(gaps.groups_), gaps.n_[3], gaps.estimates_.num_groups) == (40, 0, 79)
    with pytest.raises(ValueError, match="number of rows with a missing value or group must be 0"):
        GroupRates(strict=True).fit(y, place, covariates=columns)


def test_quantiles_of_many_members_are_those_of_each():
    draws = random(37)
    first, second = np.exp(draws.uniform(-3, 8, (2, 50_000)))
    some = slice(0, 50_000, 50)
    for level in (0.005, 0.025, 0.975):
        wanted = stats.beta.ppf(level, first[some], second[some])
        np.testing.assert_allclose(beta_quantile(first, second, level)[some], wanted, rtol=2e-5)
        wanted = stats.gamma.ppf(level, first[some])
        np.testing.assert_allclose(gamma_quantile(first, level)[some], wanted, rtol=2e-5)


@pytest.mark.parametrize("kind", ["rates", "events"])
@pytest.mark.parametrize(
    "setting",
    {
        "three groups": (3, [1, 4, 2], [1.0, 2.0, 4.0]),
        "one success": (12, [1, *[0] * 11], None),
        "as many covariates as groups allow": (12, None, 10),
        "an outlier": (30, None, "outlier"),
        "all or nothing": (40, [0, 5] * 20, None),
        "a rare word": (400, None, "rare"),
    }.items(),
    ids=lambda each: each[0],
)
def test_odd_data_have_finite_answers(kind, setting):
    number, won, x = setting[1]
    draws = random(41)
    n = draws.integers(5, 50, number)
    won = draws.binomial(n, draws.beta(2, 6, number)) if won is None else np.array(won)
    columns = draws.normal(size=(number, x if isinstance(x, int) else 1))
    if isinstance(x, list):
        columns = np.array(x)[:, None]
    elif isinstance(x, str):
        columns[-1] = 1e9
        columns = columns if x == "outlier" else (np.arange(number) < 2)[:, None].astype(float)
    covariates = Covariates(names=tuple(f"x{k}" for k in range(columns.shape[1])), values=columns)
    statistics = Counts(n=n, successes=won) if kind == "rates" else Events(exposure=n, events=won)
    estimate = estimate_rates if kind == "rates" else estimate_events
    for options in ({}, {"population": "point"}, {"above": 0.2, "ranks": True}):
        found = estimate(statistics, covariates=covariates, **options)
        told = found.population.coefficients
        assert np.isfinite([told.values, told.standard_errors, told.lower, told.upper]).all()
        assert ((found.lower >= 0) & (found.lower <= found.personal)).all()
        assert ((found.personal <= found.upper) & (found.lower < found.upper)).all()
        assert np.isfinite([found.gain_over_raw, found.gain_over_pooled]).all()
        assert found.population.mean < 20


def test_size_takes_groups_of_its_own():
    counts = Counts(n=np.array([5, 8, 3]), successes=np.array([1, 4, 2]))
    covariates = Covariates(names=("x",), values=np.array([[1.0], [2.0], [4.0]]))
    with pytest.raises(ValueError, match="with data must be above 3, the number of coefficients"):
        estimate_rates(counts, covariates=covariates, by_size=True)


@pytest.mark.evidence
@pytest.mark.parametrize("spread", [1.0, 0.3])
@pytest.mark.parametrize("num_groups", [10, 20, 50, 1000])
@pytest.mark.parametrize("kind", ["means", "rates", "events"])
def test_intervals_cover_and_covariates_gain(kind, num_groups, spread):
    """Over 1,000 runs (100 at 1,000 groups) standard errors are below 0.8 (slopes, groups)."""
    runs = 1000 if num_groups < 1000 else 100
    found = repeat(kind, num_groups, runs, spread=spread)
    print(kind, num_groups, spread, {name: round(each, 1) for name, each in found.items()})  # noqa: T201
    least = 91.0 if num_groups < 50 else 92.5
    assert found["groups"] > least
    assert found["empty"] > least - 1
    assert found["slopes"] > least
    assert found["gain"] > (5 if num_groups == 10 else 10)
