"""Pages of regressions as data."""

import numpy as np
import pytest

from fedprior.pages.page import Curves, Intervals, Listing, Notes, Scatter, SmallTable
from fedprior.regression import PersonalClassifier, PersonalPoisson, PersonalRegression
from fedprior.regression.page import regression_page
from opened import blocks


def rows_of(number=40, each=12, seed=0):
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(number), each)
    x = draws.normal(size=len(place))
    line = draws.normal(0, 0.5, number)[place] + draws.normal(1, 0.5, number)[place] * x
    return draws, x[:, None], line, np.array([f"shop {one:02d}" for one in place], object)


@pytest.fixture(scope="module")
def linear():
    draws, x, line, groups = rows_of()
    return PersonalRegression().fit(x, line + draws.normal(0, 0.5, len(line)), groups)


def test_coefficients_then_groups_then_what_was_held_out(linear):
    page = linear.report().page
    assert [section.title for section in page.sections] == [
        "Coefficients",
        "Every group",
        "Predicted and held out",
        "All groups",
        "What was assumed and what was checked",
    ]
    held = linear.held_out()
    assert page.lead.startswith(held.sentence(0))
    assert f"{held.gain_over_pooled:.1f}% below that of a pooled fit" in page.lead


def test_each_coefficient_has_intervals_about_the_mean(linear):
    page = linear.report().page
    charts = blocks(page, Intervals)
    assert [chart.title for chart in charts] == linear.coefficient_names_
    for place, chart in enumerate(charts):
        lower, upper = linear.interval()
        columns = chart.rows.columns
        np.testing.assert_array_equal(columns[chart.value].values, linear.theta_[:, place])
        np.testing.assert_array_equal(columns[chart.lower].values, lower[:, place])
        np.testing.assert_array_equal(columns[chart.upper].values, upper[:, place])
        assert chart.line == pytest.approx(linear.population_.mean[place])
    grid = next(each for each in blocks(page, SmallTable) if each.title == "Population")
    assert [row[0] for row in grid.cells] == linear.coefficient_names_
    assert grid.cells[1][1].value == pytest.approx(linear.population_.mean[1])
    assert blocks(page, Listing)[0].rows is charts[0].rows


def test_separate_fits_are_beside_the_personal_ones(linear):
    apart = next(each for each in blocks(linear.report().page, Scatter) if each.diagonal)
    alone = linear.analysis_.separate()[:, 0]
    np.testing.assert_allclose(apart.rows.columns[apart.x].values, alone)


@pytest.mark.parametrize("feature", ["name", "kind", "n_separate"])
def test_a_feature_may_be_called_anything(feature):
    table = {"group": np.array(["a", "b", "c"], object), "n": np.array([4.0, 5, 6])}
    table |= {f"{feature}{end}": np.arange(3.0) for end in ("", "_error", "_lower", "_upper")}
    table |= {"component_1": np.array([0.9, 0.1, 0.2]), "component_2": np.array([0.1, 0.9, 0.8])}
    page = regression_page({"separate": {feature: [1.0, 2.0, 3.0]}}, table)
    (chart,), (listing,) = blocks(page, Intervals), blocks(page, Listing)
    assert chart.title == feature
    columns = chart.rows.columns
    assert list(columns["name"].values) == ["a", "b", "c"]
    assert list(columns["kind"].values) == ["kind 1", "kind 2", "kind 2"]
    assert chart.value in listing.columns
    np.testing.assert_array_equal(columns[chart.value].values, np.arange(3.0))
    assert columns[chart.lower].near == chart.value


def test_predictions_come_true_on_average(linear):
    (chart,) = blocks(linear.report().page, Curves)
    assert [curve.name for curve in chart.curves] == ["personal", "separate", "pooled"]
    personal = chart.curves[0]
    assert np.corrcoef(personal.x, personal.y)[0, 1] > 0.98
    assert np.mean(personal.x) == pytest.approx(np.mean(personal.y), abs=0.15)


def test_classes_are_predicted_as_probabilities():
    draws, x, line, groups = rows_of(seed=1)
    y = np.where(draws.random(len(line)) < 1 / (1 + np.exp(-line)), "yes", "no")
    page = PersonalClassifier().fit(x, y, groups).report().page
    (chart,) = blocks(page, Curves)
    assert chart.style == "percent"
    assert all(0 <= value <= 1 for curve in chart.curves for value in (*curve.x, *curve.y))
    assert next(fact for fact in page.facts if fact.label == "Classes").value == "yes"


def test_more_classes_have_coefficients_for_each():
    draws, x, line, groups = rows_of(seed=2, number=15)
    y = np.where(line > 0.7, "high", np.where(line < -0.7, "low", "middle"))
    y[draws.random(len(y)) < 0.3] = "middle"
    page = PersonalClassifier(fixed=[0]).fit(x, y, groups).report().page
    assert [chart.title for chart in blocks(page, Intervals)] == [
        "intercept[low]",
        "intercept[middle]",
    ]


def test_counts_are_checked_for_their_dispersion():
    draws, x, line, groups = rows_of(seed=3)
    page = PersonalPoisson().fit(x, draws.poisson(np.exp(line)), groups).report().page
    (told,) = blocks(page, Notes)
    assert next(note for note in told.items if note.title == "Counts").tone == "good"


def test_kinds_of_groups_color_the_dots():
    draws, x, _, groups = rows_of(seed=4)
    kind = np.repeat(np.arange(40) % 2, 12)
    y = np.where(kind, 3.0, -3.0) * x[:, 0] + draws.normal(0, 0.3, len(kind))
    model = PersonalRegression(population="discrete", num_components=2).fit(x, y, groups)
    page = model.report().page
    (cloud, *_) = blocks(page, Scatter)
    assert cloud.shade == "kind"
    found = np.array(cloud.rows.columns["kind"].values)
    assert len(set(found[::2])) == len(set(found[1::2])) == 1
    assert found[0] != found[1]
    grid = next(each for each in blocks(page, SmallTable) if each.title == "Kinds of groups")
    assert len(grid.cells) == 2
    (told,) = blocks(page, Notes)
    assert told.items[0].title == "Assumed: several kinds of groups"


def test_groups_too_small_to_hold_rows_out():
    draws = np.random.default_rng(5)
    x, groups = draws.normal(size=(40, 1)), np.repeat(np.arange(20), 2)
    page = PersonalRegression(fixed=[0]).fit(x, draws.normal(size=40), groups).report().page
    assert "Predicted and held out" not in [section.title for section in page.sections]
    (told,) = blocks(page, Notes)
    assert any(note.text.startswith("No held-out comparison") for note in told.items)


def test_a_page_on_disk(linear, tmp_path):
    report = linear.report(tmp_path / "p.html")
    assert "shop 07" not in report._repr_html_()
    assert report.path.stat().st_size < 200_000
