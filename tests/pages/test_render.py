"""A page is one file of text that is escaped, a policy, and data."""

import base64
import hashlib
import html as markup
import re
from html.parser import HTMLParser

import pytest
from example_pages import NASTY, example

from fedprior.pages.page import Number, Page
from fedprior.pages.render import render, shown, small, write
from inside_page import everything, spec_of


class _Elements(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_strings_from_data_are_never_markup():
    plain, nasty = _Elements(render(example(80))), _Elements(render(example(80, NASTY)))
    assert [tag for tag, _ in nasty.found] == [tag for tag, _ in plain.found]
    assert not any(name.startswith("on") for _, attrs in nasty.found for name in attrs)
    html = render(example(80, NASTY))
    assert html.count("</script>") == 3
    assert NASTY[0] not in html.replace(spec_text(html), "")
    assert all(each in markup.unescape(html) for each in NASTY[:1])
    assert "\\u003cscript" in spec_text(html)


def spec_text(html):
    return re.search(r'id="spec">(.*?)</script>', html, re.S).group(1)


def test_the_policy_admits_its_own_script_and_style_and_nothing_else():
    html = render(example(5))
    policy = markup.unescape(
        re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    )
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src" not in policy
    assert "unsafe" not in policy
    for name, text in (
        ("style-src", re.search(r"<style>(.*?)</style>", html, re.S).group(1)),
        ("script-src", re.search(r"<script>(.*?)</script>", html, re.S).group(1)),
    ):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "connect-src 'self'" in markup.unescape(render(example(5), version="1"))


def test_nothing_is_asked_from_elsewhere():
    html = render(example(5))
    assert not re.search(r"https?://|\burl\(|@import|\bimport\(", html)
    for tag, attrs in _Elements(html).found:
        for name in ("src", "href", "action"):
            assert attrs.get(name, "#").startswith(("#", "data:,")), (tag, attrs)
        assert "style" not in attrs


def test_rows_that_charts_share_are_in_the_page_once():
    assert len(spec_of(render(example(30)))["tables"]) == 1


def test_a_hundred_thousand_groups_take_less_than_two_megabytes():
    assert len(render(example(100_000))) < 2e6


def test_the_same_page_gives_the_same_bytes():
    assert render(example(30)) == render(example(30))


def test_curves_have_no_more_points_than_a_screen():
    from fedprior.pages.page import Curve, Curves, Section

    curve = Curve(name="a", x=range(100_000), y=range(100_000))
    block = Curves(title="c", curves=(curve,), x_label="x", y_label="y")
    page = Page(title="t", lead="l", sections=(Section("s", (block,)),))
    drawn = spec_of(render(page))["charts"][0]["curves"][0]
    assert len(drawn["x"]) == 1_000
    assert (drawn["x"][0], drawn["x"][-1]) == (0, 99_999)


def test_the_small_form_has_no_script_and_escapes():
    html = small(example(5, NASTY))
    assert "Collaboration helps" in html
    allowed = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert {tag for tag, _ in _Elements(html).found} <= allowed


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number(0.1234), "0.123"),
        (Number(0.5, "percent", 1, sign=True), "+50.0%"),
        (Number(1234567, "whole"), "1,234,567"),
        (Number(float("nan")), ""),
    ],
)
def test_numbers_without_a_script(number, text):
    assert shown(number) == text


def test_a_page_that_cannot_be_written_names_the_option(tmp_path):
    with pytest.raises(ValueError, match="estimate: --report must be a file that can be written"):
        write(example(5), tmp_path / "no" / "page.html", owner="estimate")
    write(example(5), tmp_path / "page.html", owner="estimate")
    assert everything((tmp_path / "page.html").read_text()).count("county 000001")
