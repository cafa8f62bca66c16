"""A page as one HTML file."""

from pathlib import Path

from fedprior.pages.page import Page


def render(page: Page, *, version: str = "") -> str:
    """The page as HTML; with `version`, it reloads itself when its server tells of another one."""
    raise ValueError(page.title + version)


def small(page: Page) -> str:
    """The page's first lines and small tables without scripts, for notebooks."""
    raise ValueError(page.title)


def write(page: Page, path: Path, *, owner: str) -> None:
    """Write the page to `path`, whole or not at all."""
    raise ValueError(page.title + owner + str(path))
