"""The gallery: report pages that commands write into the built site, and cards that lead to them.

Pages are made when the site is built and are never committed; those of real data only where
FEDPRIOR_DATA names a folder that has the file. `python docs/extensions/gallery.py SITE` takes new
pictures of the pages of a built site, except for those of real data.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

warn = logging.getLogger(__name__).warning
PICTURES = Path(__file__).parents[1] / "gallery"
_PRIVATE = (
    "fedprior train --algorithm fedavg-fine-tuning --algorithm local --set data.name=synthetic"
    " --set data.options.num_clients=2000 --set model.name=logistic --set training.rounds=50"
    " --set training.cohort_size=200 --set privacy.epsilon=3 --set privacy.delta=1e-5"
)


@dataclass(frozen=True)
class Example:
    """A page of the gallery: NAME.html, which `command` writes with `--report NAME.html`.

    `table` is an example table of `fedprior datasets write` that the command reads, and `heading`
    the section at the top of the page's picture.
    """

    name: str
    title: str
    text: str
    command: str
    table: str = ""
    heading: str = ""

    @property
    def call(self) -> str:
        """The whole command."""
        return f"{self.command} --report {self.name}.html"

    @property
    def real(self) -> bool:
        """Whether it reads real data."""
        return "$FEDPRIOR_DATA" in self.command

    @property
    def possible(self) -> bool:
        """Whether its data are there."""
        files = [word for word in shlex.split(self.command) if "$FEDPRIOR_DATA" in word]
        return all(Path(os.path.expandvars(file)).exists() for file in files)


EXAMPLES = (
    Example(
        "estimates",
        "Rates of many groups",
        "Simulated races in 120 counties, of which many have few: every county with its interval, "
        "the largest changes, and what was assumed and checked.",
        "fedprior estimate counts.csv --group county --successes won --trials races",
        table="counts",
    ),
    Example(
        "batting",
        "A classic table",
        "Batting averages of 18 players after 45 at bats each: the raw rates, the personal "
        "estimates, and how far each player is pulled toward the population.",
        "fedprior estimate",
    ),
    Example(
        "regressions",
        "A regression for every group",
        "Simulated sales of 80 shops: the coefficients of each shop with intervals, and how much "
        "better they predict rows that were held out.",
        "fedprior regress",
    ),
    Example(
        "falls",
        "Events, and what is known of the groups",
        "Simulated falls in 96 hospital wards, per patient day, with the number of beds as a "
        "covariate.",
        "fedprior estimate wards.csv --group ward --events falls --exposure days --covariates beds",
        table="wards",
    ),
    Example(
        "studies",
        "A meta-analysis",
        "Simulated studies with their standard errors: the mean effect, how much studies differ, "
        "and what a new study would find.",
        "fedprior estimate studies.csv --group study --value effect --stderr se",
        table="studies",
    ),
    Example(
        "clinics",
        "Private reports",
        "20,000 small clinics send one private report each, at epsilon 1; only the population is "
        "shown.",
        "fedprior estimate clinics.csv --group clinic --successes recovered --trials patients"
        " --epsilon 1",
        table="clinics",
    ),
    Example(
        "run",
        "A model for every client",
        "Four methods on 30 clients with a few images each: who gains over training alone, who "
        "loses, and how the scores develop over the rounds.",
        "fedprior train --out run",
    ),
    Example(
        "sweep",
        "A choice of rates",
        "Learning rates compared on validation scores; the chosen one is tested once.",
        "fedprior sweep --over lr=0.02,0.1 --algorithm fedavg-fine-tuning --out sweep",
    ),
    Example(
        "private-run",
        "A private training",
        "2,000 simulated clients under a budget of epsilon 3: what was spent, what is left, and "
        "what is guaranteed to whom.",
        f"{_PRIVATE} --out private-run",
        heading="Privacy",
    ),
    Example(
        "herds",
        "Disease in cattle herds",
        "Contagious bovine pleuropneumonia in 15 herds: real data with few groups.",
        "fedprior estimate $FEDPRIOR_DATA/groups/cbpp.csv"
        " --group herd --successes incidence --trials size",
    ),
    Example(
        "radon",
        "Radon in the counties of Minnesota",
        "A regression for each of 85 counties, many of them with a handful of houses.",
        "fedprior regress $FEDPRIOR_DATA/grouped_regression/radon_minnesota.csv"
        " --group county.name --target log.radon --features basement --fixed uranium",
    ),
)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add a card for every example to the page."""
    if name == "gallery":
        shown = [each for each in EXAMPLES if each.possible or not each.real]
        source[0] += "\n::::::{grid} 1 1 2 2\n:gutter: 3\n\n"
        source[0] += "\n".join([*_cards(shown), "::::::"])


def _cards(examples: list[Example]) -> Iterator[str]:
    for each in examples:
        yield f":::::{{grid-item-card}} {each.title}"
        if each.possible:
            yield from (f":link: gallery/{each.name}.html", ":link-type: url")
        if (PICTURES / f"{each.name}.png").exists():
            yield f":img-bottom: gallery/{each.name}.png"
        table = [f"`fedprior datasets write {each.table}`", ""] if each.table else []
        yield from ("", each.text, "", *table, f"`{each.call}`", ":::::", "")


def make(app: Sphinx, error: Exception | None) -> None:
    """Run the commands whose pages the built site lacks."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "gallery"
    folder.mkdir(exist_ok=True)
    for each in EXAMPLES:
        page = folder / f"{each.name}.html"
        if page.exists() or not each.possible:
            continue
        with tempfile.TemporaryDirectory() as place:
            calls = [f"fedprior datasets write {each.table}"] if each.table else []
            for call in (*calls, f"{each.call} --quiet"):
                words = shlex.split(os.path.expandvars(call))
                command = [sys.executable, "-m", "fedprior", *words[1:]]
                done = subprocess.run(command, cwd=place, capture_output=True, text=True)
            made = Path(place) / page.name
            if made.exists():
                page.write_bytes(made.read_bytes())
            else:
                warn("%s: %s", each.call, done.stderr.strip())


def photograph(site: Path) -> None:
    """Take a picture of each page of the built site that shows no real data."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        view = browser.new_page(viewport={"width": 1000, "height": 1000})
        for each in EXAMPLES:
            page = site / "gallery" / f"{each.name}.html"
            if page.exists() and not each.real:
                view.goto(page.resolve().as_uri())
                view.wait_for_selector("html[data-ready]", state="attached")
                if each.heading:
                    top = view.get_by_role("heading", name=each.heading, exact=True)
                    top.evaluate("each => each.scrollIntoView()")
                view.screenshot(path=PICTURES / f"{each.name}.png")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", read)
    app.connect("build-finished", make)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    photograph(Path(sys.argv[1]))
