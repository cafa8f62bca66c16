"""Intervals of a regression with few groups: of the population, of every group, of the gains."""

import numpy as np
import pytest
from scipy import stats

from fedprior import PersonalClassifier, PersonalRegression
from fedprior.regression.face.holdout import compare
from fedprior.regression.linear import fit_linear
from fedprior.regression.rows import GroupedRows

# Covariance of intercept and slope, and the mean of x.
SETTINGS = {
    "intercepts and slopes": ([[1, 0], [0, 0.25]], 0.0),
    "correlated": ([[1, 0.35], [0.35, 0.25]], 0.0),
    "x far from 0": ([[1, 0], [0, 0.25]], 2.0),
    "intercepts": ([[1, 0], [0, 0]], 0.0),
    "slopes": ([[0.25, 0], [0, 4]], 0.0),
    "nothing": ([[0, 0], [0, 0]], 0.0),
}
MEAN = np.array([1.0, 2.0])


def drawn(draws, m, name, *, low=2, high=15):
    """Rows of m groups of 2 to 15 rows (3 at least in two of them), and their coefficients."""
    covariance, center = SETTINGS[name]
    sizes = draws.integers(low, high + 1, m)
    sizes[:2] = np.maximum(sizes[:2], 3)
    place = np.repeat(np.arange(m), sizes)
    x = center + draws.normal(size=len(place))
    theta = draws.multivariate_normal(MEAN, covariance, m, method="eigh")
    return x, theta[place, 0] + theta[place, 1] * x, place, theta


def coverage(m, name, *, runs, classes=False, seed=0):
    """Percent of 95% intervals that hold the population's mean, and theta: two columns each."""
    draws = np.random.default_rng([seed, m])
    found = np.empty((runs, 2, 2))
    for run in range(runs):
        low, high = (20, 60) if classes else (2, 15)
        x, line, place, theta = drawn(draws, m, name, low=low, high=high)
        if classes:
            y = (draws.random(len(x)) < 1 / (1 + np.exp(1 - line))).astype(int)
            y[:2] = 0, 1
            model = PersonalClassifier().fit(x[:, None], y, place)
            shift = np.array([1.0, 0.0])
        else:
            y = line + draws.normal(size=len(x))
            model = PersonalRegression().fit(x[:, None], y, place)
            shift = np.zeros(2)
        for part, (limits, truth) in enumerate(
            ((model.population_.limits(0.95), MEAN - shift), (model.interval(), theta - shift))
        ):
            if limits is None:
                found[run, part] = np.nan
                continue
            found[run, part] = ((limits[0] <= truth) & (truth <= limits[1])).reshape(-1, 2).mean(0)
    return 100 * np.nanmean(found, axis=0), 100 * np.nanstd(found, axis=0) / np.sqrt(runs)


@pytest.mark.evidence
@pytest.mark.parametrize("m", [3, 4, 6, 10, 20])
@pytest.mark.parametrize("name", SETTINGS)
def test_coverage_of_linear_regressions(name, m):
    """Normal quantiles covered 72% (mean, 4 groups) and 84% (slopes of 10 groups)."""
    found, error = coverage(m, name, runs=1000)
    print(f"{name}, {m} groups: mean, theta {found.round(1).tolist()} +- {error.round(1).tolist()}")  # noqa: T201
    assert (found[0] > 92.5 - 4 * error[0]).all()
    assert (found[1] > 91 - 4 * error[1]).all()


@pytest.mark.evidence
@pytest.mark.parametrize("m", [4, 6, 10, 20])
def test_coverage_of_logistic_regressions(m):
    found, error = coverage(m, "intercepts and slopes", runs=300, classes=True)
    print(f"classes, {m} groups: {found.round(1).tolist()} +- {error.round(1).tolist()}")  # noqa: T201
    assert (found > 88 - 4 * error).all()


def test_four_groups_have_wide_intervals():
    """60 runs: a normal quantile (about 85% in this setting) would be seen."""
    found, error = coverage(4, "intercepts and slopes", runs=60)
    assert (found[0] > 93 - 3 * error[0]).all()


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_balanced_intercepts_have_one_degree_of_freedom_per_group_but_one(covariance):
    """With equal designs the mean is that of m independent values: a t with m - 1 degrees."""
    draws = np.random.default_rng(3)
    place = np.repeat(np.arange(7), 5)
    y = draws.normal(size=7)[place] + 0.3 * draws.normal(size=35)
    fit = fit_linear(
        GroupedRows.of(np.ones((35, 1)), y, place, 7), covariance=covariance, criterion="reml"
    )
    own = y.reshape(7, 5).mean(axis=1)
    assert fit.population.freedom == pytest.approx([6.0])
    assert fit.population.corrected_errors == pytest.approx(own.std(ddof=1) / np.sqrt(7))
    lower, upper = fit.population.limits(0.9)
    wanted = stats.t.interval(0.9, 6, own.mean(), own.std(ddof=1) / np.sqrt(7))
    assert (lower[0], upper[0]) == pytest.approx(wanted)


