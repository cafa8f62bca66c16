"""`fedprior algorithms` and `fedprior datasets`."""

import json
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

_ONLY_PYTHON = (
    "In Python only: fedprior.multitask, which takes a covariance matrix between the clients."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def algorithms(as_json: AsJson = False) -> None:
    """List the methods: what they assume, what leaves a client, where they come from.

    Example: `fedprior algorithms --json`
    """
    from fedprior.learning.catalog import describe

    _show("algorithms", describe(), as_json)
    if not as_json:
        typer.echo(_ONLY_PYTHON)


def datasets(as_json: AsJson = False) -> None:
    """List the datasets and what each of them needs.

    Example: `fedprior datasets`
    """
    from fedprior.data.datasets import describe

    _show("datasets", describe(), as_json)


def _show(what: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"format": 1, what: rows}))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in rows[0]:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(highlight=False).print(table)
