"""Pages of estimates as data: what stands where, for each kind of estimate."""

import numpy as np
import pytest

from fedprior.estimation import (
    GroupEvents,
    GroupLevels,
    GroupMeans,
    GroupMixture,
    GroupRates,
    GroupShares,
)
from fedprior.estimation.conjugate.estimate import estimate_rates
from fedprior.estimation.page import groups as pages
from fedprior.estimation.page.answer import Summarized
from fedprior.estimation.private.rates import estimate_rates_privately
from fedprior.estimation.statistics import Counts
from fedprior.pages.page import Intervals, Listing, Notes, Scatter, SmallTable, Stacked
from opened import blocks, titles

NAMES = np.array([f"ward {number:02d}" for number in range(60)], object)


def counted(number=60, seed=0):
    draws = np.random.default_rng(seed)
    n = np.exp(draws.uniform(1.5, 5, number)).astype(int)
    return n, draws.binomial(n, draws.beta(6, 14, number))


@pytest.fixture(scope="module")
def rates():
    n, won = counted()
    return GroupRates(above=0.4).fit_counts(won, n, NAMES)


def notes(page):
    return {note.title: note for block in blocks(page, Notes) for note in block.items}


def test_sections_stand_in_the_order_of_what_matters(rates):
    page = rates.report().page
    assert titles(page) == [
        "Every group",
        "Largest changes",
        "Ranks",
        "For whom sharing helps",
        "All groups",
        "What was assumed and what was checked",
    ]
    assert page.lead.startswith(rates.sentence_)
    assert "Small groups gain most" in page.lead
    labels = [fact.label for fact in page.facts]
    assert labels == [
        "Groups",
        "Gain over raw values",
        "Gain over one common value",
        "Weight on own data",
        "Population mean",
        "Groups differ by",
    ]
    assert page.facts[1].value.value == pytest.approx(rates.gain_over_raw_ / 100)
    assert page.facts[4].value.value == pytest.approx(rates.population_.mean)


def test_charts_share_the_rows_of_the_table(rates):
    page = rates.report().page
    first, ranks = blocks(page, Intervals)
    (cloud,) = blocks(page, Scatter)
    (table,) = blocks(page, Listing)
    assert first.rows is cloud.rows is table.rows is ranks.rows
    columns = first.rows.columns
    assert list(columns["name"].values) == NAMES.tolist()
    np.testing.assert_array_equal(columns["personal"].values, rates.personal_)
    np.testing.assert_array_equal(columns["above"].values, rates.above_)
    assert columns["personal"].style == "percent"
    assert {columns[name].near for name in ("raw", "lower", "upper")} == {"personal"}
    assert first.line == pytest.approx(float(rates.population_.mean))
    middle = np.average(cloud.margin.x, weights=cloud.margin.y)
    assert middle == pytest.approx(float(rates.population_.mean), rel=0.05)


def test_the_largest_changes_come_first(rates):
    grid = next(
        each for each in blocks(rates.report().page, SmallTable) if "changed most" in each.title
    )
    moved = np.abs(rates.personal_ - rates.raw_)
    assert [row[0] for row in grid.cells] == NAMES[np.argsort(-moved, kind="stable")[:10]].tolist()
    place = int(np.argmax(moved))
    name, size, raw, personal, change, weight = grid.cells[0]
    assert (size.value, raw.value) == (rates.n_[place], rates.raw_[place])
    assert change.value == pytest.approx(100 * (personal.value - raw.value))
    assert (grid.head[4], change.style) == ("change (points)", "number")
    assert change.sign
    assert weight.value == pytest.approx(rates.weight_[place])
    assert name == NAMES[place]


def test_gains_by_size_add_up_to_the_gain_of_all():
    n, won = counted(4000, seed=3)
    model = GroupRates().fit_counts(won, n)
    answer = Summarized(
        summary={**model.estimates_.summary(), "kind": "rates"},
        table={"group": np.arange(4000), **model.estimates_.columns()},
    )
    everybody = pages.gain_of(answer, np.arange(4000))
    assert everybody == pytest.approx(model.gain_over_raw_, abs=0.5)
    grid = pages.by_size(answer)
    gains = [row[-1].value for row in grid.cells]
    assert sorted(gains, reverse=True) == gains
    assert sum(row[1].value for row in grid.cells) == 4000


def means_of(sizes, *, noise="auto", seed=1):
    draws = np.random.default_rng(seed)
    place = np.repeat(np.arange(len(sizes)), sizes)
    values = draws.normal(0, 1, len(sizes))[place] + draws.normal(0, 2, len(place))
    return GroupMeans(noise=noise).fit(values, place)