def test_a_spread_of_zero_is_not_taken_as_known():
    """Equal groups: the mean has m - 1 degrees of freedom, as when they differ."""
    draws = np.random.default_rng(0)
    place = np.repeat(np.arange(4), 6)
    y = draws.normal(size=24)
    y -= np.bincount(place, y)[place] / 6  # all means are 0
    rows = GroupedRows.of(np.ones((24, 1)), y, place, 4)
    fit = fit_linear(rows, covariance="diagonal", criterion="reml")
    assert fit.population.covariance[0, 0] == 0
    assert fit.population.freedom == pytest.approx([3.0])


def test_intervals_of_groups_are_wider_than_given_the_variances():
    draws = np.random.default_rng(1)
    x, line, place, _ = drawn(draws, 6, "intercepts and slopes")
    model = PersonalRegression().fit(x[:, None], line + draws.normal(size=len(x)), place)
    lower, upper = model.interval()
    assert ((upper - lower)[:, 0] > 2 * 2 * model.theta_errors_[:, 0]).all()
    assert np.allclose((upper + lower) / 2, model.theta_)
    assert any("Only 6 groups" in note for note in model.notes_)


def test_units_do_not_matter():
    draws = np.random.default_rng(2)
    x, line, place, _ = drawn(draws, 8, "intercepts and slopes")
    y = line + draws.normal(size=len(x))
    one, other = (PersonalRegression().fit(x[:, None] * unit, y, place) for unit in (1, 1000))
    for first, second in (
        (one.interval(), other.interval()),
        (one.population_.limits(0.95), other.population_.limits(0.95)),
    ):
        for mine, theirs in zip(first, second, strict=True):
            np.testing.assert_allclose(mine, theirs * [1, 1000], rtol=1e-4)


def test_gains_on_held_out_rows_have_intervals_over_groups():
    """60 groups: an interval about the gain, neither a point nor everything."""
    draws = np.random.default_rng(4)
    x, line, place, _ = drawn(draws, 60, "intercepts and slopes", low=8)
    model = PersonalRegression().fit(x[:, None], line + draws.normal(size=len(x)), place)
    held = model.held_out(seed=1)
    for gain, (low, high) in (
        (held.gain_over_separate, held.interval_over_separate),
        (held.gain_over_pooled, held.interval_over_pooled),
    ):
        assert (low + high) / 2 == pytest.approx(gain)
        assert 2 < high - low < 60


def test_nothing_to_choose_between_gives_an_interval_around_zero():
    """Groups that do not differ: personal and pooled fits are nearly the same."""
    draws = np.random.default_rng(5)
    x, line, place, _ = drawn(draws, 40, "nothing", low=5)
    model = PersonalRegression().fit(x[:, None], line + draws.normal(size=len(x)), place)
    low, high = model.held_out().interval_over_pooled
    assert low <= 0 <= high
    again = compare(model.analysis_.rows, model.analysis_.specification)
    assert again == model.held_out()


@pytest.mark.parametrize(
    ("options", "allows"),
    [({}, True), ({"method": "paper"}, False), ({"population": "discrete"}, False)],
)
def test_the_note_on_few_groups_says_what_the_intervals_do(options, allows):
    draws = np.random.default_rng(5)
    x, line, place, _ = drawn(draws, 6, "intercepts", low=8)
    model = PersonalRegression(**options).fit(x[:, None], line + draws.normal(size=len(x)), place)
    (note,) = (each for each in model.notes_ if each.startswith("Only 6 groups"))
    assert ("The intervals allow for this" in note) == allows
    assert ("do not allow for this." in note) == (not allows)


def test_one_variance_for_a_feature_far_from_zero_keeps_its_own_errors():
    """A slope's variance beside the intercept's is not identified there: t, not t with 1 degree."""
    draws = np.random.default_rng(6)
    x, line, place, _ = drawn(draws, 30, "intercepts", low=8)
    y = line + draws.normal(size=len(x))
    model = PersonalRegression(covariance="isotropic").fit(x[:, None] + 1e6, y, place)
    lower, upper = model.population_.limits(0.95)
    assert lower[1] < MEAN[1] < upper[1]
    assert upper[1] - lower[1] < 10 * model.population_.mean_errors[1]


def test_features_far_from_zero_are_to_be_centered():
    draws = np.random.default_rng(7)
    x, line, place, _ = drawn(draws, 30, "intercepts", low=8)
    y = line + draws.normal(size=len(x))
    with pytest.raises(ValueError, match="or center features that are far from 0"):
        PersonalRegression(covariance="diagonal").fit(x[:, None] + 1e6, y, place)
    kinds = PersonalRegression(population="mixture", num_components=1)
    notes = kinds.fit(x[:, None] + 1e6, y, place).notes_
    assert any("of the intercept (center them)" in note for note in notes)
