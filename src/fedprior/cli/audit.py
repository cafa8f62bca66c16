"""`fedprior privacy audit`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from fedprior.audit.finding import Finding


def audit(
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a tenth of the draws and a fifth of the runs.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(help="Number of runs with the canary, and as many without it.")
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence of each check: a sound mechanism fails with probability 1 minus this."
        ),
    ] = 0.9999,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing to standard error.")] = False,
) -> None:
    """Attack every mechanism; exit code 1 if one violates its claimed epsilon.

    Attacks try to distinguish worst-case neighbors by what is released, for every private channel
    and for complete private runs with a canary client. Conformance checks compare clip, noise,
    distributions and cohorts with the claim. `lower bound` is a lower bound on epsilon at the given
    confidence.

    Example: `fedprior privacy audit --quick`
    """
    from fedprior.audit.finding import chance_of_false_alarm
    from fedprior.audit.suite import tasks

    planned = tasks(seed=seed, confidence=confidence, quick=quick, runs=runs)
    findings = []
    with _watching(len(planned), quiet) as show:
        for task in planned:
            show(task.name)
            findings.append(task.check())
    if as_json:
        checks = [finding.describe() for finding in findings]
        typer.echo(json.dumps({"format": 1, "checks": checks}))
    else:
        _print(findings, chance_of_false_alarm(findings))
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _print(findings: "list[Finding]", false_alarm: float) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("mechanism", "check", "claimed", "lower bound", ""):
        right = name in ("claimed", "lower bound")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for finding in findings:
        table.add_row(
            finding.mechanism,
            f"{finding.kind}: {finding.detail}",
            f"{finding.claimed:.4g}",
            f"{finding.lower_bound:.4g}",
            "holds" if finding.passed else "FAILS",
        )
    console = Console(highlight=False)
    console.print(table)
    failed = [finding for finding in findings if not finding.passed]
    for finding in failed:
        bound = f"epsilon at least {finding.lower_bound:.4g}, claimed {finding.claimed:.4g}"
        words = "; ".join(finding.faults) or bound
        console.print(f"FAILS: {finding.mechanism}: {words}.", markup=False, soft_wrap=True)
    deltas = sorted({finding.delta for finding in findings if finding.delta})
    console.print(
        f"{len(findings) - len(failed)} of {len(findings)} checks hold. Epsilon is per client, at "
        f"delta {', '.join(f'{delta:g}' for delta in deltas)} (0 for randomized responses). If all "
        f"mechanisms are sound, any check fails with probability {false_alarm:.2g} at most.",
        soft_wrap=True,
    )


@contextmanager
def _watching(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on standard error if it is a terminal, else nothing."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if quiet or not console.is_terminal:
        yield lambda name: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("audit", total=total, completed=-1)
        yield lambda name: bar.update(task, description=name, advance=1)
