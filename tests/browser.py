"""A real Chromium for tests of pages, the system's own; skipped with a reason if missing."""

import os
import shutil
from contextlib import contextmanager

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has no other way
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")


def program():
    """The path of Chromium: FEDPRIOR_CHROMIUM, or the first of PROGRAMS; None without one."""
    named = os.environ.get("FEDPRIOR_CHROMIUM")
    if named and shutil.which(named) is None:
        raise FileNotFoundError(f"FEDPRIOR_CHROMIUM must name a program, got {named!r}.")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, PROGRAMS)), None)


@pytest.fixture(scope="session")
def browser():
    """A `playwright` browser; one for all tests of a worker."""
    api = pytest.importorskip("playwright.sync_api", reason="needs fedprior[test] (playwright)")
    found = program()
    if found is None:
        pytest.skip("needs Chromium (Debian's package chromium, or FEDPRIOR_CHROMIUM)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


@contextmanager
def visit(browser, address, *, width=800, height=900, dark=False):
    """A page whose visit fails at the end if it asked for anything else, or complained.

    `address` is a path, which is opened without a network, or a URL, which may ask its own server.
    """
    address = address if isinstance(address, str) else address.resolve().as_uri()
    local = address.startswith("file:")
    allowed = address if local else "/".join(address.split("/")[:3]) + "/"
    context = browser.new_context(
        offline=local,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
    )
    requests, complaints = [], []
    page = context.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None,
    )
    try:
        page.goto(address)
        yield page
    finally:
        context.close()
    requests = [each for each in requests if not each.startswith((allowed, "blob:", "data:"))]
    if requests or complaints:
        raise AssertionError(f"requests: {requests}, complaints: {complaints}")


def violations(page):
    """What axe-core finds against WCAG A and AA: one line for each element."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": list(WCAG)}})
    return [
        f"{each['id']}: {node['html']}"
        for each in found.response["violations"]
        for node in each["nodes"]
    ]


def ready(page):
    """Wait until the charts of a page of fedprior are drawn."""
    page.wait_for_selector("html[data-ready]", state="attached")


def blank_charts(page):
    """How many charts have nothing on them; to be asked once, a second reading is complained of."""
    return page.evaluate(
        """Array.from(document.querySelectorAll("canvas")).filter((each) => {
            const pixels = each.getContext("2d").getImageData(0, 0, each.width, each.height);
            return !pixels.data.some(Boolean);
        }).length"""
    )