def test_gains_by_size_are_left_out_where_they_are_not_those_of_all():
    model = means_of([3, 4, 5, 6, 7, 9, 12, 15, 20])  # few groups: the gain allows for the fit
    page = model.report().page
    answer = Summarized(
        summary={**model.estimates_.summary(), "kind": "means"},
        table={"group": NAMES[:9], **model.estimates_.columns()},
    )
    apart = abs(pages._gain(answer, np.arange(9)) - model.gain_over_raw_)
    assert apart > 1
    assert page.lead == model.sentence_
    grid = next(each for each in blocks(page, SmallTable) if each.title == "Groups by size")
    assert grid.head[-1] == "typical half interval"
    helps = next(each for each in page.sections if each.title == "For whom sharing helps")
    assert "Errors" not in helps.text


@pytest.mark.parametrize("noise", ["common", "moderated"])
def test_gains_by_size_take_equal_noise(noise):
    sizes = np.random.default_rng(0).integers(3, 60, 4000)
    model = means_of(sizes, noise=noise)
    assert model.estimates_.checks.get("noise", "") == ""  # nothing that a test has found
    grid = next(
        each for each in blocks(model.report().page, SmallTable) if each.title == "Groups by size"
    )
    assert (grid.head[-1] == "lower error than raw") == (noise == "common")


def test_a_check_is_passed_only_if_it_was_made(rates):
    assert notes(rates.report().page)["Small and large groups"].tone == "good"
    few = GroupRates().fit_counts([1, 3, 5, 9], [10, 20, 30, 40])
    told = notes(few.report().page)
    assert few.estimates_.checks == {}
    for title in ("Shape of the population", "Small and large groups", "Rows of one group"):
        assert told[title].tone == "plain"
        assert told[title].text.startswith("Not tested")


def test_a_check_that_fails_is_a_warning_with_its_note():
    draws = np.random.default_rng(4)
    n = np.repeat([4, 400], 300)
    won = draws.binomial(n, np.where(n > 10, 0.6, 0.2))
    with pytest.warns(UserWarning, match="carries information"):
        model = GroupRates().fit_counts(won, n)
    found = model.estimates_.checks["size"]
    assert found in model.notes_
    note = notes(model.report().page)["Small and large groups"]
    assert note.tone == "warning"
    assert note.text.startswith(found)


def test_groups_of_one_size_have_no_section_on_size():
    model = GroupRates().fit_counts([2, 4, 6, 8] * 5, [20] * 20)
    page = model.report().page
    assert "For whom sharing helps" not in titles(page)
    assert page.lead == model.sentence_
    assert blocks(page, Scatter)[0].shade == ""  # all weights are equal


def test_ranks_are_left_out_of_many_groups():
    n, won = counted(20_001)
    page = GroupRates().fit_counts(won, n).report().page
    assert "Ranks" not in titles(page)


def test_means_with_standard_errors_are_a_meta_analysis():
    draws = np.random.default_rng(5)
    errors = draws.uniform(0.1, 1, 12)
    model = GroupMeans().fit(draws.normal(0, 1, 12), NAMES[:12], standard_errors=errors)
    page = model.report().page
    assert page.title.startswith("Meta-analysis")
    funnel = next(each for each in blocks(page, Scatter) if each.y == "error")
    np.testing.assert_allclose(funnel.rows.columns["error"].values, errors)
    assert titles(page)[1] == "Meta-analysis"


def test_covariates_have_a_table_of_coefficients():
    draws = np.random.default_rng(6)
    place = np.repeat(np.arange(40), 5)
    beds = np.arange(40.0)[place]
    value = 0.1 * beds + draws.normal(size=200)
    page = GroupMeans().fit(value, NAMES[place], covariates={"beds": beds}).report().page
    grid = next(each for each in blocks(page, SmallTable) if each.title == "Coefficients")
    assert [row[0] for row in grid.cells] == ["intercept", "beds"]
    assert grid.cells[1][1].value == pytest.approx(0.1, abs=0.05)
    assert blocks(page, Scatter)[0].margin is None  # there is no one population


def test_events_are_rates_of_an_exposure():
    draws = np.random.default_rng(7)
    exposure = draws.uniform(1, 50, 40)
    model = GroupEvents().fit(draws.poisson(exposure * 0.3), NAMES[:40], exposure=exposure)
    rows = blocks(model.report().page, Listing)[0].rows
    assert rows.columns["n"].label == "exposure"
    assert rows.columns["n"].style == "number"
    assert rows.columns["personal"].style == "number"

    draws = np.random.default_rng(7)
    size = np.exp(draws.uniform(0, 4, 400))
    events = draws.poisson(size * draws.gamma(3, 0.1, 400))
    lead = GroupEvents().fit(events, np.arange(400), exposure=size).report().page.lead
    assert "in the quarter with the least exposure" in lead


def test_equal_values_have_few_decimals():
    page = GroupMeans().fit(np.ones(60), np.repeat(np.arange(12), 5)).report().page
    facts = {fact.label: fact for fact in page.facts}
    assert (facts["Population mean"].value.digits, facts["Population mean"].note) == (3, "")
    assert facts["Groups differ by"].value.digits == 3
    (chart, *_) = blocks(page, Intervals)
    assert chart.line == 1


