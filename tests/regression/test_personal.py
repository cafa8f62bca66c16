"""PersonalRegression, PersonalClassifier: scikit-learn's conventions over the fits beneath."""

import doctest
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedprior.estimation.groups import EstimationWarning
from fedprior.regression.face import personal
from fedprior.regression.face.holdout import held_out_rows
from fedprior.regression.face.personal import PersonalClassifier, PersonalRegression
from fedprior.regression.linear import fit_linear, local_linear, pooled_linear
from fedprior.regression.logistic import fit_logistic
from fedprior.regression.rows import GroupedRows

polars = pytest.importorskip("polars")

NAMES = np.array([f"g{number:02d}" for number in range(40)], object)


def drawn(seed=0, num_groups=40, noise=0.5):
    """Rows of 2 to 9 of each group in random order: features, target, labels, true theta."""
    draws = np.random.default_rng(seed)
    sizes = draws.integers(2, 10, num_groups)
    place = draws.permutation(np.repeat(np.arange(num_groups), sizes))
    theta = draws.normal([2.0, -1.0, 0.5], [0.8, 0.6, 0.0], (num_groups, 3))
    x = draws.normal(size=(len(place), 2))
    y = theta[place, 0] + (x * theta[place, 1:]).sum(axis=1) + noise * draws.normal(size=len(x))
    return x, y, NAMES[place], place, theta


def frame(x):
    return pd.DataFrame({"price": x[:, 0], "size": x[:, 1]})


@pytest.fixture(scope="module")
def fitted():
    x, y, labels, _, _ = drawn()
    return PersonalRegression(fixed="size").fit(frame(x), y, labels)


def test_it_is_the_fit_of_the_function_on_rows(fitted):
    x, y, _, place, _ = drawn()
    rows = GroupedRows.of(np.column_stack([np.ones(len(x)), x[:, 0]]), y, place, 40, fixed=x[:, 1:])
    wanted = fit_linear(rows, covariance="full", criterion="reml")
    assert fitted.coefficient_names_ == ["intercept", "price"]
    assert fitted.fixed_names_ == ["size"]
    assert fitted.covariance_kind_ == "full"
    assert fitted.groups_.tolist() == NAMES.tolist()
    assert fitted.n_.tolist() == rows.sizes.tolist()
    np.testing.assert_allclose(fitted.theta_, wanted.theta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fitted.theta_errors_, wanted.errors, rtol=1e-4)
    found = fitted.population_
    for name in ("mean", "mean_errors", "covariance", "fixed", "fixed_errors"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(wanted.population, name), rtol=1e-4, atol=1e-6
        )
    np.testing.assert_allclose(
        found.covariance_errors, wanted.population.covariance_errors, rtol=1e-3
    )
    assert fitted.noise_variance_ == pytest.approx(wanted.population.noise_variance, rel=1e-5)
    assert fitted.log_likelihood_ == pytest.approx(wanted.log_likelihood, abs=1e-6)


def test_predictions_are_rows_times_coefficients(fitted):
    x, y, labels, place, _ = drawn()
    found = fitted.predict(frame(x), labels)
    by_hand = fitted.theta_[place, 0] + fitted.theta_[place, 1] * x[:, 0]
    np.testing.assert_allclose(found, by_hand + fitted.fixed_[0] * x[:, 1])
    assert fitted.score(frame(x), y, labels) == pytest.approx(r2_score(y, found))


def test_an_unseen_group_has_the_population(fitted):
    asked = pd.DataFrame({"price": [2.0, 2.0, 2.0], "size": [1.0, 1.0, 1.0]})
    found = fitted.predict(asked, ["nowhere", None, "g03"])
    mean = fitted.population_.mean
    assert found[0] == found[1] == pytest.approx(mean @ [1.0, 2.0] + fitted.fixed_[0])
    assert found[2] != found[0]
    lower, upper = fitted.interval(["nowhere", "g03"])
    spread = np.diag(fitted.population_.covariance) + fitted.population_.mean_errors**2
    reach = stats.t.ppf(0.975, fitted.population_.freedom[:2])
    np.testing.assert_allclose(upper[0] - mean, reach * np.sqrt(spread))
    assert (upper[1] - lower[1] < upper[0] - lower[0]).all()
    every = fitted.interval()
    np.testing.assert_allclose((every[0] + every[1]) / 2, fitted.theta_)
    with pytest.raises(TypeError, match="groups must be text, as they were in fit"):
        fitted.predict(asked[:1], [3])


