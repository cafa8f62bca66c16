"""What a reader does with a page, in Chromium, from disk and without a network."""

import numpy as np
import pytest
from example_pages import NASTY, example

import browser as browsers
from fedprior.pages import page as parts
from fedprior.pages.page import Page, PageColumn, Rows, Section
from fedprior.pages.render import render

WIDTHS = (320, 800, 1600)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for number in (18, 300, 5_000):
        made[number] = folder / f"{number}.html"
        made[number].write_text(render(example(number, NASTY)))
    return made


def opened(browser, path, **options):
    return browsers.visit(browser, path, **options)


@pytest.mark.parametrize("number", [18, 300, 5_000])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_open_at_every_width(browser, pages, number, width):
    with opened(browser, pages[number], width=width) as page:
        browsers.ready(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("canvas").count() == 6
        assert browsers.blank_charts(page) == 0


@pytest.mark.parametrize("dark", [False, True])
def test_no_violation_of_accessibility(browser, pages, dark):
    with opened(browser, pages[18], dark=dark) as page:
        browsers.ready(page)
        assert browsers.violations(page) == []


def test_names_stay_text(browser, pages):
    with opened(browser, pages[18]) as page:
        browsers.ready(page)
        page.get_by_label("Search groups").fill("script")
        assert page.locator(".listing tbody tr").count() == 2
        assert page.locator(".listing tbody button").first.inner_text() in NASTY
        assert page.locator("img").count() == 0


def test_search_sort_and_pages(browser, pages):
    with opened(browser, pages[300]) as page:
        browsers.ready(page)
        rows, status = page.locator(".listing tbody tr"), page.locator(".listing [role=status]")
        assert status.inner_text() == "1 to 25 of 300 groups"
        page.get_by_role("button", name="Next").click()
        assert status.inner_text() == "26 to 50 of 300 groups"
        page.get_by_label("Search groups").fill("county 00001")
        assert status.inner_text() == "1 to 10 of 10 groups"
        page.get_by_role("button", name="n", exact=True).click()
        sizes = [int(row.locator("td").first.inner_text()) for row in rows.all()]
        assert sizes == sorted(sizes, reverse=True)
        page.get_by_role("button", name="n", exact=True).click()
        head = page.locator(".listing th[data-key=n]")
        assert head.get_attribute("aria-sort") == "ascending"
        page.get_by_label("Search groups").fill("nowhere")
        assert status.inner_text() == "No groups match"


def test_rows_without_a_value_are_sorted_last(browser, pages):
    with opened(browser, pages[18]) as page:
        browsers.ready(page)
        for _ in range(2):
            page.get_by_role("button", name="raw", exact=True).click()
            assert page.locator(".listing tbody tr").last.locator("td").nth(1).inner_text() == ""


def test_hovering_tells_and_a_click_pins(browser, pages):
    with opened(browser, pages[18]) as page:
        browsers.ready(page)
        canvas, tip = page.locator("canvas").first, page.locator("#tip")
        box = canvas.bounding_box()
        canvas.hover(position={"x": box["width"] / 2, "y": box["height"] / 3})
        assert tip.is_visible()
        name = tip.locator("strong").inner_text()
        assert "personal: 0." in tip.inner_text()
        canvas.click(position={"x": box["width"] / 2, "y": box["height"] / 3})
        assert page.locator("tr.pinned th").inner_text().strip() == name.strip()
        page.locator("tr.pinned button").click()
        assert page.locator("tr.pinned").count() == 0


def test_the_keyboard_reaches_every_row(browser, pages):
    with opened(browser, pages[18]) as page:
        browsers.ready(page)
        canvas = page.locator("canvas").first
        canvas.focus()
        page.keyboard.press("Home")
        first = page.locator("#live").inner_text()
        page.keyboard.press("ArrowDown")
        assert page.locator("#live").inner_text() not in ("", first)
        page.keyboard.press("Enter")
        assert page.locator("tr.pinned").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("tr.pinned").count() == 0


def test_the_theme_can_be_switched(browser, pages):
    with opened(browser, pages[18]) as page:
        browsers.ready(page)
        color = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(color)
        page.get_by_role("button", name="Dark").click()
        assert page.evaluate(color) != light
        page.get_by_role("button", name="Light").click()
        assert page.evaluate(color) == light


def test_numbers_follow_the_language_of_the_reader(browser, pages):
    context = browser.new_context(locale="de-DE", offline=True)
    page = context.new_page()
    page.goto(pages[300].as_uri())
    browsers.ready(page)
    assert page.locator(".facts data").nth(1).inner_text() == "1.234,5"
    assert "," in page.locator(".listing tbody td").nth(1).inner_text()
    context.close()


def test_a_page_prints_in_light(browser, pages, tmp_path):
    with opened(browser, pages[300], dark=True) as page:
        browsers.ready(page)
        page.evaluate(
            """window.addEventListener("beforeprint", () => {
                window.printed = getComputedStyle(document.body).color; })"""
        )
        content = page.pdf()
        assert content.startswith(b"%PDF")
        assert page.evaluate("window.printed") == "rgb(29, 37, 48)"
        assert page.evaluate("getComputedStyle(document.body).color") != "rgb(29, 37, 48)"


@pytest.mark.parametrize(
    "values",
    [[1.0] * 5, [3.0], [np.nan] * 3, [], [1e12, 2e12], [1e-9, 2e-9], [1.0, np.inf]],
    ids=["equal", "one", "unknown", "none", "large", "small", "infinite"],
)
def test_pages_of_odd_numbers_open(browser, tmp_path, values):
    column = PageColumn(label="value", values=np.array(values))
    names = PageColumn(
        label="name", values=[str(each) for each in range(len(values))], style="text"
    )
    rows = Rows(columns={"name": names, "value": column})
    blocks = (
        parts.Intervals(title="i", rows=rows, value="value", lower="value", upper="value"),
        parts.Intervals(title="g", rows=rows, value="value"),
        parts.Scatter(title="s", rows=rows, x="value", y="value", shade="value", diagonal=True),
        parts.Distributions(title="d", rows=rows, columns=("value",)),
        parts.Listing(title="l", rows=rows),
    )
    file = tmp_path / "page.html"
    file.write_text(render(Page(title="t", lead="l", sections=(Section("s", blocks),))))
    with opened(browser, file) as page:
        browsers.ready(page)
        assert page.locator(".listing tbody tr").count() == len(values)
