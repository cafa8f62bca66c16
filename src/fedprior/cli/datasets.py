"""`fedprior datasets` and `fedprior datasets write`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli import asked

app = typer.Typer(name="datasets", rich_markup_mode="markdown")


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context, as_json: asked.AsJson = False) -> None:
    """List the datasets of `train` and `sweep`, and the tables that `datasets write` can write.

    Example: `fedprior datasets`
    """
    if context.invoked_subcommand is not None:
        return
    from fedprior.data.datasets import describe

    federations, tables = describe(), _tables()
    if as_json:
        answer = {"format": 1, "datasets": federations, "tables": tables}
        typer.echo(json.dumps(answer))
        return
    console = Console(highlight=False)
    console.print(_shown("For `fedprior train NAME`", federations))
    console.print(_shown("Written by `fedprior datasets write NAME`, all simulated", tables))


@app.command("write")
def write(
    name: Annotated[
        str | None, typer.Argument(help="A name of the list, or `all`. Without it: the list.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="A folder, or for a single table a .csv or .parquet file.")
    ] = Path(),
    force: asked.Force = False,
    seed: Annotated[int, typer.Option(help="Another seed draws other rows.")] = 0,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Write example tables, with which the commands of the documentation can be tried.

    All rows are simulated, and the same for the same seed.

    Example: `fedprior datasets write visits`
    """
    from fedprior.cli.progress import say
    from fedprior.data.examples import EXAMPLES, write_examples

    if name is None:
        Console(highlight=False).print(_shown("Names for `fedprior datasets write`", _tables()))
        return
    names = EXAMPLES if name == "all" else [name]
    paths = write_examples(names, out, seed=seed, force=force)
    if as_json:
        typer.echo(json.dumps({"format": 1, "files": [str(path) for path in paths]}))
        return
    say(f"Simulated rows, written to {', '.join(map(str, paths))}", quiet=quiet)


def _tables() -> list[dict[str, Any]]:
    from fedprior.data.examples import EXAMPLES

    return [
        {
            "name": each.name,
            "description": each.description,
            "files": list(each.files) if len(each.files) < 6 else [f"{len(each.files)} files"],
        }
        for each in EXAMPLES.values()
    ]


def _shown(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        cells = (", ".join(cell) if isinstance(cell, list) else str(cell) for cell in row.values())
        table.add_row(*cells)
    return table
