"""Rows come out of a page as they went in, to the digits that a chart can show."""

import numpy as np
import pytest
from example_pages import groups
from hypothesis import given
from hypothesis import strategies as st

from fedprior.pages import pack
from fedprior.pages.page import Listing, Page, PageColumn, Rows, Section
from fedprior.pages.render import render
from inside_page import spec_of, tables_of


def packed(values, **options):
    """The values after a way through a page."""
    names = [str(place) for place in range(len(values))]
    columns = {
        "name": PageColumn(label="name", values=names, style="text"),
        "value": PageColumn(label="value", values=np.asarray(values, float), **options),
    }
    listing = Listing(title="all", rows=Rows(columns=columns))
    page = Page(title="t", lead="l", sections=(Section("s", (listing,)),))
    return tables_of(render(page))[0]["value"]


def test_columns_keep_four_digits_of_their_spread():
    rows = groups(500)
    listing = Listing(title="all", rows=rows)
    (found,) = tables_of(render(Page(title="t", lead="l", sections=(Section("s", (listing,)),))))
    assert found["name"] == rows.columns["name"].values
    np.testing.assert_array_equal(found["n"], rows.columns["n"].values)
    for key in ("raw", "personal", "lower", "upper", "weight"):
        values = np.asarray(rows.columns[key].values)
        spread = np.nanquantile(values, 0.9) - np.nanquantile(values, 0.1)
        np.testing.assert_allclose(found[key], values, atol=6e-4 * spread)
    assert np.isnan(found["raw"][-1])


@given(st.lists(st.floats(-1e300, 1e300) | st.just(np.nan), min_size=1, max_size=20))
def test_any_numbers_survive(values):
    found, values = packed(values), np.array(values)
    known = np.isfinite(values)
    np.testing.assert_array_equal(np.isfinite(found), known)
    if known.any():
        reach = max(np.abs(values[known]).max(), 1e-300)
        np.testing.assert_allclose(found[known] / reach, values[known] / reach, atol=2e-3)


def test_outliers_do_not_hide_the_others():
    values = np.append(np.linspace(0.1, 0.2, 99), 30.0)
    np.testing.assert_allclose(packed(values), values, atol=1e-4)


def test_values_too_far_apart_for_whole_steps_are_kept_as_they_are():
    values = [1e-3, 2e-3, 1e300]
    np.testing.assert_array_equal(packed(values, digits=6), values)


@pytest.mark.parametrize("number", [127, 128, 32_767, 40_000])
def test_whole_numbers_are_exact(number):
    np.testing.assert_array_equal(packed([0, -number, number], style="whole"), [0, -number, number])


def test_of_too_many_rows_some_are_kept_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(pack, "MOST_ROWS", 40)
    listing = Listing(title="all", rows=groups(100))
    html = render(Page(title="t", lead="l", sections=(Section("s", (listing,)),)))
    (table,) = spec_of(html)["tables"]
    assert (table["size"], table["noun"]) == (34, "groups (1 in 3 of 100)")
    assert tables_of(html)[0]["name"] == listing.rows.columns["name"].values[::3]


def test_half_a_character_in_a_name_is_a_question_mark():
    rows = Rows(columns={"name": PageColumn(label="\ud800", values=["a\udcff", "ä"], style="text")})
    page = Page(
        title="t", lead="\ud800", sections=(Section("s", (Listing(title="l", rows=rows),)),)
    )
    html = render(page)
    assert html.encode().decode() == html
    (table,) = tables_of(html)
    assert list(table["name"]) == ["a?", "ä"]
