"""`fedprior report`."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli import asked
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.pages.page import Page

# Modules of kinds of output, asked in this order. Each has `WHAT` (what it is, for an error), and
# functions `owns(path)` (whether the path is of this kind) and `page_of(path)`, its page.
KINDS: tuple[str, ...] = (
    "fedprior.reporting.answers",
    "fedprior.reporting.pages.run",
    "fedprior.reporting.pages.sweep",
    "fedprior.reporting.pages.ledger",
    "fedprior.sites.page",
    "fedprior.experiments.page",
)
_OWNER = "report"


def page_of(path: Path, key: Path | None = None) -> "Page":
    """The page of what lies at `path`, whatever kind of output it is; `key` opens a ledger."""
    if not path.exists():
        raise ValueError(f"{_OWNER}: PATH must be a file or folder that exists, got {path}.")
    for kind in _kinds():
        if kind.owns(path):
            if key is None:
                return kind.page_of(path)
            takes = hasattr(kind, "TAKES_KEY")
            check.require(takes, _OWNER, "--key", "for a ledger with a key", str(path))
            return kind.page_of(path, key=key)
    known = "; ".join(kind.WHAT for kind in _kinds())
    raise ValueError(
        f"{_OWNER}: PATH must be an output of fedprior, got {path}. What can be reported: {known}."
    )


def _kinds() -> Iterator[Any]:
    """The kinds, each of which is imported when it is asked."""
    return (importlib.import_module(name) for name in KINDS)


def place_of(path: Path) -> Path:
    """Where the page of `path` goes by default: into a folder, beside a file."""
    if path.is_dir():
        return path / "report.html"
    return path.with_name(path.name.removesuffix(".summary.json")).with_suffix(".html")


def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="A table of `estimate --out` or `regress --out`; the folder of a run, a "
            "deployment, a sweep or an experiment; or a ledger."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the page: a .html file (default: beside PATH, or in its folder)."
        ),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser, too.")
    ] = False,
    key: asked.Key = None,
    force: asked.Force = False,
    quiet: asked.Quiet = False,
) -> None:
    """Write a page about an answer: one HTML file, which needs no network.

    The page has the answer in one sentence, charts, a table to search and sort, what was assumed
    and what was checked, and the command that made the answer. Without --out, the page that
    an earlier call left in the same place is replaced.

    Example: `fedprior report rates.csv --out rates.html`
    """
    from fedprior.cli.pages import is_page
    from fedprior.cli.progress import say
    from fedprior.pages.render import write
    from fedprior.reporting.outputs import check_output

    target = place_of(path) if out is None else out
    replaces = force or (out is None and is_page(target))
    check_output(_OWNER, "--out", target, (".html",), source=str(path), force=replaces)
    write(page_of(path, key), target, owner=_OWNER, option="--out")
    say(f"Written to {target}", quiet=quiet)
    if open_page:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
