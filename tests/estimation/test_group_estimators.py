"""GroupMeans, GroupRates, GroupMixture: scikit-learn's conventions over the functions beneath."""

import doctest
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fedprior.estimation import estimator, table
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.gaussian.estimate import estimate_means
from fedprior.estimation.groups import EstimationWarning
from fedprior.estimation.statistics import Counts, Means, means_of
from fedprior.estimation.table import GroupMeans, GroupMixture, GroupRates

polars = pytest.importorskip("polars")


def rows(num_groups=30, seed=0):
    """Values and labels of groups of 2 to 9 rows, labels g00, g01, ... in random order of rows."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, 10, num_groups)
    place = draw.permutation(np.repeat(np.arange(num_groups), sizes))
    theta = draw.normal(2.0, 0.7, num_groups)
    labels = np.array([f"g{number:02d}" for number in range(num_groups)], object)
    return theta[place] + draw.normal(size=len(place)), labels[place], place


def outcomes(seed=0):
    values, labels, place = rows(seed=seed)
    return (values > 2).astype(int), labels, place


def same_estimates(found, wanted):
    for name in ("n", "raw", "personal", "weight", "lower", "upper"):
        other = getattr(wanted, f"{name}_" if hasattr(wanted, "estimates_") else name)
        np.testing.assert_array_equal(getattr(found, f"{name}_"), other)


def test_means_are_those_of_the_function_on_sufficient_statistics():
    y, labels, place = rows()
    model = GroupMeans(above=2.0, ranks=True, level=0.9).fit(y, labels)
    wanted = estimate_means(means_of(y, place, 30), above=2.0, ranks=True, level=0.9)
    same_estimates(model, wanted)
    np.testing.assert_array_equal(model.above_, wanted.above)
    np.testing.assert_array_equal(model.ranks_.mean, wanted.ranks.mean)
    assert model.groups_.tolist() == [f"g{number:02d}" for number in range(30)]
    assert model.estimates_.level == 0.9
    assert model.sentence_ == wanted.sentence
    assert (model.gain_over_raw_, model.gain_over_pooled_) == (
        wanted.gain_over_raw,
        wanted.gain_over_pooled,
    )
    assert model.population_.kind == "gaussian"
    assert model.num_dropped_ == 0


@pytest.mark.parametrize(
    "options",
    [
        {"population": "nonparametric"},
        {"population": "point"},
        {"population": "auto"},
        {"fit_by": "moments"},
        {"method": "paper"},
        {"by_size": True},
        {"theta_variance": 0.5, "noise_variance": 1.0},
        {"intervals": "robust"},
    ],
    ids=str,
)
def test_parameters_of_means_reach_the_function(options):
    y, labels, place = rows()
    passed = {{"fit_by": "fit"}.get(name, name): value for name, value in options.items()}
    wanted = estimate_means(means_of(y, place, 30), **passed)
    same_estimates(GroupMeans(**options).fit(y, labels), wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"population": "nonparametric"},
        {"population": "point"},
        {"population": "auto"},
        {"fit_by": "moments"},
        {"method": "paper"},
        {"method": "paper", "minus_one": False},
        {"by_size": True},
        {"prior": (2.0, 2.0)},
        {"intervals": "robust"},
    ],
    ids=str,
)
def test_parameters_of_rates_reach_the_function(options):
    successes, trials = np.arange(30) % 7, 7 + np.arange(30) % 4
    passed = {{"fit_by": "fit"}.get(name, name): value for name, value in options.items()}
    wanted = estimate_rates(Counts(n=trials, successes=successes), **passed)
    same_estimates(GroupRates(**options).fit_counts(successes, trials), wanted)


def test_rates_from_rows_and_from_counts_agree():
    y, labels, place = outcomes()
    model = GroupRates(above=0.5).fit(y, labels)
    trials = np.bincount(place)
    successes = np.bincount(place, y)
    other = GroupRates.from_counts(successes, trials, groups=model.groups_, above=0.5)
    same_estimates(model, other.estimates_)
    assert other.get_params() == model.get_params()
    # rows of one group are added, whatever their order; these are all or nothing
    with pytest.warns(EstimationWarning, match="vary more than binomial counts"):
        split = GroupRates.from_counts(
            np.concatenate([successes, np.zeros(30)]),
            np.concatenate([successes, (trials - successes)[::-1]]),
            groups=np.concatenate([model.groups_, model.groups_[::-1]]),
        )
    assert split.n_.tolist() == trials.tolist()
    np.testing.assert_array_equal(split.raw_, model.raw_)
    assert GroupRates.from_counts(successes, trials).groups_.tolist() == list(range(30))
    np.testing.assert_array_equal(GroupRates().fit(y.astype(bool), labels).raw_, model.raw_)


def test_groups_of_one_row_stay_beside_their_rows():
    labels, won, trials = ["z", "a", "m"], [1, 2, 3], [4, 5, 6]
    assert GroupRates.from_counts(won, trials, groups=labels).groups_.tolist() == labels
    gaps = GroupRates.from_counts([1, None, 3], trials, groups=labels)
    assert gaps.groups_.tolist() == ["z", "m"]
    assert gaps.n_.tolist() == [4, 6]
    model = GroupMeans().fit([3.0, 1.0, 2.0], labels, standard_errors=[1.0, 1.0, 1.0])
    assert model.groups_.tolist() == labels
    assert model.raw_.tolist() == [3.0, 1.0, 2.0]
    assert model.predict(["a", "z"]).tolist() == [model.personal_[1], model.personal_[0]]
    twice = GroupRates.from_counts([*won, 1], [*trials, 1], groups=[*labels, "z"])
    assert twice.groups_.tolist() == ["a", "m", "z"]
    assert twice.n_.tolist() == [5, 6, 5]


def test_predict_gives_an_unseen_group_the_population():
    y, labels, _ = rows()
    model = GroupMeans().fit(y, labels)
    asked = ["g03", "nowhere", None, "g03"]
    found = model.predict(asked)
    assert found[0] == found[3] == model.personal_[3]
    assert found[1] == found[2] == model.population_.mean
    lower, upper = model.interval(asked)
    assert (lower[0], upper[0]) == (model.lower_[3], model.upper_[3])
    alone = estimate_means(
        Means(
            n=np.append(model.n_, 0),
            mean=np.append(model.raw_, np.nan),
            within=np.append(model.statistics_.within, 0.0),
        )
    )
    assert (lower[1], upper[1]) == (alone.lower[-1], alone.upper[-1])
    assert lower[1] < model.population_.mean < upper[1]
    assert upper[1] - lower[1] > upper[0] - lower[0]
    with pytest.raises(TypeError, match="GroupMeans: groups must be text, as they were in fit"):
        model.predict([3])


def test_a_group_of_missing_values_is_an_unseen_one():
    y, labels, _ = rows()
    there = labels != "g07"
    won = np.where(there, y > 2, np.nan)
    y[~there] = np.nan
    for model, value in ((GroupMeans(), y), (GroupRates(), won)):
        same_estimates(model.fit(value, labels), clone(model).fit(value[there], labels[there]))
        assert "g07" not in model.groups_
        assert model.num_dropped_ == (~there).sum()
        assert model.predict(["g07"]) == model.population_.mean


def test_a_group_without_trials_has_the_population():
    model = GroupRates.from_counts([3, 0, 5, 2], [9, 0, 9, 9], groups=list("abcd"))
    assert model.n_.tolist() == [9, 0, 9, 9]
    assert np.isnan(model.raw_[1])
    assert model.predict(["b"]) == pytest.approx(model.population_.mean)
    assert model.interval(["new"]) == model.interval(["b"])


def test_missing_rows_are_dropped_and_counted_or_refused():
    y, labels, _ = rows()
    wanted = GroupMeans().fit(y, labels)
    with_gaps = GroupMeans().fit(
        [*y, None, float("nan"), 3.0, 4.0], [*labels, "g00", "g01", None, float("nan")]
    )
    same_estimates(with_gaps, wanted.estimates_)
    assert with_gaps.num_dropped_ == 4
    assert with_gaps.notes_[0] == "Rows dropped because the value or the group is missing: 4."
    message = r"missing value or group must be 0 in strict mode, got 1. The first is row 2. Remove"
    with pytest.raises(ValueError, match=message):
        GroupMeans(strict=True).fit([1.0, None, 2.0], ["a", "a", "b"])
    with pytest.raises(ValueError, match=message):
        GroupRates(strict=True).fit([1, 0, 1], ["a", None, "b"])
    with pytest.raises(ValueError, match="rows with a value and a group must be at least 1, got 0"):
        GroupMeans().fit([None, 1.0], ["a", None])


def test_several_coordinates():
    y, labels, place = rows()
    both = np.stack([y, -2 * y], axis=1)
    model = GroupMeans().fit(both, labels)
    same_estimates(model, estimate_means(means_of(both, place, 30)))
    assert model.predict(["g00", "new"]).shape == (2, 2)
    np.testing.assert_array_equal(model.predict(["new"])[0], model.population_.mean)
    lower, upper = model.interval(["new"])
    assert (lower < model.population_.mean).all()
    assert (upper > model.population_.mean).all()
    named = pd.DataFrame(both, columns=["height", "depth"])
    columns = GroupMeans().fit(named, labels).to_frame().columns.tolist()
    assert columns[:4] == ["group", "n", "raw_height", "raw_depth"]
    assert "lower_depth" in columns
    assert "personal_1" in model.to_frame()


def test_standard_errors_as_in_a_meta_analysis():
    effect = np.array([0.5, 0.1, -0.2, 0.9, 0.4])
    error = np.array([0.2, 0.1, 0.3, 0.4, 0.2])
    model = GroupMeans().fit(effect, list("abcde"), standard_errors=error)
    means = Means(n=np.ones(5, int), mean=effect, variance=error**2)
    np.testing.assert_allclose(model.personal_, estimate_means(means).personal)
    # two rows of one group are one row of their precision
    twice = GroupMeans().fit(
        np.repeat(effect, 2), np.repeat(list("abcde"), 2), standard_errors=np.repeat(error, 2)
    )
    np.testing.assert_allclose(twice.raw_, effect)
    np.testing.assert_allclose(twice.statistics_.variance, error**2 / 2)
    by_sums = GroupMeans.from_statistics(np.ones(5), effect, variance=error**2)
    np.testing.assert_allclose(by_sums.upper_, model.upper_)
    gaps = GroupMeans().fit([*effect, 1.0], [*"abcde", "f"], standard_errors=[*error, None])
    assert gaps.num_dropped_ == 1
    with pytest.raises(ValueError, match=r"standard_errors must be above 0, got 0. See row 2"):
        GroupMeans().fit([1.0, 2.0], ["a", "b"], standard_errors=[1.0, 0.0])


def test_sufficient_statistics_give_what_their_rows_give():
    y, labels, _ = rows()
    model = GroupMeans().fit(y, labels)
    sums = model.statistics_
    order = np.random.default_rng(1).permutation(30)
    other = GroupMeans(level=0.95).fit_statistics(
        sums.n[order], sums.mean[order], within=sums.within[order], groups=model.groups_[order]
    )
    assert other.groups_.tolist() == model.groups_[order].tolist()
    np.testing.assert_allclose(other.predict(model.groups_), model.personal_, rtol=1e-6)
    with_empty = GroupMeans.from_statistics(
        [*sums.n, 0, 5], [*sums.mean, None, None], within=[*sums.within, 0, 1.0]
    )
    assert with_empty.num_dropped_ == 1
    assert with_empty.n_[-1] == 0
    with pytest.raises(ValueError, match=r"groups must be distinct labels, one row per group, got"):
        GroupMeans().fit_statistics([2, 2], [1.0, 2.0], within=[1.0, 1.0], groups=["a", "a"])
    with pytest.raises(ValueError, match=r"n must be whole numbers of at least 0, got 1.5. See ro"):
        GroupMeans().fit_statistics([2, 1.5], [1.0, 2.0], within=[1.0, 1.0])
    with pytest.raises(ValueError, match="groups must be 2 labels, got 1"):
        GroupMeans().fit_statistics([2, 2], [1.0, 2.0], within=[1.0, 1.0], groups=["a"])
    with pytest.raises(ValueError, match=r"within must be at least 0, got -1.0"):
        GroupMeans().fit_statistics([2, 2], [1.0, 2.0], within=[1.0, -1.0])


def test_mixture_has_centers_and_responsibilities():
    draw = np.random.default_rng(0)
    place = np.repeat(np.arange(40), 5)
    centers = np.array([-4.0, 0.0, 4.0])
    y = centers[place % 3] + draw.normal(size=len(place))
    model = GroupMixture(3, seed=1).fit(y, place)
    np.testing.assert_allclose(np.sort(model.centers_), centers, atol=0.3)
    assert model.responsibilities_.shape == (40, 3)
    np.testing.assert_allclose(model.responsibilities_.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict([1, 4]), [0.0, 0.0], atol=0.3)
    assert model.predict([99])[0] == model.population_.mean
    assert model.probabilities_.sum() == pytest.approx(1)
    assert model.noise_variance_ == pytest.approx(1, abs=0.3)
    table = model.to_frame()
    assert [name for name in table if name.startswith("component_")] == [
        "component_0",
        "component_1",
        "component_2",
    ]
    with pytest.warns(EstimationWarning, match=r"draw together .* Use one round"):
        GroupMixture(3, method="paper", rounds=5).fit(y, place)
    known = GroupMixture(centers=centers, probabilities=[0.3, 0.4, 0.3], noise_variance=1.0)
    np.testing.assert_allclose(known.fit(y, place).centers_, centers)
    assert clone(known).get_params()["num_components"] == "auto"


def frames(y, labels):
    return {
        "pandas": pd.DataFrame({"y": y, "g": labels}),
        "polars": polars.DataFrame({"y": y, "g": labels.tolist()}),
    }


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_frame_in_is_a_frame_out(kind):
    y, labels, _ = rows()
    wanted = GroupMeans(above=2.0, ranks=True).fit(y, labels)
    table = frames(y, labels)[kind]
    found = GroupMeans(above=2.0, ranks=True).fit(table["y"], table["g"])
    same_estimates(found, wanted.estimates_)
    out = found.to_frame()
    assert type(out).__module__.startswith(kind)
    columns = ["group", "n", "raw", "personal", "weight", "lower", "upper", "above", "rank"]
    assert list(out.columns) == [*columns, "rank_lower", "rank_upper"]
    assert list(out["group"]) == found.groups_.tolist()
    np.testing.assert_array_equal(out["personal"].to_numpy(), found.personal_)
    np.testing.assert_array_equal(found.predict(table["g"]), wanted.predict(labels))


def test_arrays_in_are_columns_out():
    model = GroupRates.from_counts([1, 2, 3], [4, 5, 6])
    columns = model.to_frame()
    assert list(columns) == ["group", "n", "raw", "personal", "weight", "lower", "upper"]
    assert columns["n"].tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    "model", [GroupMeans(level=0.8), GroupRates(population="point"), GroupMixture(2, seed=3)]
)
def test_scikit_learn_conventions(model):
    params = model.get_params()
    twin = clone(model)
    assert twin.get_params() == params
    assert repr(twin) == repr(model)
    assert type(model)().set_params(**params).get_params() == params
    with pytest.raises(NotFittedError):
        model.predict(["a"])
    y, labels, _ = outcomes()
    assert twin.fit(y, labels) is twin
    assert twin.get_params() == params
    assert clone(twin).__dict__ == clone(model).__dict__
    back = pickle.loads(pickle.dumps(twin))
    np.testing.assert_array_equal(back.predict(labels), twin.predict(labels))
    assert "Group" in twin._repr_html_()


def test_a_fit_that_fails_leaves_no_model():
    model = GroupMeans()
    with pytest.raises(ValueError, match="finite"):
        model.fit([1.0, np.inf], ["a", "b"])
    with pytest.raises(NotFittedError):
        model.to_frame()


def test_a_second_fit_replaces_the_first():
    model = GroupRates().fit_counts([1, 2, 3], [4, 5, 6])
    first = model.interval([99])
    model.fit_counts([10, 20, 30, 5], [40, 50, 60, 9])
    assert model.interval([99]) != first
    assert len(model.groups_) == 4


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            GroupMeans(population="gausian"),
            r"GroupMeans: population must be one of .* Did you mean",
        ),
        (GroupMeans(fit_by="moment"), "GroupMeans: fit_by must be one of likelihood, moments"),
        (GroupMeans(level=1.0), "GroupMeans: level must be above 0 and below 1, got 1.0"),
        (GroupRates(population="gaussian"), "GroupRates: population must be one of beta"),
        (GroupRates(intervals="none"), "GroupRates: intervals must be one of default, robust"),
        (GroupMixture(2, method="em"), "GroupMixture: method must be one of default, paper"),
    ],
)
def test_parameters_are_checked_at_fit(model, message):
    y, labels, _ = outcomes()
    with pytest.raises(ValueError, match=message):
        model.fit(y, labels)


def test_bad_input_is_refused_in_one_clear_line():
    with pytest.raises(ValueError, match=r"y must be 0 or 1, got 2. See row 2 of 2. For counts"):
        GroupRates().fit([1, 2], ["a", "b"])
    with pytest.raises(TypeError, match="GroupRates: y must be numbers, got 'yes'"):
        GroupRates().fit(["yes", "no"], ["a", "b"])
    with pytest.raises(
        ValueError, match=r"successes must be at most the number of trials, got 5. See row 2"
    ):
        GroupRates().fit_counts([1, 5], [4, 4])
    with pytest.raises(
        ValueError, match=r"trials must be whole numbers of at least 0, got -4. See row 2"
    ):
        GroupRates().fit_counts([1, 0], [4, -4])
    with pytest.raises(ValueError, match=r"successes must be whole numbers of at least 0, got 0.5"):
        GroupRates().fit_counts([1, 0.5], [4, 4])
    with pytest.raises(ValueError, match="successes and trials must be of one length"):
        GroupRates().fit_counts([1], [4, 4])
    with pytest.raises(ValueError, match="successes and groups must be of one length"):
        GroupRates().fit_counts([1, 2], [4, 4], groups=["a"])
    with pytest.raises(ValueError, match="y and groups must be of one length"):
        GroupMeans().fit([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="number of rows must be at least 1"):
        GroupMeans().fit([], [])
    with pytest.raises(ValueError, match="one value per row"):
        GroupMeans().fit(np.zeros((2, 2, 2)), ["a", "b"])


def test_all_groups_of_size_one_are_not_identifiable_without_a_known_noise():
    with pytest.raises(ValueError, match=r"noise_variance|standard"):
        GroupMeans().fit([1.0, 2.0, 3.0, 5.0], list("abcd"))
    model = GroupMeans(noise_variance=0.5).fit([1.0, 2.0, 3.0, 5.0], list("abcd"))
    assert np.isfinite(model.personal_).all()


def test_a_size_that_carries_information_warns():
    draw = np.random.default_rng(0)
    n = draw.integers(2, 51, 2000)
    theta = draw.normal(0.15 * np.log(n / 15), 0.05 + 0.3 / np.sqrt(n))
    place = np.repeat(np.arange(2000), n)
    y = theta[place] + draw.normal(0, 0.5, len(place))
    with pytest.warns(EstimationWarning, match="by_size"):
        model = GroupMeans().fit(y, place)
    assert any("by_size" in note for note in model.notes_)
    with pytest.warns(EstimationWarning, match="by_size"):
        GroupRates().fit(y > 0, place)
    better = GroupMeans(by_size=True).fit(y, place)  # says nothing: warnings are errors here
    new, (lower, upper) = better.predict([-1])[0], better.interval([-1])
    assert new == pytest.approx(better.personal_[n == 2].mean(), abs=0.1)  # no rows: a small one
    assert lower[0] < new < upper[0]
    error = {one: ((one.personal_ - theta) ** 2).mean() for one in (model, better)}
    assert error[better] < error[model]


def test_loading_them_loads_neither_jax_nor_polars_nor_duckdb():
    code = (
        "import sys; import fedprior.estimation.table, fedprior.estimation.encoder; "
        "print([name for name in ('jax', 'polars', 'duckdb') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_docstring_examples():
    for module in (table, estimator):
        assert doctest.testmod(module).failed == 0


def test_a_subclass_may_have_other_parameters():
    class Mine(GroupRates):
        def __init__(self, extra=0, level=0.9):
            super().__init__(level=level, population="beta")
            self.extra = extra

    successes, labels = np.array([1, 0, 1, 1, 0, 1]), np.array(list("aabbcc"))
    model = Mine(extra=3).fit(successes, labels)
    assert (model.extra, model.level, model.population) == (3, 0.9, "beta")
    usual = GroupRates(level=0.9, population="beta").fit(successes, labels)
    np.testing.assert_array_equal(model.personal_, usual.personal_)
    assert clone(model).get_params() == {"extra": 3, "level": 0.9}