def test_share_between_is_the_intraclass_correlation():
    _, y, labels, _, _ = drawn()
    model = PersonalRegression(fixed=[0, 1]).fit(drawn()[0], y, labels)
    between = float(model.population_.covariance[0, 0])
    assert model.coefficient_names_ == ["intercept"]
    assert model.share_between_ == pytest.approx(between / (between + model.noise_variance_))
    both = PersonalRegression().fit(frame(drawn()[0]), y, labels)
    row = np.append(1.0, drawn()[0].mean(axis=0))
    at_row = row @ both.population_.covariance @ row
    assert both.share_between_ == pytest.approx(at_row / (at_row + both.noise_variance_))
    won = (y > np.median(y)).astype(int)
    classes = PersonalClassifier(fixed=[0, 1]).fit(drawn()[0], won, labels)
    odds = float(classes.population_.covariance[0, 0])
    assert classes.share_between_ == pytest.approx(odds / (odds + np.pi**2 / 3))


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from(["isotropic", "diagonal", "full"]),
    st.floats(-3, 3),
    st.floats(-3, 3),
)
def test_units_do_not_matter(covariance, first, second):
    """Coefficients follow the units of the features; predictions and the rest stay."""
    x, y, labels, _, _ = drawn()
    unit = np.array([10.0**first, 10.0**second])
    model = PersonalRegression(covariance=covariance)
    here, there = (clone(model).fit(each, y, labels) for each in (x, x * unit))
    scale = np.append(1.0, unit)
    np.testing.assert_allclose(there.theta_ * scale, here.theta_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(there.theta_errors_ * scale, here.theta_errors_, rtol=1e-3)
    np.testing.assert_allclose(
        there.predict(x * unit, labels), here.predict(x, labels), rtol=1e-3, atol=1e-4
    )
    ml = there.log_likelihood_ + np.log(unit).sum()  # the restricted one has the columns' lengths
    assert ml == pytest.approx(here.log_likelihood_, abs=1e-4)


def test_without_standardizing_isotropic_is_that_of_the_units():
    x, y, labels, place, _ = drawn()
    x = x * [1.0, 100.0]
    found = PersonalRegression(covariance="isotropic", standardize=False, criterion="ml")
    found.fit(x, y, labels)
    rows = GroupedRows.of(np.column_stack([np.ones(len(x)), x]), y, place, 40)
    wanted = fit_linear(rows, covariance="isotropic", criterion="ml")
    np.testing.assert_allclose(found.theta_, wanted.theta, rtol=1e-6)
    spread = np.diag(found.population_.covariance)
    assert spread == pytest.approx(np.full(3, spread[0]))


def test_center_moves_the_intercept_and_nothing_else():
    x, y, labels, _, _ = drawn()
    year = x + np.array([40.0, 0.0])
    plain = PersonalRegression(covariance="full").fit(year, y, labels)
    middle = PersonalRegression(covariance="full", center=True).fit(year, y, labels)
    np.testing.assert_allclose(middle.predict(year, labels), plain.predict(year, labels), atol=1e-3)
    np.testing.assert_allclose(middle.theta_[:, 1], plain.theta_[:, 1], atol=1e-3)
    assert abs(middle.population_.mean[0] - y.mean()) < 0.5
    far = PersonalRegression(covariance="diagonal").fit(year, y, labels)
    assert any(note.startswith("Features far from 0") and "x0" in note for note in far.notes_)
    near = PersonalRegression(covariance="diagonal", center=True).fit(year, y, labels)
    assert not any(note.startswith("Features far from 0") for note in near.notes_)
    assert near.held_out().personal < far.held_out().personal


@pytest.mark.parametrize("kind", [PersonalRegression, PersonalClassifier])
def test_center_is_that_of_fixed_features_too(kind):
    x, y, labels, _, _ = drawn()
    y = y if kind is PersonalRegression else (y > 2).astype(int)
    year = x + np.array([0.0, 2005.0])
    plain = kind(fixed=[1]).fit(year, y, labels)
    middle = kind(fixed=[1], center=True).fit(year, y, labels)
    at_mean = plain.population_.mean @ [1.0, year[:, 0].mean()]
    at_mean += plain.population_.fixed[0] * year[:, 1].mean()
    assert middle.population_.mean[0] == pytest.approx(at_mean, abs=1e-3)
    assert middle.population_.mean_errors[0] < 1 < plain.population_.mean_errors[0]
    np.testing.assert_allclose(
        middle.population_.fixed_errors, plain.population_.fixed_errors, rtol=1e-2
    )
    ask = "predict" if kind is PersonalRegression else "predict_proba"
    found, wanted = (getattr(each, ask)(year, labels) for each in (middle, plain))
    np.testing.assert_allclose(found, wanted, atol=1e-3)


@pytest.mark.parametrize(
    ("num_groups", "size", "features", "wanted"),
    [(40, 6, 2, "full"), (20, 6, 2, "diagonal"), (8, 6, 3, "isotropic"), (40, 2, 2, "diagonal")],
)
def test_the_covariance_is_as_rich_as_the_groups_allow(num_groups, size, features, wanted):
    draws = np.random.default_rng(1)
    place = np.repeat(np.arange(num_groups), size)
    x = draws.normal(size=(len(place), features))
    y = draws.normal(size=num_groups)[place] + draws.normal(size=len(place))
    assert PersonalRegression().fit(x, y, place).covariance_kind_ == wanted


def test_columns_constant_within_groups_get_one_coefficient():
    x, y, labels, place, _ = drawn()
    table = frame(x).assign(uranium=np.sin(place))
    model = PersonalRegression().fit(table, y, labels)
    assert model.fixed_names_ == ["uranium"]
    assert model.coefficient_names_ == ["intercept", "price", "size"]
    assert "one coefficient for all: uranium." in model.notes_[0]
    free = PersonalRegression(intercept=False).fit(table, y, labels)
    assert free.coefficient_names_ == ["price", "size", "uranium"]


def test_words_are_indicators():
    x, y, labels, _, _ = drawn()
    color = np.where(x[:, 1] > 0.5, "red", np.where(x[:, 1] < -0.5, "blue", "gray"))
    table = frame(x)[["price"]].assign(color=color)
    model = PersonalRegression(fixed=["color"]).fit(table, y, labels)
    assert model.fixed_names_ == ["color=gray", "color=red"]
    by_hand = np.column_stack([x[:, 0], color == "gray", color == "red"]).astype(float)
    other = PersonalRegression(fixed=[1, 2]).fit(by_hand, y, labels)
    np.testing.assert_allclose(model.theta_, other.theta_)
    ordered = table.assign(color=pd.Categorical(color, ["red", "gray", "blue"]))
    assert PersonalRegression(fixed=["color"]).fit(ordered, y, labels).fixed_names_ == [
        "color=gray",
        "color=blue",
    ]
    with pytest.raises(ValueError, match=r"column 'color' must be one of blue, gray, red, got 'p"):
        model.predict(table.assign(color="pink")[:1], labels[:1])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_frame_in_is_a_frame_out(fitted, kind):
    x, y, labels, _, _ = drawn()
    table = frame(x).assign(target=y, group=labels)
    if kind == "polars":
        table = polars.DataFrame({name: table[name].to_list() for name in table})
    model = PersonalRegression(fixed=["size"]).fit(
        table[["price", "size"]], table["target"], table["group"]
    )
    np.testing.assert_allclose(model.theta_, fitted.theta_)
    out = model.to_frame()
    assert type(out).__module__.startswith(kind)
    ends = ("", "_error", "_lower", "_upper")
    wanted = [f"{name}{end}" for name in ("intercept", "price") for end in ends]
    assert list(out.columns) == ["group", "n", *wanted]
    np.testing.assert_array_equal(out["price"].to_numpy(), model.theta_[:, 1])
    np.testing.assert_array_equal(
        model.predict(table[["price", "size"]], table["group"]), fitted.predict(frame(x), labels)
    )
    assert model.feature_names_in_.tolist() == ["price", "size"]
    arrays = PersonalRegression().fit(x, y, labels).to_frame()
    assert list(arrays)[:3] == ["group", "n", "intercept"]


def test_names_of_features_may_be_those_of_other_columns():
    x, y, labels, _, _ = drawn()
    table = pd.DataFrame({"n": x[:, 0], "intercept_Error": x[:, 1]})
    model = PersonalRegression().fit(table, y, labels)
    found = model.to_frame()
    assert list(found.columns) == [
        *("group", "n", "intercept", "intercept_error", "intercept_lower", "intercept_upper"),
        *(f"n_coefficient{end}" for end in ("", "_error", "_lower", "_upper")),
        *(f"intercept_Error_coefficient{end}" for end in ("", "_error", "_lower", "_upper")),
    ]
    assert (found["n"] == model.n_).all()
    table = table.rename(columns={"n": "intercept"})
    with pytest.raises(ValueError, match="'intercept' is reserved; rename the column"):
        PersonalRegression().fit(table, y, labels)


def test_missing_rows_are_dropped_and_counted_or_refused(fitted):
    x, y, labels, _, _ = drawn()
    table = pd.concat([frame(x), frame(np.array([[1.0, np.nan], [1.0, 1.0], [1.0, 1.0]]))])
    target, group = [*y, 1.0, None, 2.0], [*labels, "g00", "g01", None]
    model = PersonalRegression(fixed=["size"]).fit(table, target, group)
    np.testing.assert_allclose(model.theta_, fitted.theta_)
    assert model.num_dropped_ == 3
    assert (
        model.notes_[0] == "Rows dropped because the target, a feature or the group is missing: 3."
    )
    message = r"missing target, feature or group must be 0 in strict mode, got 3. The first is row"
    with pytest.raises(ValueError, match=message):
        PersonalRegression(strict=True).fit(table, target, group)
    with pytest.raises(ValueError, match=r"column 'size' must be present in every row, got nan"):
        model.predict(table[-3:], group[-3:])


def test_groups_may_have_one_row_and_fewer_rows_than_features():
    x, y, labels, _, _ = drawn()
    extra = np.vstack([x, [[0.5, 0.5]]])
    model = PersonalRegression().fit(extra, [*y, 9.0], [*labels, "alone"])
    assert model.n_[model.groups_ == "alone"] == 1
    assert np.isfinite(model.theta_).all()
    wide = np.random.default_rng(3).normal(size=(len(y), 12))
    model = PersonalRegression().fit(wide, y, labels)
    assert (model.n_ < 13).all()
    assert np.isfinite(model.theta_errors_).all()


def test_held_out_errors_are_those_of_three_fits(fitted):
    rows = fitted.analysis_.rows
    out = held_out_rows(rows, seed=3)
    taken = np.bincount(rows.place[out], minlength=40)
    assert (taken[rows.sizes >= 3] == np.maximum(rows.sizes[rows.sizes >= 3] // 4, 1)).all()
    assert (taken[rows.sizes < 3] == 0).all()
    found = fitted.held_out(seed=3)
    assert (found.metric, found.num_rows) == ("rmse", out.sum())
    stay, asked = rows.subset(~out), rows.subset(out)
    coefficients = pooled_linear(stay)[0]
    left = asked.y - asked.x @ coefficients[:2] - asked.fixed @ coefficients[2:]
    assert found.pooled == pytest.approx(np.sqrt((left**2).mean()))
    alone = (asked.x * local_linear(stay)[asked.place]).sum(axis=1)
    left = asked.y - alone - asked.fixed @ coefficients[2:]
    assert found.separate == pytest.approx(np.sqrt((left**2).mean()))
    assert found.gain_over_pooled == pytest.approx(100 * (1 - found.personal / found.pooled))
    assert found.personal < min(found.separate, found.pooled)
    assert fitted.held_out(seed=4) != found
    assert fitted.held_out(seed=3) == found


@pytest.mark.parametrize("population", ["mixture", "discrete"])
def test_kinds_of_groups(population):
    draws = np.random.default_rng(2)
    place = np.repeat(np.arange(60), 8)
    kind = np.arange(60) % 2
    center = np.array([[1.0, 2.0], [-1.0, -2.0]])
    theta = center[kind] + (0.1 if population == "mixture" else 0.0) * draws.normal(size=(60, 2))
    x = 50 * draws.normal(size=(480, 1))
    y = theta[place, 0] + theta[place, 1] * x[:, 0] / 50 + 0.5 * draws.normal(size=480)
    model = PersonalRegression(population=population, num_components=2).fit(x, y, place)
    parts = sorted(model.population_.components, key=lambda part: part.mean[0])
    np.testing.assert_allclose(parts[0].mean * [1, 50], center[1], atol=0.25)
    np.testing.assert_allclose(parts[1].mean * [1, 50], center[0], atol=0.25)
    assert model.responsibilities_.shape == (60, 2)
    assert list(model.to_frame())[2:5] == ["component_0", "component_1", "intercept"]
    np.testing.assert_allclose(model.theta_ * [1, 50], theta, atol=0.6)
    new = model.predict([[1.0]], [999])[0]
    assert new == pytest.approx(model.population_.mean @ [1.0, 1.0])


def outcomes(seed=0, classes="ny"):
    x, _, labels, place, theta = drawn(seed)
    draws = np.random.default_rng(seed)
    odds = 1.5 * (theta[place, 0] - 2) + 1.5 * x[:, 0]
    beside = [0 * odds, odds, 0.5 * x[:, 1]][: len(classes)]
    chosen = np.argmax(np.stack(beside, axis=1) + draws.gumbel(size=(len(x), len(classes))), axis=1)
    return x, np.array(list(classes))[chosen], labels, place


@pytest.fixture(scope="module")
def classified():
    x, y, labels, _ = outcomes()
    return PersonalClassifier(fixed=[1]).fit(x, y, labels)


def test_two_classes(classified):
    x, y, labels, place = outcomes()
    rows = GroupedRows.of(
        np.column_stack([np.ones(len(x)), x[:, 0]]), y == "y", place, 40, fixed=x[:, 1:]
    )
    wanted = fit_logistic(rows, covariance="full")
    np.testing.assert_allclose(classified.theta_, wanted.theta, rtol=1e-2, atol=1e-2)
    assert classified.classes_.tolist() == ["n", "y"]
    assert classified.noise_variance_ is None
    found = classified.predict_proba(x, labels)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(classified.predict_log_proba(x, labels), np.log(found))
    assert (classified.predict(x, labels) == np.where(found[:, 1] > 0.5, "y", "n")).all()
    assert classified.score(x, y, labels) == (classified.predict(x, labels) == y).mean()
    base = -np.mean(np.log(np.where(y == "y", (y == "y").mean(), (y == "n").mean())))
    assert log_loss(y, found) < base
    held = classified.held_out()
    assert held.metric == "log_loss"
    assert held.personal < held.separate


def test_an_unseen_group_is_averaged_over_the_population(classified):
    """Against a mean over 200,000 draws of theta: false alarm 1e-6, detects a bias of 0.3%."""
    x = np.array([[1.5, 0.5], [-2.0, 0.0]])
    found = classified.predict_proba(x, ["nowhere", None])[:, 1]
    population = classified.population_
    draws = np.random.default_rng(0).multivariate_normal(
        population.mean, population.covariance, 200_000
    )
    odds = np.column_stack([np.ones(2), x[:, 0]]) @ draws.T + classified.fixed_[0] * x[:, 1:]
    chance = 1 / (1 + np.exp(-odds))
    error = chance.std(axis=1) / np.sqrt(200_000)
    assert (np.abs(found - chance.mean(axis=1)) < 4.9 * error + 1e-4).all()


def test_three_classes():
    x, y, labels, _ = outcomes(classes="bac")
    model = PersonalClassifier(covariance="isotropic", approximation="laplace").fit(
        x[:, :1], y, labels
    )
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.coefficient_names_ == ["intercept[b]", "x0[b]", "intercept[c]", "x0[c]"]
    found = model.predict_proba(x[:, :1], labels)
    assert found.shape == (len(y), 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert model.score(x[:, :1], y, labels) > 0.5
    new = model.predict_proba([[0.5]], ["nowhere"])
    assert new.sum() == pytest.approx(1)
    assert 0 < model.share_between_ < 1


def test_separated_classes_are_held_by_the_prior():
    x, _, labels, _ = outcomes()
    model = PersonalClassifier(covariance="isotropic").fit(x[:, :1], x[:, 0] > 0, labels)
    assert np.isfinite(model.theta_).all()
    assert model.score(x[:, :1], x[:, 0] > 0, labels) > 0.95
    assert any("separate" in note for note in model.notes_)


def test_groups_are_routed_as_metadata():
    x, y, labels, _, _ = drawn()
    model = PersonalRegression(fixed=[1])
    with sklearn.config_context(enable_metadata_routing=True):
        asked = model.set_fit_request(groups=True).set_predict_request(groups=True)
        asked = asked.set_score_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), asked)
        pipeline.fit(x, y, groups=labels)
        assert pipeline.predict(x, groups=labels).shape == y.shape
        folds = KFold(3, shuffle=True, random_state=0)
        found = cross_validate(pipeline, x, y, params={"groups": labels}, cv=folds)
    assert (found["test_score"] > 0.5).all()
    assert clone(asked).get_params() == model.get_params()


@pytest.mark.parametrize(
    "model",
    [PersonalRegression(level=0.8, fixed=[1]), PersonalClassifier(fixed=[0, 1])],
)
def test_scikit_learn_conventions(model):
    params = model.get_params()
    twin = clone(model)
    assert twin.get_params() == params
    assert repr(twin) == repr(model)
    assert type(model)().set_params(**params).get_params() == params
    x, y, labels, _, _ = drawn()
    with pytest.raises(NotFittedError):
        model.predict(x, labels)
    y = y if isinstance(model, PersonalRegression) else y > 2
    assert twin.fit(x, y, labels) is twin
    assert twin.n_features_in_ == 2
    assert twin.get_params() == params
    assert clone(twin).__dict__ == clone(model).__dict__
    back = pickle.loads(pickle.dumps(twin))
    np.testing.assert_array_equal(back.predict(x, labels), twin.predict(x, labels))
    order = np.random.default_rng(0).permutation(len(y))
    again = clone(twin).fit(x[order], y[order], labels[order])
    np.testing.assert_allclose(again.theta_, twin.theta_, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="features"):
        twin.predict(x[:, :1], labels)
    with pytest.raises(ValueError, match="X and groups must be of one length"):
        twin.predict(x, labels[:-1])
    assert "Personal" in clone(twin)._repr_html_()
    assert f"Regressions of {len(twin.groups_)} groups" in twin._repr_html_()
    assert twin._repr_mimebundle_()["text/html"] == twin._repr_html_()


class ByDigit(PersonalRegression):
    """A regression that reads its groups off the first feature, for checks that give none."""

    def fit(self, X, y=None):
        return super().fit(X, y, self._groups(X))

    def predict(self, X):
        return super().predict(X, self._groups(X))

    def score(self, X, y, sample_weight=None):
        return r2_score(y, self.predict(X), sample_weight=sample_weight)

    @staticmethod
    def _groups(X):
        if hasattr(X, "toarray"):  # refused where it belongs
            X = X.toarray()
        table = np.asarray(X)
        if table.dtype.kind not in "biuf" or table.ndim < 2 or table.shape[1] == 0:
            return np.arange(table.shape[0] if table.ndim else 1) % 3
        cells = np.where(np.isfinite(table[:, 0]), table[:, 0], 0.0).astype(np.float64)
        return np.floor(1000 * np.abs(cells.round(6))) % 3


def refused(estimator):
    """What scikit-learn asks and groups, or a fit without noise, have no answer to."""
    few = "a population takes two groups"
    return {
        "check_dtype_object": "the message on a dictionary for a cell is our own",
        "check_estimators_nan_inf": "rows with missing features are left out of a fit",
        "check_fit2d_1sample": few,
        "check_regressors_no_decision_function": "an exact fit has no noise to learn",
    }


@parametrize_with_checks([ByDigit(covariance="isotropic")], expected_failed_checks=refused)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_a_fit_that_has_not_settled_warns():
    x, y, labels, _, _ = drawn()
    model = PersonalRegression(method="em", max_rounds=2)
    with pytest.warns(EstimationWarning, match="the fit did not converge; see notes_") as told:
        model.fit(x, y, labels)
    assert told[0].filename == __file__
    assert any("max_rounds" in note for note in model.notes_)


def test_a_fit_that_fails_leaves_no_model():
    x, y, labels, _, _ = drawn()
    model = PersonalRegression()
    with pytest.raises(ValueError, match=r"y must be finite, got inf. See row 1 of"):
        model.fit(x, [np.inf, *y[1:]], labels)
    with pytest.raises(NotFittedError):
        model.to_frame()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PersonalRegression(population="gausian"), r"population must be one of .* Did you mean"),
        (PersonalRegression(covariance="ful"), "PersonalRegression: covariance must be one of"),
        (PersonalRegression(criterion="aic"), "criterion must be one of auto, reml, ml"),
        (PersonalRegression(method="papr"), "method must be one of default, em, paper"),
        (
            PersonalRegression(population="discrete", max_rounds=9),
            "max_rounds must be None but for a gaussian population, got 9",
        ),
        (
            PersonalRegression(num_components="aic"),
            "num_components must be bic or a whole number of",
        ),
        (
            PersonalRegression(num_components=2),
            r"num_components must be bic, .* got 2. Take population='mixture' or 'discrete'",
        ),
        (
            PersonalClassifier(population="mixture", approximation="foo"),
            "PersonalClassifier: approximation must be one of auto, laplace, quadrature",
        ),
        (
            PersonalClassifier(population="mixture", approximation="laplace"),
            "approximation must be auto but for a gaussian population and the default method, got",
        ),
        (
            PersonalClassifier(method="paper", approximation="laplace"),
            "approximation must be auto but for a gaussian population and the default method, got",
        ),
        (PersonalRegression(level=1.0), "level must be below 1, got 1.0"),
        (PersonalRegression(intercept="yes"), "intercept must be True or False, got 'yes'"),
        (PersonalRegression(fixed=["colour"]), "fixed must be one of price, size, got 'colour'"),
        (PersonalRegression(fixed=[2]), "fixed must be a name, or a place below 2, got 2"),
        (
            PersonalRegression(fixed=[0, 1], intercept=False),
            "number of coefficients that vary by group must be 1 or more",
        ),
        (
            PersonalRegression(method="paper", criterion="reml"),
            "criterion must be ml .* but for numbers, a gaussian population and the default",
        ),
        (
            PersonalRegression(method="paper", covariance="full"),
            r"covariance must be isotropic .* with the paper's method, got 'full'",
        ),
        (
            PersonalRegression(population="mixture", criterion="reml"),
            "criterion must be ml",
        ),
        (
            PersonalRegression(population="discrete", covariance="full"),
            "PersonalRegression: covariance must be auto for a discrete population, whose members",
        ),
        (
            PersonalClassifier(population="mixture", method="paper", covariance="diagonal"),
            "PersonalClassifier: covariance must be isotropic .or auto. with the paper's method",
        ),
        (
            PersonalRegression(restarts=20),
            "PersonalRegression: restarts must be 8, which only the default method of mixture and",
        ),
        (
            PersonalRegression(population="mixture", method="paper", restarts=3),
            "PersonalRegression: restarts must be 8, which",
        ),
        (
            PersonalRegression(population="mixture", restarts=0),
            "PersonalRegression: restarts must be a whole number of at least 1, got 0",
        ),
    ],
    ids=str,
)
def test_parameters_are_checked_at_fit(model, message):
    x, y, labels, _, _ = drawn()
    with pytest.raises(ValueError, match=message):
        model.fit(frame(x), y, labels)


