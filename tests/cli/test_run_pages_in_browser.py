"""Pages of runs, sweeps, comparisons and ledgers in Chromium: every width, no violation."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import browser as browsers
from fedprior.cli.report import page_of
from fedprior.data.writing import write_table
from fedprior.pages.render import render
from fedprior.privacy.events import Event
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

DOCS = Path(__file__).parents[2] / "docs"
NASTY = ["<script>alert(1)</script>", 'O\'Hara & "Sons"', "a" * 200, "北京", "</p>", "=1+1"]


@pytest.fixture(scope="module")
def named(trained, tmp_path_factory):
    """A finished run with names that a page could stumble over, and gains of both signs."""
    copy = shutil.copytree(trained, tmp_path_factory.mktemp("named") / "run")
    scores = {"adaped": [0.9, 0.4, 0.7, 0.8, 0.5, 0.6], "local": [0.5, 0.6, 0.7, 0.6, 0.4, 0.5]}
    table = {"seed": np.zeros(6, np.int32), "client": np.array(NASTY, object)}
    table |= {"size": np.arange(6), "largest_class": np.linspace(0.5, 1, 6)}
    table |= {name: np.array(values) for name, values in scores.items()}
    write_table(table, copy / "clients.parquet", owner="test")
    summary = json.loads((copy / "summary.json").read_text())
    row = {**summary["methods"]["adaped"], "mean": 0.99, "gain_over_local": 10.0}
    summary["methods"]["adaped"] = row
    (copy / "summary.json").write_text(json.dumps(summary))
    return copy


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A ledger with a hundred rounds of sampled noise."""
    path = tmp_path_factory.mktemp("ledger") / "clinics.jsonl"
    terms = Terms(delta=1e-5, relation="replace-one", view="central", noise="simulated", budget=8)
    event = Event(mechanism="gaussian", noise=3.0)
    with Ledger(path, terms, who="<b>study</b>", num_clients=1000) as opened:
        for first in (0, 3):
            opened.reserve(event, first=first, rounds=3, source="a", draws="a")
    return path


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, call, fast):
    folder = tmp_path_factory.mktemp("sweep") / "s"
    words = ["sweep", "--over", "lr=0.01,0.1", "--algorithm", "fedavg", *fast(), "--quiet"]
    assert call([*words, "--out", folder]) == 0
    return folder


@pytest.fixture(scope="module")
def pages(named, ledger, sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    sources = {"run": named, "ledger": ledger, "sweep": sweep}
    sources |= {"table1": DOCS / "reproduction" / "table1"}
    sources |= {"private": DOCS / "explanation" / "private-figures"}
    for name, source in sources.items():
        (folder / f"{name}.html").write_text(render(page_of(source)))
    return folder


@pytest.mark.parametrize("width", [320, 800, 1600])
@pytest.mark.parametrize("name", ["run", "ledger", "sweep", "table1", "private"])
def test_pages_open_at_every_width(browser, pages, name, width):
    dark = width == 1600
    with browsers.visit(browser, pages / f"{name}.html", width=width, dark=dark) as page:
        browsers.ready(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("canvas").count() > 0
        assert browsers.blank_charts(page) == 0
        if width == 800:
            assert browsers.violations(page) == []


def test_who_gains_is_found_by_name(browser, pages):
    with browsers.visit(browser, pages / "run.html") as page:
        browsers.ready(page)
        assert page.locator("h3", has_text="The largest losses").count() == 1
        assert page.get_by_role("rowheader", name=NASTY[1]).count() > 0
        page.get_by_label("Search clients").fill("script")
        assert page.locator(".listing tbody tr").count() == 1
        assert page.locator(".listing tbody button").first.inner_text() == NASTY[0]
        assert page.pdf()[:4] == b"%PDF"
