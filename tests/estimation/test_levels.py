"""`GroupLevels`: groups within groups and groups that cross, for values, rates and events."""

import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import special, stats
from sklearn.base import clone

from fedprior import GroupLevels, GroupMeans
from fedprior.estimation import estimate_events, estimate_means, estimate_rates
from fedprior.estimation.statistics import Counts, Events, means_of

FALSE_ALARM = 1e-6
ROOT = Path(__file__).parents[2]


def real(name):
    given = os.environ.get("FEDPRIOR_DATA")
    root = Path(given) if given else ROOT.parent / "shared" / "data"
    path = root / "groups" / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"real data ({name}): set FEDPRIOR_DATA, or put it in ../shared/data")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {key: [row[key] for row in rows] for key in rows[0]}


def numbers(column):
    return np.array([float(cell) for cell in column])


def chosen(table, *names):
    return {name: table[name] for name in names}


def deviations(model):
    return {part.name: part.deviation for part in model.levels_.parts}


# Answers of lme4 1.1-31 on the same files.


def test_pastes_agree_with_lmer():
    table = real("pastes_nested")
    model = GroupLevels().fit(numbers(table["strength"]), chosen(table, "batch", "cask"))
    found = model.levels_
    expected = {"batch": 1.28737, "cask": 2.90408}
    assert deviations(model) == pytest.approx(expected, abs=1e-5)
    assert found.noise == pytest.approx(0.82341, abs=1e-5)
    assert found.log_likelihood == pytest.approx(-123.4954, abs=1e-4)
    assert found.whole.personal[0] == pytest.approx(60.05333, abs=1e-5)


def test_penicillin_agrees_with_lmer():
    table = real("penicillin_crossed")
    model = GroupLevels(structure="crossed")
    model.fit(numbers(table["diameter"]), chosen(table, "plate", "sample"))
    expected = {"plate": 0.84670, "sample": 1.93161}
    assert deviations(model) == pytest.approx(expected, abs=1e-4)
    assert model.levels_.noise == pytest.approx(0.54992, abs=1e-5)
    assert model.levels_.log_likelihood == pytest.approx(-165.4303, abs=1e-4)


@pytest.mark.parametrize("structure", ["nested", "crossed"])
def test_grouse_ticks_agree_with_glmer(structure):
    table = real("grouseticks")
    height = numbers(table["HEIGHT"])
    fixed = {"YEAR": table["YEAR"], "height": (height - height.mean()) / height.std(ddof=1)}
    model = GroupLevels(family="poisson", structure=structure)
    model.fit(numbers(table["TICKS"]), chosen(table, "LOCATION", "BROOD"), fixed=fixed)
    expected = {"LOCATION": 0.57414, "BROOD": 0.76965}
    assert deviations(model) == pytest.approx(expected, abs=1e-4)
    assert model.levels_.log_likelihood == pytest.approx(-987.938, abs=1e-3)
    found = dict(
        zip(model.levels_.coefficients.names, model.levels_.coefficients.values, strict=True)
    )
    expected = {"intercept": 0.46686, "YEAR=96": 1.16558, "YEAR=97": -0.97793, "height": -0.84664}
    assert found == pytest.approx(expected, abs=1e-4)


def test_cattle_disease_agrees_with_glmer():
    table = real("cbpp")
    model = GroupLevels(family="binomial").fit(
        numbers(table["incidence"]),
        chosen(table, "herd"),
        trials=numbers(table["size"]),
        fixed=chosen(table, "period"),
    )
    assert deviations(model)["herd"] == pytest.approx(0.642, abs=1e-3)
    assert model.levels_.log_likelihood == pytest.approx(-92.03, abs=0.005)