def test_bad_input_is_refused_in_one_clear_line():
    x, y, labels, _, _ = drawn()
    table = frame(x)
    for bad, message in (
        (
            table.assign(one=3.0),
            r"column 'one' must be of more than one value, got .*3.0.* the inte",
        ),
        (table.assign(word="same"), "column 'word' must be of more than one word, got 'same'"),
        (table.assign(none=None), "column 'none' has no values"),
        (
            table.assign(total=table["price"] + 2 * table["size"]),
            r"got 'total', a sum of 'price', 'size'. Leave one of them out",
        ),
        (table.assign(key=[f"k{n}" for n in range(len(y))]), "at most 50 distinct words"),
        (table.assign(price=np.where(x[:, 0] > 1, np.inf, 0)), "column 'price' must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            PersonalRegression().fit(bad, y, labels)
    with pytest.raises(ValueError, match="names of columns must be different, got 'price'"):
        PersonalRegression().fit(pd.concat([table, table[["price"]]], axis=1), y, labels)
    for group, message in (
        (["all"] * len(y), "number of groups must be at least 2, got 1"),
        (labels[:-1], "X and y and groups must be of one length"),
        ([None] * len(y), "rows with a target, all features and a group must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            PersonalRegression().fit(table, y, group)
    with pytest.raises(TypeError, match=r"column 'price' must be numbers, got 'two'"):
        PersonalRegression().fit(
            pd.DataFrame({"price": [1.0, "two", 3.0]}), [1.0, 2.0, 3.0], ["a", "a", "b"]
        )
    with pytest.raises(ValueError, match="number of rows must be more than the 3 coefficients"):
        PersonalRegression().fit(table[:3], y[:3], ["a", "a", "b"])
    with pytest.raises(
        ValueError, match=r"largest group must be of at least 2 rows, got 1. With one ro"
    ):
        PersonalRegression().fit(table, y, np.arange(len(y)))
    for kind in ("gaussian", "mixture"):
        with pytest.raises(
            ValueError, match=r"y must be of more than one value, got 3\.0\. There is"
        ):
            PersonalRegression(population=kind).fit(table, np.full(len(y), 3.0), labels)
    for target, message in (
        (
            np.ones(len(y)),
            r"number of classes in y must be at least 2, got 1. Every row is of class 1",
        ),
        (y, "y must be a class in every row, not continuous, got"),
        (np.arange(len(y)), "number of classes in y must be at most 50"),
    ):
        with pytest.raises(ValueError, match=message):
            PersonalClassifier().fit(table, target, labels)


def test_the_papers_method_says_when_it_collapses():
    x, y, labels, _, _ = drawn(noise=3.0)
    model = PersonalRegression(method="paper").fit(x, y, labels)
    assert model.covariance_kind_ == "isotropic"
    assert any("floor of the spread is active" in note for note in model.notes_)
    em = PersonalRegression(method="em", covariance="isotropic").fit(x, y, labels)
    ml = PersonalRegression(criterion="ml", covariance="isotropic").fit(x, y, labels)
    np.testing.assert_allclose(em.theta_, ml.theta_, atol=0.02)


def test_intervals_cover():
    """FALSE_ALARM = 1e-6: 4.9 binomial errors around 95%, which detects errors off by 7%."""
    FALSE_ALARM = 1e-6
    draws = np.random.default_rng(5)
    place = np.repeat(np.arange(1500), 6)
    theta = draws.normal([1.0, -1.0], [1.0, 0.5], (1500, 2))
    x = draws.normal(size=(len(place), 1))
    y = theta[place, 0] + theta[place, 1] * x[:, 0] + draws.normal(size=len(place))
    lower, upper = PersonalRegression().fit(x, y, place).interval()
    covered = ((lower < theta) & (theta < upper)).mean(axis=0)
    reach = stats.norm.isf(FALSE_ALARM / 4) * np.sqrt(0.95 * 0.05 / 1500)
    assert (np.abs(covered - 0.95) < reach).all(), covered


def test_notes_name_columns():
    x, y, labels, _, _ = drawn()
    model = PersonalRegression(covariance="diagonal").fit(frame(x), y, labels)
    assert model.population_.covariance[2, 2] == 0
    assert "No variation between groups was found in size." in model.notes_


def test_loading_it_loads_neither_jax_nor_polars_nor_duckdb():
    code = (
        "import sys; import fedprior.regression.face.personal; "
        "print([name for name in ('jax', 'polars', 'duckdb') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_docstring_examples():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doctest.testmod(personal).failed == 0
