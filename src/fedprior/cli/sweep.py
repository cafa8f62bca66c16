"""`fedprior sweep`."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table


def sweep(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; without one, the embedded digits.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE,VALUE: `lr` or an option of a method; may be repeated."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    seed: Annotated[int | None, typer.Option(help="First seed.")] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="A method to sweep; may be repeated.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Root folder of the configured dataset, or a file.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="key=value on top of the configuration.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder (default: sweeps/TIME); goes on there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="No progress on standard error.")] = False,
) -> None:
    """Try values of rates and options, choose on validation scores, test the choice once.

    Values with a decimal point and seeds are trained side by side in one program. Every method gets
    the same values, where it has the option, and the same number of gradient steps. Of equal scores
    the value that was named first is taken. The same command with the same --out goes on.

    Example: `fedprior sweep configs/paper/mnist.toml --over lr=0.05,0.1,0.2 --seeds 5 --out s`
    """
    from fedprior.cli.progress import Trainings
    from fedprior.cli.train import given
    from fedprior.data.datasets import needs_files
    from fedprior.reporting import sweep as reporting
    from fedprior.reporting.config import read

    named = needs_files(read(config).data.name)
    own = given("sweep", data=data, named=named, algorithm=algorithm, seed=seed, seeds=seeds)
    settings = read(config, [*own, *(changes or [])])
    values = reporting.read_over(over or [])
    reporting.check_over(settings, values)
    folder = reporting.SweepFolder(out or Path("sweeps") / time.strftime("%Y%m%d-%H%M%S"))
    with Trainings(quiet=quiet) as bar:
        summary = reporting.sweep_methods(settings, folder, over=values, progress=bar.part)
        bar.say(f"Written to {folder.path}")
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        Console(highlight=False).print(_table(summary))


def _table(summary: dict[str, Any]) -> Table:
    """One row a method: what was chosen, and how it scores."""
    shown = Table(box=box.SIMPLE_HEAD, title="Chosen on validation scores", title_justify="left")
    shown.add_column("method", no_wrap=True)
    shown.add_column("chosen", overflow="fold")
    for column in ("of", "validation", "test"):
        shown.add_column(column, justify="right", no_wrap=True)
    plain = any(row["test"] < 0 for row in summary["methods"].values())
    unit, digits = (1, 4) if plain else (100, 2)  # minus a squared error is no share
    for name, row in summary["methods"].items():
        chosen = ", ".join(f"{key} = {value}" for key, value in row["chosen"].items())
        spread = "" if row["test_sd"] is None else f" ± {unit * row['test_sd']:.{digits}f}"
        shown.add_row(
            name,
            chosen,
            str(row["points"]),
            f"{unit * row['valid']:.{digits}f}",
            f"{unit * row['test']:.{digits}f}{spread}",
        )
    return shown
