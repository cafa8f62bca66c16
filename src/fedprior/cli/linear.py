"""`fedprior reproduce linear`."""

from typing import Annotated

import typer

from fedprior.cli import asked
from fedprior.cli.experiment import document_of, show_lines
from fedprior.cli.pages import check_report
from fedprior.cli.progress import counting
from fedprior.core import check


def linear(
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the clients.")] = False,
    runs: Annotated[int, typer.Option("--runs", "--seeds", help="How many seeds.")] = 1,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    report: asked.Report = None,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Errors of personal linear regressions with more features than rows (m = 10,000, n = 10).

    `known` has the true population, `default` learns it by marginal likelihood, `paper` by the
    printed algorithm on log-variances with floors; `local` is least squares by client, `pooled`
    over all, which is what FedAvg converges to.

    Example: `fedprior reproduce linear --json`
    """
    from fedprior.experiments.linear import remarks, run

    check_report("linear", report)
    check.count("linear", runs=runs)
    check.seed("linear", seed)
    with counting("linear", quiet=quiet) as watch:
        rows = run(seeds=range(seed, seed + runs), quick=quick, watch=watch)
    document = document_of("linear", rows, remarks(rows), seed=seed, runs=runs)
    clients = "1,000" if quick else "10,000"
    title = f"Squared error of theta, {clients} clients of 10 rows, {runs} runs"
    command = f"fedprior reproduce linear --runs {runs} --seed {seed}" + " --quick" * quick
    lines = [("d", "method", "error", "the paper says")]
    lines += [(str(row.d), row.method, f"{row.mse:.4f}", row.paper_says or "") for row in rows]
    show_lines(document, title, lines, caption=command, report=report, as_json=as_json, quiet=quiet)
