"""What the commands under `reproduce` share: options, where data are, tables, JSON, progress."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli.pages import check_report, write_report
from fedprior.cli.progress import counting, say
from fedprior.core import check
from fedprior.core.files import may_be_folder

T = TypeVar("T")
Data = Annotated[
    Path | None,
    typer.Option(help="Root folder of the data (default: FEDPRIOR_DATA, then ../shared/data)."),
]
Out = Annotated[Path, typer.Option(help="Folder; an existing one is continued.")]
Names = Annotated[
    list[str] | None, typer.Option("--method", help="A method to run; may be repeated.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--setting", help="A setting to run; may be repeated.")
]

_WORDS = {"name", "measures", "paper", "needs", "population", "players", "outcome", "method"}
_WORDS |= {"setting", "verdict"}
_METHOD = 24  # characters of a method's name that stay on one line
_NEAR = Path("..", "shared", "data")


def data_root(owner: str, data: Path | None) -> Path | None:
    """--data, else FEDPRIOR_DATA (which the loaders read), else ../shared/data where it exists."""
    from fedprior.data.datasets import ROOT_VARIABLE

    if data is not None:
        check.require(data.is_dir(), owner, "--data", "a folder that exists", str(data))
        return data
    return _NEAR if _NEAR.is_dir() and not os.environ.get(ROOT_VARIABLE) else None


def check_out(owner: str, folder: Path) -> None:
    """Raise unless --out is a folder or can become one."""
    rule = "a folder, or a name that is free"
    check.require(may_be_folder(folder), owner, "--out", rule, str(folder))


def data_of(name: str, data: Path | None) -> Path:
    """The folder of `name` in --data, else in FEDPRIOR_DATA, else in ../shared/data if there."""
    from fedprior.data.datasets import data_folder

    root = data_root("reproduce", data)
    near = data is None and root is not None
    return data_folder(name, None if near and not (_NEAR / name).is_dir() else root)


def table_of(title: str, lines: Sequence[Sequence[str]], *, caption: str = "") -> Table:
    """A table of `lines`, the heads first; words are on the left, figures on the right."""
    made = Table(
        title=title or None,
        caption=caption or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for place, column in enumerate(lines[0]):
        side: Literal["left", "right"] = "left" if column in _WORDS else "right"
        longest = max((len(line[place]) for line in lines[1:]), default=0)
        least = min(longest, _METHOD) if column == "method" else None
        made.add_column(column, justify=side, overflow="fold", min_width=least)
    for line in lines[1:]:
        made.add_row(*line)
    return made


def show(*parts: Table | str) -> None:
    """Tables as they are, remarks as paragraphs."""
    console = Console(highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print()
        console.print(part, markup=False)


def document_of(
    name: str, rows: Sequence[Any], remarks: Sequence[str], **facts: int
) -> dict[str, Any]:
    """One object: the rows, what was asked for, and the remarks if there are any."""
    document = {"format": 1, "experiment": name, **facts, "rows": [asdict(row) for row in rows]}
    return {**document, "remarks": list(remarks)} if remarks else document


@dataclass(frozen=True)
class ExperimentRequest:
    """How an experiment's answer is asked for; where its page cannot be written, nothing is run."""

    name: str
    report: Path | None
    as_json: bool
    quiet: bool

    def __post_init__(self) -> None:
        check_report(self.name, self.report)

    def run(self, experiment: Callable[..., T], *data: Any, **options: Any) -> T:
        """What the experiment finds, with a bar that counts its parts."""
        with counting(self.name, quiet=self.quiet) as watch:
            return experiment(*data, **options, watch=watch)

    def tell(
        self,
        rows: Sequence[Any],
        remarks: Sequence[str],
        title: str,
        lines: Sequence[Sequence[str]],
        *beside: Table,
        quick: bool = False,
        **facts: int,
    ) -> None:
        """The rows with remarks and facts as an object, or `lines` of them over their command."""
        from fedprior.experiments.page import command_of

        document = document_of(self.name, rows, remarks, **facts)
        command = command_of(document) + " --quick" * quick
        self.answer(document, table_of(title, lines, caption=command), *beside)

    def answer(self, document: dict[str, Any], *tables: Table) -> None:
        """The page if it was asked for, then the object, or tables and remarks."""
        from fedprior.experiments.page import document_page

        tell = partial(say, quiet=self.quiet)
        write_report(self.name, self.report, lambda: document_page(document), tell)
        if self.as_json:
            typer.echo(json.dumps(document))
        else:
            show(*tables, *document.get("remarks", ()))
