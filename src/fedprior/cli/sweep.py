"""`fedprior sweep`."""

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli import asked
from fedprior.cli.bars import Bar, add_bars
from fedprior.cli.pages import check_report, write_report
from fedprior.core.scores import METRICS

if TYPE_CHECKING:
    from fedprior.engines.sweep import Sweep


def sweep(
    config: asked.File = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE,VALUE: `lr` (every rate that has no values of its own) or an option "
            "of a method; may be repeated."
        ),
    ] = None,
    seeds: asked.Seeds = None,
    seed: asked.First = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="A method to sweep; may be repeated.")
    ] = None,
    metric: asked.MetricChoice = None,
    data: asked.Data = None,
    client: asked.Client = None,
    label: asked.Label = None,
    features: asked.Features = None,
    exclude: asked.Exclude = None,
    missing: asked.Missing = None,
    encoder: asked.Encoder = None,
    changes: asked.Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder (default: sweeps/TIME); an existing sweep is continued."),
    ] = None,
    plot: asked.Plot = None,
    force: asked.Force = False,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing to standard error.")] = False,
) -> None:
    """Try values of rates and options, choose on validation scores, test the choice once.

    Values with a decimal point and seeds are trained side by side in one program. Every method gets
    the same values of the options that it has, and the same number of gradient steps. `lr` sets all
    rates of a method and overrides those of the configuration, except for a rate that has its own
    --over. Ties go to the value that was named first. The same command with the same --out
    continues a sweep, and another --algorithm adds to it.

    Models are scored once, after their last round, whatever evaluate_every says, and stay on the
    device: store = "disk" is refused, and so is local-converged, which tunes its number of steps.

    --plot draws validation scores against the values, and each client's gain over local if that is
    among the methods.

    Example: `fedprior sweep mnist --over lr=0.05,0.1,0.2 --seeds 5 --out s`
    """
    given = locals()
    from fedprior.cli.progress import Trainings, busy
    from fedprior.reporting.outputs import PLOT_SUFFIXES, check_output, save_plot

    with busy("loading", quiet=quiet):
        from fedprior.reporting.config import given_keys
        from fedprior.reporting.pages.sweep import page_of
        from fedprior.reporting.sweep import SweepFolder, sweep_methods
        from fedprior.reporting.sweep_plan import plan, read_over

    check_report("sweep", report, force=force)
    settings = asked.configured("sweep", config, given, changes or [])
    folder = SweepFolder(out or Path("sweeps") / time.strftime("%Y%m%d-%H%M%S"))
    folder.check_place()
    check_output("sweep", "--plot", plot, PLOT_SUFFIXES, source=None, force=force)
    with busy("preparing", quiet=quiet):
        keys = given_keys(config, changes or [])
        planned = plan(settings, over=read_over(over or []), given=keys)
    folder.check(planned)

    def draw(swept: "Mapping[str, Sweep]") -> None:
        if plot is not None:
            from fedprior.reporting.run_plot import draw_sweep

            names = [str(name) for each in planned.federations.values() for name in each.clients]
            save_plot("sweep", plot, partial(draw_sweep, swept, names))

    with Trainings(quiet=quiet) as bar:
        for remark in planned.remarks:
            bar.say(remark)
        summary = sweep_methods(planned, folder, progress=bar.part, finish=draw)
        for name, row in summary["methods"].items():
            if row["chosen"] is None:
                bar.say(f"{name}: nothing is chosen, at every point a training diverged.")
        bar.written(folder.path, plot)
        write_report("sweep", report, lambda: page_of(folder.path), bar.say)
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        console = Console(highlight=False)
        console.print(add_bars(_table(summary), console, _bars(summary), names=("test", "valid")))


def _bars(summary: dict[str, Any]) -> list[Bar | None]:
    """The test score of each method, a standard deviation to both sides, and validation's."""
    rows, unit = summary["methods"], METRICS[summary["metric"]].unit

    def bar(row: dict[str, Any]) -> Bar | None:
        test, valid, spread = row["test"], row["valid"], row["test_sd"] or 0.0
        if test is None or valid is None:
            return None
        return Bar(unit * (test - spread), unit * test, unit * (test + spread), unit * valid)

    return [bar(row) for row in rows.values()]


def _table(summary: dict[str, Any]) -> Table:
    """One row per method: what was chosen, and how it scores."""
    metric = METRICS[summary["metric"]]
    unit = ", in percent" if metric.share else ""
    title = f"Chosen by the validation {metric.label}{unit}"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    shown.add_column("method", no_wrap=True)
    shown.add_column("chosen", overflow="fold")
    for column in ("of", "validation", "test"):
        shown.add_column(column, justify="right", no_wrap=True)
    rows = summary["methods"]
    tests = [row["test"] for row in rows.values()]

    def show(value: float | None) -> str:
        if metric.share and value is not None:
            return f"{100 * value:.2f}"  # one more than elsewhere: points are close
        return metric.text(value, values=tests)

    for name, row in rows.items():
        words = [f"{key} = {value}" for key, value in (row["chosen"] or {}).items()]
        chosen = "none: diverged" if row["chosen"] is None else ", ".join(words)
        spread = "" if row["test_sd"] is None else f" ± {show(row['test_sd'])}"
        shown.add_row(
            name, chosen, str(row["points"]), show(row["valid"]), show(row["test"]) + spread
        )
    return shown
