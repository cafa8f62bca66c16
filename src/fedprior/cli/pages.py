"""What commands with `--report` share: the check before any work, and the page after it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedprior.pages.page import Page

Report = Annotated[
    Path | None, typer.Option(help="Write a page about the answer to this .html file, too.")
]
_MARK = b'<meta name="generator" content="fedprior'


def check_report(owner: str, path: Path | None) -> None:
    """Raise unless a page can be written to `path`; a page of fedprior may be replaced."""
    from fedprior.reporting.outputs import check_output

    ours = path is not None and path.is_file() and _MARK in path.read_bytes()[:4096]
    check_output(owner, "--report", path, (".html",), source=None, force=ours)


def write_report(
    owner: str, path: Path | None, page: "Callable[[], Page]", say: Callable[[str], object]
) -> None:
    """Make the page and write it, if it was asked for, and say so."""
    if path is None:
        return
    from fedprior.pages.render import write

    write(page(), path, owner=owner)
    say(f"Page: {path}")
