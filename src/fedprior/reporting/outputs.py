"""Output files of a command: checked before anything is read, written last, all or none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.core.files import replacing
from fedprior.data.writing import writing
from fedprior.pages.page import Page
from fedprior.reporting.figures import check_drawing

OUT_SUFFIXES = (".csv", ".parquet")
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
REPORT_SUFFIXES = (".html",)


def require(owner: str, holds: bool, name: str, rule: str, value: object, remedy: str = "") -> None:
    """A check in the project's wording; words are shown as they are, without quotes."""
    shown = value if isinstance(value, str) else repr(value)
    told = f"{name} must be {rule}, got {shown}." + f" {remedy}" * bool(remedy)
    check.expect(holds, owner, told)


def check_output(
    owner: str,
    option: str,
    path: Path | None,
    known: Sequence[str],
    *,
    source: str | None,
    force: bool,
) -> None:
    """The file has a known ending, is in a folder, and overwrites nothing unless `force`."""
    if path is None:
        return
    rule = f"a {' or '.join([', '.join(known[:-1]), known[-1]] if known[:-1] else known)} file"
    require(owner, path.suffix in known, option, rule, str(path))
    require(owner, not path.is_dir(), option, "a file", f"the folder {path}")
    require(owner, path.parent.is_dir(), option, "in a folder that exists", str(path))
    if option == "--plot":
        check_drawing(owner, "--plot needs")
    if path.exists():
        same = source is not None and Path(source).exists() and path.samefile(source)
        require(owner, not same, option, "another file than the one that is read", str(path))
        if not force:
            raise ValueError(f"{owner}: {option} {path} exists already. Overwrite it with --force.")


def summary_path(out: Path) -> Path:
    """Where the summary of the table `out` is."""
    return out.with_suffix(".summary.json")


def check_files(owner: str, question: Any, known: Sequence[str]) -> None:
    """Check --out and the summary beside it, --plot and --report of a question."""
    rules: list[tuple[str, Path | None, Sequence[str]]] = [
        ("--out", question.out, known),
        ("--plot", question.plot, PLOT_SUFFIXES),
        ("--report", question.report, REPORT_SUFFIXES),
    ]
    if question.out is not None and question.out.suffix in OUT_SUFFIXES:
        rules.insert(1, ("--out", summary_path(question.out), (".json",)))
    for option, path, endings in rules:
        check_output(owner, option, path, endings, source=question.file, force=question.force)


def save(
    owner: str,
    *,
    out: Path | None,
    write: Callable[[Path], None],
    plot: Path | None = None,
    draw: Callable[[Path], Path] | None = None,
    report: Path | None = None,
    page: Callable[[], Page] | None = None,
) -> None:
    """All files or none: picture and page wait under other names until the table is written."""
    aside = None if plot is None or draw is None else draw(plot)
    try:
        with _reported(report, page, owner=owner):
            if out is not None:
                write(out)
        if aside is not None and plot is not None:
            with writing(plot, "--plot", owner=owner):
                aside.rename(plot)
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


@contextmanager
def _reported(
    report: Path | None, page: Callable[[], Page] | None, *, owner: str
) -> Iterator[None]:
    """Put the page in its place after the block, if there is one and nothing fails."""
    if report is None or page is None:
        yield
        return
    from fedprior.pages.render import render

    text = render(page())
    with writing(report, "--report", owner=owner), replacing(report) as aside:
        aside.write_text(text, encoding="utf-8")
        yield


def save_plot(owner: str, plot: Path, draw: Callable[[Path], Path]) -> None:
    """Draw the picture and put it in its place, whole."""
    save(owner, out=None, write=lambda path: None, plot=plot, draw=draw)
