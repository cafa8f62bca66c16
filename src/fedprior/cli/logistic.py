"""`fedprior reproduce logistic`."""

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.cli.experiment import document_of, show_lines
from fedprior.cli.pages import check_report
from fedprior.cli.progress import counting


def logistic(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the groups.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure: .png, .pdf or .svg.")] = None,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Held-out log-loss of personal, local and pooled logistic regressions (m = 10,000).

    Groups have 5 to 40 rows and thetas of a small, a middle and a large spread. `known` has the
    true population; `laplace` and `paper` are other ways to learn it.

    Example: `fedprior reproduce logistic --plot losses.png`
    """
    from fedprior.experiments.logistic import draw_losses, remarks
    from fedprior.experiments.logistic import logistic as run
    from fedprior.reporting.outputs import PLOT_SUFFIXES, check_output

    check_output("logistic", "--plot", plot, PLOT_SUFFIXES, source=None, force=True)
    check_report("logistic", report)
    with counting("logistic", quiet=quiet) as watch:
        rows = run(seed=seed, quick=quick, watch=watch)
    if plot is not None:
        draw_losses(rows, plot)
    document = document_of("logistic", rows, remarks(rows), seed=seed)
    groups = "1,000" if quick else "10,000"
    title = f"Held-out log-loss, {groups} groups of 5 to 40 rows, 5 features"
    command = f"fedprior reproduce logistic --seed {seed}" + " --quick" * quick
    lines = [("scale", "method", "log-loss", "behind personal", "variance")]
    for row in rows:
        behind = "" if row.method == "personal" else f"{row.behind:.4f} ± {row.behind_se:.4f}"
        variance = "" if row.variance is None else f"{row.variance:.4f}"
        name = row.method + (f" ({row.note})" if row.note else "")
        lines.append((f"{row.scale:g}", name, f"{row.log_loss:.4f}", behind, variance))
    show_lines(document, title, lines, caption=command, report=report, as_json=as_json, quiet=quiet)
