"""What commands with `--report` share: the check before any work, and the page after it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedprior.pages.page import Page

_MARK = b'<meta name="generator" content="fedprior'


def check_report(owner: str, path: Path | None, *, force: bool | None = None) -> None:
    """Raise unless a page can be written to `path`.

    A file that exists is replaced with `force`; by None, in commands without it, if it is a page.
    """
    from fedprior.reporting.outputs import REPORT_SUFFIXES, check_output

    if force is None:
        force = path is not None and is_page(path)
    check_output(owner, "--report", path, REPORT_SUFFIXES, source=None, force=force)


def is_page(path: Path) -> bool:
    """Whether the file is a page that fedprior wrote."""
    return path.is_file() and _MARK in path.read_bytes()[:4096]


def write_report(
    owner: str, path: Path | None, page: "Callable[[], Page]", say: Callable[[str], object]
) -> None:
    """Make the page and write it, if it was asked for, and say so."""
    if path is None:
        return
    from fedprior.pages.render import write

    write(page(), path, owner=owner)
    say(f"Written to {path}")
