"""`fedprior privacy plan` and `fedprior privacy spent`; audits and ledgers have their own files."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli import asked, ledger
from fedprior.cli.audit import audit
from fedprior.cli.progress import busy
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.privacy.plans import Plan

app = typer.Typer(
    name="privacy",
    help="Plan private runs, keep budgets, compute what was spent, and audit the mechanisms.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command("audit")(audit)
app.add_typer(ledger.app, name="ledger")


@app.command("plan")
def plan(
    delta: asked.Delta,
    clients: Annotated[
        int | None,
        typer.Option(
            help="Number of clients; if omitted, the smallest number for --cohort-size is computed."
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget.")] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise on the sum, divided by the clip."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Probability that a client takes part in a round (default: 1)."),
    ] = None,
    cohort_size: Annotated[
        int | None,
        typer.Option(help="Expected clients per round, as an alternative to --sampling-rate."),
    ] = None,
    parameters: Annotated[
        int | None,
        typer.Option(help="Number of parameters of an upload, for the noise-to-signal ratio."),
    ] = None,
    local_steps: Annotated[
        int | None, typer.Option(help="Steps per round, for the paper's printed bound.")
    ] = None,
    participation: Annotated[
        str | None,
        typer.Option(
            metavar="K,B",
            help="Compare with noise that needs no secret cohorts: a client takes part at most K "
            "times, at least B rounds apart.",
        ),
    ] = None,
    secure_sums: Annotated[
        bool,
        typer.Option(
            "--secure-sums", help="Compare with noise that clients add to sums under masks."
        ),
    ] = False,
    missing: Annotated[
        int | None,
        typer.Option(
            help="Most clients of a secure sum that may be absent (default: a third of them)."
        ),
    ] = None,
    allow_delta: asked.AllowDelta = False,
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Plan a private run: give two of epsilon, noise and rounds to compute the third.

    With all three, the command checks whether they are consistent (exit code 1 if not). With all
    three and --cohort-size instead of --clients, it computes how many clients are needed.

    Example: `fedprior privacy plan --epsilon 3 --delta 1e-5 --clients 2000 --cohort-size 200
    --rounds 50 --parameters 105`
    """
    from fedprior.cli import shares, turns
    from fedprior.privacy.plans import plan as make

    _check_options(
        delta,
        positive={"--epsilon": epsilon, "--noise-multiplier": noise_multiplier},
        fractions={"--sampling-rate": sampling_rate},
        counts={
            "--clients": clients,
            "--cohort-size": cohort_size,
            "--rounds": rounds,
            "--parameters": parameters,
            "--local-steps": local_steps,
        },
    )
    sentence = "--missing is how many clients of --secure-sums may be absent: give both."
    check.expect(missing is None or secure_sums, "plan", sentence)
    rule = None if participation is None else turns.parse(participation)
    searched = clients is None
    with busy("accounting", quiet=quiet):
        if clients is None:
            clients = _fewest(cohort_size, epsilon, noise_multiplier, rounds, delta)
        rate = _rate(clients, sampling_rate, cohort_size)
        planned = make(
            delta=delta,
            num_clients=clients,
            rate=rate,
            rounds=rounds,
            target=epsilon,
            noise_multiplier=noise_multiplier,
            num_parameters=parameters,
            local_steps=local_steps,
            allow_delta=allow_delta,
        )
        fits = None
        if None not in (epsilon, noise_multiplier, rounds) and not searched:
            cost = planned.views[0].epsilon
            fits = cost is not None and epsilon is not None and cost <= epsilon
        compared = rule and turns.compare(
            planned, rule, rate=rate, num_clients=clients, target=epsilon
        )
        shared = None
        if secure_sums:
            asked_for = {"target": epsilon, "noise_multiplier": noise_multiplier}
            shared = shares.compare(planned, missing, rate=rate, num_clients=clients, **asked_for)
    setting = {"clients": clients, "sampling": "poisson", "sampling_rate": rate, "unit": "client"}
    if as_json:
        answer = {**planned.describe(), **setting, "trusts": _trusts(), "fits": fits}
        if compared:
            answer["participation"] = [each.describe() for each in compared]
        if shared:
            answer["secure_sums"] = shared.describe()
        typer.echo(json.dumps(answer))
    else:
        _print(planned, clients, rate, searched=searched, budget=epsilon, fits=fits)
        if compared:
            turns.show(compared, planned, parameters)
        if shared:
            shares.show(shared, planned)
    if fits is False:
        raise typer.Exit(1)


