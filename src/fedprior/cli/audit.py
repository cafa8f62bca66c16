"""`fedprior privacy audit`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedprior.cli import asked
from fedprior.cli.progress import counting

if TYPE_CHECKING:
    from fedprior.audit.finding import Finding


def audit(
    quick: Annotated[
        bool, typer.Option("--quick", help="Use a tenth of the draws and fewer runs.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(help="Number of runs with the canary, and as many without it.")
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence of each attack: a sound mechanism fails with probability 1 minus this."
        ),
    ] = 0.9999,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    as_json: asked.AsJson = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing to standard error.")] = False,
) -> None:
    """Attack every mechanism; exit code 1 if an attack succeeds.

    Each attack is one line: what was attacked, what is claimed of it, what was measured, the
    smallest fault that it detects with probability 0.999, and how often a sound mechanism fails
    it. Attacks on epsilon state a lower bound at the given confidence. The output ends with what
    the audit cannot see. It needs OpenDP (the extra `secure`), and less than 2 minutes on 2 cores.

    Example: `fedprior privacy audit --quick`
    """
    findings = []
    with counting("audit", quiet=quiet) as show:
        from fedprior.audit.suite import CANNOT_SEE, tasks  # and JAX, which takes a while

        planned = tasks(seed=seed, confidence=confidence, quick=quick, runs=runs)
        for done, task in enumerate(planned):
            show(done, len(planned), task.name)
            findings.append(task.check())
    if as_json:
        attacks = [finding.describe() for finding in findings]
        typer.echo(json.dumps({"format": 2, "attacks": attacks, "cannot_see": CANNOT_SEE}))
    else:
        _print(findings, CANNOT_SEE)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _print(findings: "list[Finding]", cannot_see: tuple[str, ...]) -> None:
    from fedprior.audit.finding import FAMILIES, chance_of_false_alarm

    console = Console(highlight=False)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    for family in FAMILIES:
        group = [finding for finding in findings if finding.family == family]
        if group:
            say(f"\n{family}")
        for finding in group:
            say("  " + _line(finding))
    failed = [finding for finding in findings if not finding.passed]
    if failed:
        say("")
    for finding in failed:
        bound = f"{finding.found}, {finding.said} is claimed"
        say(f"FAILS: {finding.mechanism}: {'; '.join(finding.faults) or bound}.")
    say("\nWhat this audit cannot see")
    for sentence in cannot_see:
        say(f"  - {sentence}")
    say(
        f"\n{len(findings) - len(failed)} of {len(findings)} attacks found nothing. If all "
        f"mechanisms are sound, the probability of any false alarm is at most "
        f"{chance_of_false_alarm(findings):.2g}."
    )


def _line(finding: "Finding") -> str:
    """One attack in one line."""
    verdict = "holds" if finding.passed else "FAILS"
    alarm = 1 - finding.confidence
    rate = f"false alarm {alarm:.0e}" if alarm else "no false alarms"
    return (
        f"{verdict}  {finding.mechanism}: {finding.detail}. Claimed: {finding.said}. "
        f"Measured: {finding.found}. Detects {finding.detects}; {rate}."
    )