def test_shares_have_a_chart_for_each_category():
    draws = np.random.default_rng(8)
    counts = draws.multinomial(20, [0.5, 0.3, 0.2], 12)
    model = GroupShares().fit_counts(counts, NAMES[:12], categories=["a", "b", "c"])
    page = model.report().page
    assert [chart.title for chart in blocks(page, Intervals)] == ["a", "b", "c"]
    average, bars = blocks(page, Stacked)
    assert sum(part[0] for part in average.parts.values()) == pytest.approx(1)
    assert bars.labels == tuple(NAMES[:12])
    assert len(blocks(page, Listing)[0].rows) == 12


def test_values_of_several_coordinates():
    draws = np.random.default_rng(9)
    place = np.repeat(np.arange(20), 6)
    values = draws.normal(size=(20, 2))[place] + draws.normal(size=(120, 2))
    page = GroupMeans().fit(values, NAMES[place]).report().page
    assert [chart.title for chart in blocks(page, Intervals)] == ["coordinate 0", "coordinate 1"]


def test_a_mixture_has_a_page():
    draws = np.random.default_rng(10)
    place = np.repeat(np.arange(20), 6)
    values = np.where(place < 10, -4.0, 4.0) + draws.normal(size=120)
    page = GroupMixture(2).fit(values, NAMES[place]).report().page
    assert notes(page)["Assumed: several kinds of groups"].text.startswith("Each group is of one")
    assert "Population: mixture (fitted by maximum likelihood)" in [
        each.title for each in page.folded
    ]


@pytest.mark.parametrize("structure", ["nested", "crossed"])
def test_each_level_has_its_own_table(structure):
    draws = np.random.default_rng(11)
    state, county = np.repeat(np.arange(6), 20), np.tile(np.repeat(np.arange(5), 4), 6)
    value = draws.normal(0, 2, 6)[state] + draws.normal(size=120)
    model = GroupLevels(structure=structure).fit(value, {"state": state, "county": county})
    page = model.report().page
    grid = next(each for each in blocks(page, SmallTable) if each.title == "Variance components")
    assert [row[0] for row in grid.cells] == ["state", "county", "noise of a row"]
    assert sum(row[-1].value for row in grid.cells) == pytest.approx(1)
    sizes = [len(each.rows) for each in blocks(page, Listing)]
    assert sizes == ([6, 30] if structure == "nested" else [6, 5, 30])
    assert "Groups differ most by state" in page.lead


def test_levels_of_rates_share_the_variance_between_groups():
    draws = np.random.default_rng(12)
    state, county = np.repeat(np.arange(6), 20), np.tile(np.repeat(np.arange(5), 4), 6)
    won = draws.random(120) < (0.2 + 0.1 * state)
    model = GroupLevels(family="binomial").fit(won, {"state": state, "county": county})
    assert model.report().page.lead.endswith("% of the variance between groups.")


def test_a_private_page_is_of_the_population_alone():
    n, won = counted(300)
    found = estimate_rates_privately(Counts(n=n, successes=won), epsilon=2, seed=0)
    page = found.report().page
    assert blocks(page, Listing) == blocks(page, Intervals) == blocks(page, Scatter) == []
    assert "epsilon = 2" in page.sections[0].text
    shown = found._repr_html_()
    assert f"{found.raw[0]:.4f}" not in shown


def test_estimates_take_names_for_their_groups(tmp_path):
    n, won = counted()
    found = estimate_rates(Counts(n=n, successes=won))
    report = found.report(tmp_path / "p.html", groups=NAMES)
    assert report.path.read_text("utf-8") == report.html()
    assert list(blocks(report.page, Listing)[0].rows.columns["name"].values) == NAMES.tolist()
    assert "ShownPage('Estimates of 60 groups'" in repr(report)
    with pytest.raises(ValueError, match=r"path must be an \.html file"):
        found.report(tmp_path / "p.txt")


def test_a_notebook_shows_the_answer_of_what_is_fitted(rates):
    assert rates.sentence_[:40] in rates._repr_html_()
    assert rates._repr_mimebundle_()["text/html"] == rates._repr_html_()
    assert "GroupRates" in GroupRates()._repr_html_()
    with pytest.raises(ValueError, match="not fitted"):
        GroupRates().report()


def test_a_lazy_frame_is_read_for_the_page_alone(tmp_path):
    polars = pytest.importorskip("polars")
    pytest.importorskip("narwhals")
    n, won = counted()
    frame = polars.LazyFrame({"ward": NAMES.tolist(), "won": won, "n": n})
    model = GroupRates().from_table(frame, group="ward", successes="won", trials="n")
    rows = blocks(model.report().page, Listing)[0].rows
    assert sorted(rows.columns["name"].values) == sorted(NAMES.tolist())
    assert model.sentence_[:40] in model._repr_html_()