def test_laplace_is_near_quadrature_for_contraception():
    """Glmer with 25 points has sd .4786 and log-likelihood -1186.23 (about 32 women a district)."""
    table = real("contraception")
    age = numbers(table["age"])
    fixed = {"age": age, "age2": age**2, "urban": table["urban"], "livch": table["livch"]}
    model = GroupLevels(family="binomial")
    y = np.array([cell == "Y" for cell in table["use"]], float)
    model.fit(y, chosen(table, "district"), fixed=fixed)
    assert deviations(model)["district"] == pytest.approx(0.4786, abs=0.01)
    assert model.levels_.log_likelihood == pytest.approx(-1186.23, abs=0.5)


# Simulated groups.


def counties(num_states, *, per=6, family="gaussian", state=0.5, county=0.5, seed=0):
    """Rows of counties in states, and the true values of counties and states."""
    draws = np.random.default_rng([seed, num_states])
    of_county = np.repeat(np.arange(num_states), draws.integers(2, 2 * per, num_states))
    above = state * draws.normal(size=num_states)
    theta = above[of_county] + county * draws.normal(size=len(of_county))
    n = draws.integers(2, 31, len(of_county))
    inside = np.concatenate([np.arange(size) for size in np.bincount(of_county)])
    if family == "gaussian":
        place = np.repeat(np.arange(len(n)), n)
        y = theta[place] + 2 * draws.normal(size=len(place))
        groups = {"state": of_county[place], "county": inside[place]}
        return y, groups, theta, above, None
    groups = {"state": of_county, "county": inside}
    if family == "binomial":
        theta, above = special.expit(theta - 1), above - 1
        return draws.binomial(n, theta), groups, theta, above, n
    return draws.poisson(n * np.exp(theta) / 2), groups, np.exp(theta), above, n / 2


def fitted(family, num_states=8, **options):
    y, groups, theta, above, size = counties(num_states, family=family, **options)
    more = {"binomial": {"trials": size}, "poisson": {"exposure": size}}.get(family, {})
    return GroupLevels(family=family).fit(y, groups, **more), groups, theta, above


