"""Report pages of many groups: their size, and how long Chromium takes until all charts are drawn.

    python benchmarks/pages.py

Pages are opened from disk without a network. Needs playwright and a system's Chromium.
"""

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from playwright.sync_api import sync_playwright

import fedprior

SIZES = (1_000, 10_000, 100_000, 1_000_000)
REPEATS = 5


def page_of(groups: int, folder: Path) -> tuple[Path, float]:
    """A page of simulated rates, and the seconds that it took to write it."""
    draws = np.random.default_rng(0)
    trials = draws.integers(5, 200, groups)
    successes = draws.binomial(trials, draws.beta(4, 16, groups))
    names = [f"clinic {place}" for place in range(groups)]
    model = fedprior.GroupRates().fit_counts(successes, trials, np.array(names, object))
    start = time.perf_counter()
    path = folder / f"{groups}.html"
    model.report(path)
    return path, time.perf_counter() - start


def load(browser, path: Path) -> float:
    """Seconds until the charts of a new page are drawn."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    taken = time.perf_counter() - start
    context.close()
    return taken


def main() -> None:
    """Print a line for each number of groups."""
    print(f"{'groups':>10} {'MB':>6} {'written':>9} {'loaded':>8}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for groups in SIZES:
            page, written = page_of(groups, Path(folder))
            loaded = median(load(browser, page) for _ in range(REPEATS))
            size = page.stat().st_size / 1e6
            print(f"{groups:>10,} {size:>6.2f} {written:>7.2f} s {loaded:>6.2f} s")
        browser.close()


if __name__ == "__main__":
    main()
