"""Each kind of page opens in Chromium from disk: no request, no complaint, no violation."""

from pathlib import Path

import numpy as np
import pytest

import browser as browsers

ROOT = Path(__file__).parents[2]
NAME = "<script>alert('ward')</script>"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Rows of 40 wards with everything that a question may ask for."""
    draws = np.random.default_rng(5)
    lines = ["ward,site,value,error,ill,days,falls,meal,size"]
    for ward in range(40):
        name, size, level = NAME if ward == 3 else f"ward {ward}", draws.normal(), draws.normal()
        for _ in range(int(draws.integers(3, 12))):
            value = level + 0.5 * size + draws.normal()
            days = draws.integers(1, 9)
            falls, meal = draws.poisson(0.3 * days), draws.choice(["soup", "fish", "rice"])
            lines.append(
                f'"{name}",site {ward % 4},{value:.3f},0.5,{int(value > 0)},{days},{falls},{meal},'
                f"{size:.3f}"
            )
    path = tmp_path_factory.mktemp("wards") / "wards.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


ANSWERS = {
    "means": "estimate --group ward --value value --covariates size",
    "rates": "estimate --group ward --outcome ill --ranks",
    "events": "estimate --group ward --events falls --exposure days",
    "shares": "estimate --group ward --category meal",
    "meta": "estimate --group ward --value value --stderr error",
    "nested": "estimate --group site --group ward --nested --value value",
    "private": "estimate --group ward --outcome ill --epsilon 2 --seed 1",
    "regression": "regress --group ward --target value --features days",
    "classes": "regress --group ward --target ill --features days",
    "mixture": "regress --group ward --target value --features days --population mixture",
}
OTHERS = ("run", "private run", "sweep", "comparison")


@pytest.fixture(scope="module")
def page_of(table, tmp_path_factory, call, fast):
    """`page_of(kind)` -> the page of an answer of that kind, made by the command."""
    folder = tmp_path_factory.mktemp("pages")

    def make(kind):
        path = folder / f"{kind.replace(' ', '-')}.html"
        if kind in ANSWERS:
            verb, *words = ANSWERS[kind].split()
            assert call([verb, table, *words, "--report", path, "--quiet"]) == 0
        elif kind == "comparison":
            assert call(["report", ROOT / "docs/reproduction/table1", "--out", path]) == 0
        else:
            train = ["--algorithm", "fedavg-fine-tuning", "--algorithm", "local", "--quiet"]
            private = {"privacy__epsilon": 8, "privacy__delta": 0.001}
            changes = private if kind == "private run" else {}
            words = {"sweep": ["sweep", "--over", "lr=0.01,0.1"]}.get(kind, ["train"])
            words += [*train, *fast(**changes), "--out", folder / path.stem]
            assert call([*words, "--report", path]) == 0
        return path

    return make


@pytest.mark.parametrize("kind", [*ANSWERS, *OTHERS])
def test_a_page_opens(browser, page_of, kind):
    path = page_of(kind)
    for width, dark in ((320, False), (800, True), (1600, False)):
        with browsers.visit(browser, path, width=width, dark=dark) as page:
            page.wait_for_selector("html[data-ready]", state="attached")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            assert len(page.locator(".lead").inner_text()) > 20
            if width == 800:
                assert browsers.violations(page) == []
                assert page.pdf().startswith(b"%PDF")
            for canvas in page.locator("canvas").all()[:3]:
                canvas.hover()
            if page.locator("input[type=search]").count():
                page.locator("input[type=search]").first.fill("nothing of this name")
                assert page.locator(".listing").first.locator("tbody tr").count() == 0
