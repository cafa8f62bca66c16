"""`fedprior reproduce dp-figures`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedprior.cli import asked
from fedprior.cli.experiment import ExperimentRequest, check_out, data_root, table_of
from fedprior.cli.progress import say
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.experiments.dp_report import PrivateRow

OUT = Path("dp-figures")


def dp_figures(
    quick: Annotated[bool, typer.Option("--quick", help="A small federation, one seed.")] = False,
    setting: Annotated[
        str | None,
        typer.Option(help="synthetic or writers (both models; else writers-logistic, -mlp)."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds (default: 3, with --quick 1).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Root folder of MNIST (default: FEDPRIOR_DATA, then ../shared/data)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, table and rows.")] = OUT,
    noise: Annotated[
        Path | None, typer.Option(help="Noise multipliers, a file of --write-noise.")
    ] = None,
    write_noise: Annotated[
        Path | None, typer.Option(help="Plan the noise, write it to this file, and stop.")
    ] = None,
    from_json: Annotated[
        list[Path] | None,
        typer.Option(help="Draw these rows.json again (one per setting); run nothing."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Accuracy against epsilon for private methods and for local, and psi's path.

    DP-AdaMAP, DP-AdaPeD with and without local fine-tuning, DP-FedAvg with and without fine-tuning,
    DP-FedEM; three of them also with the matrix mechanism, which needs no secret cohorts (and
    jax-privacy: `pip install 'fedprior[matrix]'`). 10,000 synthetic clients, and the 539 writers of
    MNIST as clients. The whole experiment needs a GPU; `--quick` takes a few minutes, on synthetic
    clients unless --setting says otherwise, and leaves out the matrix mechanism.

    Example: `fedprior reproduce dp-figures --quick --out figures`
    """
    from fedprior.experiments import dp_drawing, dp_report, dp_settings
    from fedprior.experiments.dp_figures import dp_figures as run
    from fedprior.reporting.figures import check_drawing

    asked_for = ExperimentRequest("dp-figures", report, as_json, quiet)
    check.seed("dp-figures", seed)
    count = (1 if quick else 3) if seeds is None else seeds
    check.count("dp-figures", seeds=count)
    panels = dp_settings.chosen(setting, quick=quick)
    methods = dp_report.METHODS if quick else (*dp_report.METHODS, *dp_report.CORRELATED)
    if write_noise is not None:
        dp_settings.write_noise(write_noise, panels)
        return say(f"Written to {write_noise}", quiet=quiet)
    check_drawing("dp-figures")
    if from_json:
        rows = dp_report.read(*from_json)
    else:
        check_out("dp-figures", out)
        known = None if noise is None else dp_settings.read_noise(noise, panels)
        rows = asked_for.run(
            run,
            panels,
            seeds=range(seed, seed + count),
            methods=methods,
            noise=known,
            root=data_root("dp-figures", data),
        )
    dp_report.save(rows, out)
    dp_drawing.draw(rows, out)
    say(f"Written to {out}", quiet=quiet)
    asked_for.answer(dp_report.to_json(rows), *_tables(rows))


def _tables(rows: "list[PrivateRow]") -> list[Table]:
    """One table per setting, with the columns that fit 80 characters; table.md has all of them."""
    from fedprior.experiments.dp_report import COLUMNS, cells

    kept = ("method", "epsilon", "accuracy", "over local", "verdict")
    tables = []
    for setting in dict.fromkeys(row.setting for row in rows):
        title = f"{setting}: test accuracy in percent, mean over clients"
        own = [
            dict(zip(COLUMNS, cells(row), strict=True)) for row in rows if row.setting == setting
        ]
        lines = [kept, *([shown[name] for name in kept] for shown in own)]
        tables.append(table_of(title, lines))
    return tables