def _check_options(
    delta: float,
    *,
    positive: dict[str, float | None],
    fractions: dict[str, float | None],
    counts: dict[str, int | None],
) -> None:
    """Check the options under the names that the user typed."""
    remedies = {
        "--epsilon": "1 is strong, 10 is weak.",
        "--noise-multiplier": "Omit it to compute it from --epsilon and --rounds.",
        "--sampling-rate": "It is the probability that a client takes part in a round.",
    }
    for option, value in positive.items():
        good = value is None or (math.isfinite(value) and value > 0)
        check.require(good, "plan", option, "a positive number", value, remedies[option])
    remedy = "Choose one well below 1 / clients."
    check.require(0 < delta < 1, "plan", "--delta", "in (0, 1)", delta, remedy)
    for option, value in fractions.items():
        good = value is None or 0 < value <= 1
        check.require(good, "plan", option, "in (0, 1]", value, remedies[option])
    for option, value in counts.items():
        check.require(value is None or value >= 1, "plan", option, "at least 1", value)


def _fewest(
    cohort_size: int | None,
    epsilon: float | None,
    noise_multiplier: float | None,
    rounds: int | None,
    delta: float,
) -> int:
    """Return the smallest number of clients for cohorts of this size, given everything else."""
    from fedprior.privacy.planning import clients_needed

    if cohort_size is None or epsilon is None or noise_multiplier is None or rounds is None:
        raise ValueError(
            "plan: --clients is required. To compute how many clients are needed, give "
            "--cohort-size, --epsilon, --noise-multiplier and --rounds."
        )
    clients = clients_needed(
        noise=noise_multiplier, cohort_size=cohort_size, target=epsilon, delta=delta, rounds=rounds
    )
    return max(clients, cohort_size)  # smaller if the target needs no amplification by sampling


def _rate(clients: int, sampling_rate: float | None, cohort_size: int | None) -> float:
    if cohort_size is None:
        return 1.0 if sampling_rate is None else sampling_rate
    check.expect(sampling_rate is None, "plan", "give --sampling-rate or --cohort-size, not both.")
    rule = f"at most the number of clients ({clients})"
    check.require(cohort_size <= clients, "plan", "--cohort-size", rule, cohort_size)
    return cohort_size / clients


def _trusts() -> str:
    from fedprior.reporting.ledgers import TRUSTS

    return TRUSTS["central"]


def _print(
    planned: "Plan",
    clients: int,
    rate: float,
    *,
    searched: bool,
    budget: float | None,
    fits: bool | None,
) -> None:
    from fedprior.privacy.guarantee import shown

    console = Console(highlight=False)

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    sampled = shown(rate, digits=4, up=False)
    if searched:
        say(f"At least {clients:,} clients, for a sampling rate of {sampled}.")
    say(f"Noise multiplier {planned.noise_multiplier:.12g} for {planned.rounds} rounds.")
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("view", "relation", "epsilon", "the adversary sees"):
        table.add_column(name, justify="right" if name == "epsilon" else "left", overflow="fold")
    for view in planned.views:
        bound = "unbounded" if view.epsilon is None else shown(view.epsilon, digits=3)
        table.add_row(view.view, view.relation, bound, view.explanation)
    console.print(table)
    say(
        f"For one client with all of its data, delta = {planned.views[0].delta:g}, Poisson "
        f"sampling at rate {sampled}, Gaussian noise; trusts {_trusts()}. The figures are the "
        "same for simulated and secure noise; only secure noise is valid for release."
    )
    cost = planned.views[0].epsilon
    if fits is not None and cost is not None:
        word = "Fits" if fits else "Does not fit"
        spent = shown(cost, digits=4)
        say(f"{word}: epsilon {spent} (central, add-remove) of a budget of {budget:g}.")
    if planned.paper_bound is not None:
        say(
            f"The paper's printed bound is {planned.paper_bound:.3g}; it does not hold "
            "(ERRATA 46-51)."
        )
    say(planned.verdict)


@app.command("spent")
def spent(
    run: Annotated[Path, typer.Argument(help="A run folder, or a ledger.jsonl.")],
    as_json: asked.AsJson = False,
    quiet: asked.Quiet = False,
) -> None:
    """Compute what a run has spent from its ledgers, after verifying their hashes.

    If there are several ledgers on the same clients, the last line (`together`) composes them.

    Example: `fedprior privacy spent runs/a`
    """
    from fedprior.reporting.ledgers import sentence, sentence_together, together
    from fedprior.reporting.ledgers import spent as read

    check.require(run.exists(), "privacy spent", "RUN", "a run folder or a ledger", str(run))
    with busy("accounting", quiet=quiet):
        rows, whole = read(run), together(run)
    rule = "a run with a ledger"
    check.require(bool(rows), "privacy spent", "RUN", rule, str(run), "Was the run private?")
    if as_json:
        typer.echo(json.dumps({"format": 1, "ledgers": rows, "together": whole}))
        return
    for row in rows:
        typer.echo(sentence(row))
    if whole is not None:
        typer.echo(sentence_together(whole))