FAMILIES = ["gaussian", "binomial", "poisson"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_county_is_pulled_to_its_state_and_a_state_to_the_whole(family):
    model, *_ = fitted(family, num_states=30)
    found, state = model.estimates_, model.levels_.parts[0].values
    above = model.keys_["state"].astype(int)
    low = np.minimum(found.raw, state.personal[above]) - 1e-2
    high = np.maximum(found.raw, state.personal[above]) + 1e-2
    between = (found.personal > low) & (found.personal < high)
    assert between.mean() > 0.9  # rates are not linear in their effects
    assert ((found.weight > 0) & (found.weight < 1)).all()
    assert np.ptp(state.personal) < np.ptp(state.raw)


@pytest.mark.parametrize("family", FAMILIES)
def test_unseen_counties_get_the_value_of_their_state(family):
    model, *_ = fitted(family)
    state = model.levels_.parts[0].values
    asked = {"state": [0, 0, 3, 99, 99], "county": [99, 98, 99, 0, 1]}
    found = model.predict(asked)
    assert found[0] == pytest.approx(found[1])
    whole = model.levels_.whole.personal[0]
    expected = [state.personal[0], state.personal[0], state.personal[3], whole, whole]
    np.testing.assert_allclose(found, expected, rtol=0.03 if family != "gaussian" else 1e-9)
    lower, upper = model.interval(asked)
    wider = (upper - lower)[0] > (state.upper - state.lower)[0]
    assert wider
    assert (upper - lower)[3] > (upper - lower)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_seen_counties_are_looked_up(family):
    model, *_ = fitted(family)
    keys = {name: cells.tolist() for name, cells in model.keys_.items()}
    np.testing.assert_array_equal(model.predict(keys), model.estimates_.personal)
    np.testing.assert_array_equal(model.interval(keys)[0], model.estimates_.lower)


def test_cells_of_crossed_groups_may_be_new():
    draws = np.random.default_rng(0)
    user, item = draws.integers(0, 30, 300), draws.integers(0, 12, 300)
    y = draws.normal(size=30)[user] + draws.normal(size=12)[item] + draws.normal(size=300)
    model = GroupLevels(structure="crossed").fit(y, {"user": user, "item": item})
    seen = set(zip(user.tolist(), item.tolist(), strict=True))
    pair = next((u, i) for u in range(30) for i in range(12) if (u, i) not in seen)
    found = model.predict({"user": [pair[0], 99, 99], "item": [pair[1], pair[1], 99]})
    users, items = (part.values.personal for part in model.levels_.parts)
    whole = model.levels_.whole.personal[0]
    expected = [users[pair[0]] + items[pair[1]] - whole, items[pair[1]], whole]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("structure", ["nested", "crossed"])
def test_one_factor_agrees_with_group_means(structure):
    draws = np.random.default_rng(1)
    place = np.repeat(np.arange(150), draws.integers(2, 9, 150))
    y = draws.normal(size=150)[place] + draws.normal(size=len(place))
    model = GroupLevels(structure=structure).fit(y, {"shop": place})
    other = GroupMeans(noise="common").fit(y, place)
    np.testing.assert_allclose(model.estimates_.personal, other.personal_, atol=2e-3)
    np.testing.assert_allclose(model.estimates_.lower, other.lower_, atol=1e-2)
    assert model.levels_.parts[0].deviation == pytest.approx(
        other.population_.heterogeneity, rel=1e-2
    )


@pytest.mark.parametrize("how", ["pandas", "polars", "tuples", "array"])
def test_groups_come_in_many_forms(how):
    y, groups, *_ = counties(5)
    table = pd.DataFrame(groups)
    given = {
        "pandas": table,
        "polars": pl.DataFrame(groups),
        "tuples": [tuple(row) for row in table.to_numpy().tolist()],
        "array": table.to_numpy(),
    }[how]
    model = GroupLevels().fit(y, given)
    expected = GroupLevels().fit(y, groups)
    np.testing.assert_allclose(model.estimates_.personal, expected.estimates_.personal)
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(how, dict)
    assert isinstance(model.to_frame(), kind)


def test_the_table_has_a_row_for_every_group_of_every_level():
    y, groups, *_ = counties(5)
    found = pd.DataFrame(GroupLevels().fit(y, groups).to_frame())
    assert list(found.columns) == [
        *("level", "state", "county", "n", "raw", "personal", "weight", "lower", "upper")
    ]
    assert found["level"].value_counts()["all"] == 1
    assert found["level"].value_counts()["state"] == 5
    states, finest = found[found["level"] == "state"], found[found["level"] == "county"]
    assert states["county"].isna().all()
    assert finest["county"].notna().all()
    for level in ("state", "county"):
        assert found.loc[found["level"] == level, "n"].sum() == len(y)
    row = finest.iloc[7]
    inside = (groups["state"] == row["state"]) & (groups["county"] == row["county"])
    assert row["raw"] == pytest.approx(y[inside].mean())
    row = states.iloc[3]
    assert row["raw"] == pytest.approx(y[groups["state"] == row["state"]].mean())


def test_columns_named_like_results_keep_their_names():
    y, groups, *_ = counties(4)
    renamed = {"n": groups["state"], "level": groups["county"]}
    found = GroupLevels().fit(y, renamed).to_frame()
    assert list(found)[:4] == ["level_", "n", "level", "n_"]


def test_values_far_from_zero_lose_no_digits():
    y, groups, *_ = counties(6)
    near, far = GroupLevels().fit(y, groups), GroupLevels().fit(y + 1e6, groups)
    np.testing.assert_allclose(far.estimates_.personal - 1e6, near.estimates_.personal, atol=1e-6)
    assert deviations(far) == pytest.approx(deviations(near), rel=1e-6)


def test_units_scale():
    y, groups, *_ = counties(6)
    one, other = GroupLevels().fit(y, groups), GroupLevels().fit(1e-3 * y, groups)
    np.testing.assert_allclose(
        1e-3 * one.estimates_.lower, other.estimates_.lower, rtol=1e-5, atol=1e-8
    )


def test_known_standard_errors_stand_for_the_noise():
    draws = np.random.default_rng(2)
    state = np.repeat(np.arange(12), 5)
    errors = draws.uniform(0.2, 1, 60)
    theta = draws.normal(size=12)[state] + 0.5 * draws.normal(size=60)
    y = theta + errors * draws.normal(size=60)
    groups = {"state": state, "study": np.arange(60)}
    model = GroupLevels().fit(y, groups, standard_errors=errors)
    assert model.levels_.noise is None
    assert model.estimates_.n.tolist() == [1] * 60
    assert ((model.estimates_.personal - theta) ** 2).mean() < ((y - theta) ** 2).mean()
    same = GroupLevels(noise_variance=0.25).fit(y, groups)
    other = GroupLevels().fit(y, groups, standard_errors=np.full(60, 0.5))
    np.testing.assert_allclose(same.estimates_.personal, other.estimates_.personal)


def test_missing_values_and_labels_are_dropped():
    y, groups, *_ = counties(6)
    y, state = y.copy(), groups["state"].astype(object)
    y[3], state[5] = np.nan, None
    model = GroupLevels().fit(y, {"state": state, "county": groups["county"]})
    assert model.num_dropped_ == 2
    assert "Rows dropped because the value or a group is missing: 2." in model.notes_
    keep = np.ones(len(y), bool)
    keep[[3, 5]] = False
    kept = {name: each[keep] for name, each in groups.items()}
    whole = GroupLevels().fit(y[keep], kept)
    np.testing.assert_allclose(model.estimates_.personal, whole.estimates_.personal)
    with pytest.raises(ValueError, match="0 in strict mode, got 2"):
        GroupLevels(strict=True).fit(y, {"state": state, "county": groups["county"]})


def test_groups_without_trials_or_exposure_get_the_value_of_their_state():
    for family, name in {"binomial": "trials", "poisson": "exposure"}.items():
        y, groups, *_, size = counties(6, family=family)
        y, size = np.append(y, 0), np.append(size, 0)
        groups = {"state": np.append(groups["state"], 2), "county": np.append(groups["county"], 99)}
        model = GroupLevels(family=family).fit(y, groups, **{name: size})
        empty = np.flatnonzero(model.estimates_.n == 0)
        assert len(empty) == 1
        assert np.isnan(model.estimates_.raw[empty[0]])
        assert model.estimates_.weight[empty[0]] == 0
        state = model.levels_.parts[0].values.personal[2]
        assert model.estimates_.personal[empty[0]] == pytest.approx(state, rel=0.01)


def test_the_estimator_can_be_cloned():
    model = clone(GroupLevels(family="poisson", structure="crossed", level=0.9))
    assert model.get_params()["family"] == "poisson"


@pytest.mark.parametrize("family", FAMILIES)
def test_one_hundred_thousand_counties(family):
    draws = np.random.default_rng(0)
    state = draws.integers(0, 50, 100_000)
    theta = 0.5 * draws.normal(size=50)[state] + 0.7 * draws.normal(size=100_000) - 1
    n = draws.integers(2, 40, 100_000)
    more = {}
    if family == "gaussian":
        y, more = theta + draws.normal(size=100_000) / np.sqrt(n), {"standard_errors": n**-0.5}
    elif family == "binomial":
        y, more = draws.binomial(n, special.expit(theta)), {"trials": n}
    else:
        y, more = draws.poisson(n * np.exp(theta)), {"exposure": n}
    groups = {"state": state, "county": np.arange(100_000)}
    model = GroupLevels(family=family).fit(y, groups, **more)
    assert deviations(model) == pytest.approx({"state": 0.5, "county": 0.7}, abs=0.15)
    assert abs(deviations(model)["county"] - 0.7) < 0.03


def test_one_hundred_thousand_users_cross_one_hundred_items():
    draws = np.random.default_rng(0)
    user, item = draws.integers(0, 100_000, 300_000), draws.integers(0, 100, 300_000)
    y = 0.7 * draws.normal(size=100_000)[user] + 0.5 * draws.normal(size=100)[item]
    y = y + draws.normal(size=300_000)
    model = GroupLevels(structure="crossed").fit(y, {"user": user, "item": item})
    assert deviations(model)["user"] == pytest.approx(0.7, abs=0.02)
    assert model.levels_.noise == pytest.approx(1, abs=0.02)


# What is refused.


@pytest.mark.parametrize(
    ("options", "fit", "match"),
    [
        ({"family": "gamma"}, {}, "family must be one of gaussian, binomial, poisson"),
        ({"structure": "tree"}, {}, "structure must be one of nested, crossed"),
        ({"level": 1.0}, {}, "level must be below 1"),
        ({"family": "binomial", "criterion": "reml"}, {"y": [0, 1] * 6}, "criterion must be ml"),
        ({"noise_variance": 0.0}, {}, "noise_variance must be a positive number"),
        ({"family": "binomial"}, {"y": [0.5] * 12}, "y must be whole numbers of at least 0"),
        ({"family": "binomial"}, {"y": [2] * 12}, "y must be at most the number of trials"),
        ({"family": "binomial"}, {"y": [0] * 12}, "number of successes must be above 0"),
        ({"family": "binomial"}, {"y": [1] * 12}, "number of successes must be below the number"),
        ({"family": "poisson"}, {"y": [0] * 12}, "number of events must be above 0"),
        (
            {"family": "poisson"},
            {"y": [1] * 12, "exposure": [-1] * 12},
            "exposure must be at least",
        ),
        ({"family": "poisson"}, {"y": [1] * 12, "exposure": [0] * 12}, "0 where exposure is 0"),
        ({}, {"y": [1.0] * 12}, "values must be of more than one value"),
        ({}, {"y": np.repeat(np.arange(6.0), 2)}, "the rows of every group are equal"),
        ({}, {"groups": {"s": [0] * 12, "c": np.arange(12) % 4}}, "number of groups 's' must be"),
        (
            {},
            {"groups": {"s": np.arange(12) % 4, "c": [0] * 12}},
            "every 's' has one 'c' only, so that the two cannot be told apart",
        ),
        (
            {},
            {"groups": {"s": np.arange(12) % 4, "c": np.arange(12)}},
            "number of rows must be more than the 12 groups, got 12",
        ),
        ({}, {"trials": [1] * 12}, "trials belong to the family binomial"),
        ({}, {"exposure": [1] * 12}, "exposure belong to the family poisson"),
        ({"family": "poisson"}, {"standard_errors": [1] * 12}, "belong to the family gaussian"),
        ({}, {"standard_errors": [0] * 12}, "standard_errors must be above 0"),
        ({}, {"groups": {"s": [0, 1], "c": [0, 1]}}, "of one length"),
        ({}, {"fixed": {"x": [1.0] * 12}}, "covariate 'x' must be of more than one value"),
        ({}, {"fixed": {"x": [1.0, 2.0]}}, "fixed must be one row for each of the 12 rows"),
        ({}, {"y": [np.inf] * 12}, "y must be finite"),
    ],
)
def test_bad_input_is_refused_in_one_line(options, fit, match):
    given = {"y": np.sin(np.arange(12.0)), "groups": {"s": np.arange(12) // 6}}
    given["groups"]["c"] = np.arange(12) // 2
    if options.get("family") in ("binomial", "poisson"):
        given["y"] = np.arange(12) % 2
    given |= fit
    with pytest.raises((ValueError, TypeError), match=match) as raised:
        GroupLevels(**options).fit(given.pop("y"), given.pop("groups"), **given)
    assert "\n" not in str(raised.value)


def test_predict_needs_all_columns():
    y, groups, *_ = counties(4)
    model = GroupLevels().fit(y, groups)
    with pytest.raises(
        ValueError, match="columns of groups must be 'state', 'county', got \\['state'\\]"
    ):
        model.predict({"state": [1]})


# Coverage and gain.


def measured(family, num_states, runs, state=0.5, county=0.5):
    """Gains over raw values, of nested and un-nested estimates, and coverage of intervals."""
    found = []
    for seed in range(runs):
        model, _, theta, above = fitted(
            family, num_states, per=8, state=state, county=county, seed=seed
        )
        estimates, whole = model.estimates_, model.levels_.whole
        values = model.levels_.parts[0].values
        n, raw = estimates.n, estimates.raw
        if family == "gaussian":
            y, groups, *_ = counties(num_states, per=8, state=state, county=county, seed=seed)
            key = np.unique(np.array([groups["state"], groups["county"]]), axis=1, return_inverse=True)[1]  # fmt: skip # noqa: E501
            flat = estimate_means(means_of(y, key.ravel(), len(n)), noise="common")
        elif family == "binomial":
            flat = estimate_rates(Counts(n=n, successes=np.rint(n * raw).astype(int)))
        else:
            flat = estimate_events(Events(exposure=n, events=np.rint(n * raw).astype(int)))
        nodes, weights = special.roots_hermitenorm(31)
        inverse = {"gaussian": lambda z: z, "binomial": special.expit, "poisson": np.exp}[family]

        def averaged(center, spread, inverse=inverse, nodes=nodes, weights=weights):
            values = inverse(np.asarray(center)[..., None] + spread * nodes)
            return (values * weights).sum(axis=-1) / weights.sum()

        center = -1.0 if family == "binomial" else 0.0
        states, mean = averaged(above, county), averaged(center, np.hypot(state, county))
        inside = [
            np.mean((low <= truth) & (truth <= high))
            for low, truth, high in (
                (estimates.lower, theta, estimates.upper),
                (flat.lower, theta, flat.upper),
                (values.lower, states, values.upper),
                (whole.lower, mean, whole.upper),
            )
        ]
        errors = [np.mean((each - theta) ** 2) for each in (estimates.personal, flat.personal, raw)]
        found.append([*errors, *inside])
    nested, flat, raw, *inside = np.mean(found, axis=0)
    return 100 * (1 - nested / raw), 100 * (1 - flat / raw), *(100 * each for each in inside)


@pytest.mark.evidence
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_states", [3, 10, 50])
@pytest.mark.parametrize("spreads", [(0.5, 0.5), (0.1, 0.5), (0.5, 0.1)])
def test_coverage_and_gain(family, num_states, spreads, record_property):
    """The table of docs/explanation/estimation.md."""
    runs = int(os.environ.get("FEDPRIOR_RUNS", {3: 600, 10: 400, 50: 100}[num_states]))
    found = measured(family, num_states, runs, *spreads)
    names = ("gain", "flat gain", "counties", "flat counties", "states", "whole")
    for name, value in zip(names, found, strict=True):
        record_property(name, round(float(value), 1))
    print(f"| {family} | {num_states} | {spreads} | " + " | ".join(f"{v:.1f}" for v in found))  # noqa: T201
    nested, flat, counties_in, _, states_in, whole_in = found
    error = 100 * np.sqrt(0.95 * 0.05 / runs)
    slack = error * float(stats.norm.isf(FALSE_ALARM)) / np.sqrt(num_states)
    assert nested > flat - 4
    assert counties_in > 93 - slack / 2
    assert states_in > 92 - slack
    assert whole_in > 90 - error * float(stats.norm.isf(FALSE_ALARM))


def test_nested_estimates_beat_those_of_one_level_and_cover():
    """A quick look at the same: 40 runs of 10 states; coverage below 90% would be noticed."""
    nested, flat, inside, *_ = measured("gaussian", 10, 40)
    assert nested > flat + 3
    assert 92 < inside < 98


# Numbers at the edge.


def test_values_that_groups_explain_to_the_digit_are_refused():
    a, b = np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6)
    with pytest.raises(ValueError, match="the groups explain all values to the digit"):
        GroupLevels(structure="crossed").fit(a + 2.0 * b, {"a": a, "b": b})


def test_errors_of_nearly_nothing_leave_raw_values():
    draws = np.random.default_rng(0)
    groups = {"state": np.repeat(np.arange(6), 8), "county": np.arange(48)}
    y = draws.normal(size=48) + 3.0 * groups["state"]
    model = GroupLevels().fit(y, groups, standard_errors=np.full(48, 1e-9))
    np.testing.assert_allclose(model.estimates_.personal, y, rtol=1e-9)
    assert model.levels_.parts[1].deviation == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("shift", [1e12, -1e12])
def test_huge_values_are_values(shift):
    y, groups, *_ = counties(6)
    model = GroupLevels().fit(shift + 1e6 * y, groups)
    near = GroupLevels().fit(y, groups)
    assert model.levels_.noise == pytest.approx(1e6 * near.levels_.noise, rel=1e-3)


def test_states_without_differences_have_deviation_0_and_a_note():
    draws = np.random.default_rng(5)
    groups = {
        "state": np.repeat(np.arange(8), 30),
        "county": np.tile(np.repeat(np.arange(6), 5), 8),
    }
    y = draws.normal(size=240)
    y -= np.bincount(groups["state"], y)[groups["state"]] / 30  # less than by chance
    model = GroupLevels().fit(y, groups)
    assert model.levels_.parts[0].deviation == 0
    assert np.isnan(model.levels_.parts[0].error)
    assert "The groups 'state' do not differ by more than chance" in model.notes_[0]
    assert (model.estimates_.upper > model.estimates_.lower).all()


def test_columns_that_separate_outcomes_are_named():
    draws = np.random.default_rng(0)
    groups = {"s": np.repeat(np.arange(4), 12), "c": np.tile(np.repeat(np.arange(4), 3), 4)}
    x = draws.normal(size=48)
    model = GroupLevels(family="binomial").fit(x > 0, groups, fixed={"x": x})
    assert "hardly bound the coefficients of x" in model.notes_[0]


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_few_events_give_finite_answers_in_order(family):
    groups = {"s": np.repeat(np.arange(4), 12), "c": np.tile(np.repeat(np.arange(4), 3), 4)}
    model = GroupLevels(family=family).fit((np.arange(48) % 23 == 0) * 1, groups)
    found = model.estimates_
    assert np.isfinite(found.personal).all()
    assert ((found.lower >= 0) & (found.lower < found.upper)).all()
    assert (found.upper > found.personal).all()


def test_standard_errors_are_those_of_the_curvature():
    """In all parameters, the logarithms of the deviations and of the noise, by differences."""
    y, groups, *_ = counties(20)
    levels = GroupLevels(criterion="ml").fit(y, groups).levels_
    deviation = [*(part.deviation for part in levels.parts), levels.noise]
    state, county = groups["state"], groups["county"]
    cell = np.unique(state * 1000 + county, return_inverse=True)[1]
    blocks = [np.flatnonzero(state == each) for each in np.unique(state)]

    def twice(logs):
        between, within, noise = np.exp(2 * np.asarray(logs))
        inverses, determinant = [], 0.0
        for rows in blocks:  # states are independent
            total = between + within * (cell[rows, None] == cell[rows]) + noise * np.eye(len(rows))
            inverses.append(np.linalg.inv(total))
            determinant += np.linalg.slogdet(total)[1]
        ones = np.empty(len(y))
        for rows, inverse in zip(blocks, inverses, strict=True):
            ones[rows] = inverse.sum(axis=0)
        left = y - ones @ y / ones.sum()
        pairs = zip(blocks, inverses, strict=True)
        return determinant + sum(left[rows] @ inverse @ left[rows] for rows, inverse in pairs)

    at, step = np.log(deviation), 0.02
    curvature = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            ends = [
                sign * other * twice(at + step * (sign * np.eye(3)[i] + other * np.eye(3)[j]))
                for sign in (1, -1)
                for other in (1, -1)
            ]
            curvature[i, j] = sum(ends) / (4 * step**2)
    errors = np.sqrt(np.diag(2 * np.linalg.inv(curvature))) * deviation
    found = [*(part.error for part in levels.parts), levels.noise_error]
    np.testing.assert_allclose(found, errors, rtol=0.02)
