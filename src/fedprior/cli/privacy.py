"""`fedprior privacy plan` and `fedprior privacy spent`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli.audit import audit
from fedprior.core import check

if TYPE_CHECKING:
    from fedprior.privacy.plans import Plan

app = typer.Typer(
    name="privacy",
    help="What a private run will cost, has cost, and whether its mechanisms hold.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.command("audit")(audit)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("plan")
def plan(
    delta: Annotated[float, typer.Option(help="Delta; there is no default.")],
    clients: Annotated[
        int | None,
        typer.Option(help="Number of clients; left out with --cohort-size, the fewest are found."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the sum over the clip of one upload.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Chance of a client to take part in a round (default: 1)."),
    ] = None,
    cohort_size: Annotated[
        int | None, typer.Option(help="Clients a round on average, in place of the rate.")
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Size of an upload, for the noise-to-signal ratio.")
    ] = None,
    local_steps: Annotated[
        int | None, typer.Option(help="Steps a round, for the paper's printed bound.")
    ] = None,
    allow_delta: Annotated[
        bool, typer.Option("--allow-delta", help="Accept a delta of 1 / clients or more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What a private run will cost: of epsilon, noise and rounds give two, the third is found.

    With all three it is said whether they fit (exit code 1 where not); with all three and
    --cohort-size in place of --clients, how many clients it takes.

    Example: `fedprior privacy plan --epsilon 3 --delta 1e-5 --clients 10000 --sampling-rate 0.01
    --rounds 500 --parameters 44426`
    """
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
    searched = clients is None
    if clients is None:
        clients = _fewest(cohort_size, epsilon, noise_multiplier, rounds, delta)
    rate = _rate(clients, sampling_rate, cohort_size)
    found = make(
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
        cost = found.views[0].epsilon
        fits = cost is not None and epsilon is not None and cost <= epsilon
    setting = {"clients": clients, "sampling": "poisson", "sampling_rate": rate, "unit": "client"}
    if as_json:
        answer = {**found.describe(), **setting, "trusts": _trusts(), "fits": fits}
        typer.echo(json.dumps(answer))
    else:
        _print(found, clients, rate, searched=searched, budget=epsilon, fits=fits)
    if fits is False:
        raise typer.Exit(1)


def _check_options(
    delta: float,
    *,
    positive: dict[str, float | None],
    fractions: dict[str, float | None],
    counts: dict[str, int | None],
) -> None:
    """Refusals in the words that were typed."""
    remedies = {
        "--epsilon": "1 is strong, 10 is weak.",
        "--noise-multiplier": "Leave it out, and it is found for --epsilon and --rounds.",
        "--sampling-rate": "It is a client's chance to take part in a round; 1 is everyone.",
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
    """The fewest clients for cohorts of this size, where all else is given."""
    from fedprior.privacy.planning import clients_needed

    if cohort_size is None or epsilon is None or noise_multiplier is None or rounds is None:
        raise ValueError(
            "plan: --clients must be given, got none. To find how many are needed, give "
            "--cohort-size, --epsilon, --noise-multiplier and --rounds."
        )
    found = clients_needed(
        noise=noise_multiplier, cohort_size=cohort_size, target=epsilon, delta=delta, rounds=rounds
    )
    return max(found, cohort_size)  # fewer would do where nobody needs to be hidden by sampling


def _rate(clients: int, sampling_rate: float | None, cohort_size: int | None) -> float:
    if cohort_size is None:
        return 1.0 if sampling_rate is None else sampling_rate
    both = sampling_rate is not None
    rule = "given without --cohort-size, which it follows from"
    check.require(not both, "plan", "--sampling-rate", rule, sampling_rate)
    rule = f"at most the number of clients ({clients})"
    check.require(cohort_size <= clients, "plan", "--cohort-size", rule, cohort_size)
    return cohort_size / clients


def _trusts() -> str:
    from fedprior.reporting.ledgers import TRUSTS

    return TRUSTS["central"]


def _print(
    found: "Plan",
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

    if searched:
        say(f"At least {clients:,} clients, for a sampling rate of {rate:.3g}.")
    say(f"Noise multiplier {found.noise_multiplier:.4g} for {found.rounds} rounds.")
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("view", "relation", "epsilon", "what it sees"):
        table.add_column(name, justify="right" if name == "epsilon" else "left", overflow="fold")
    for view in found.views:
        bound = "unbounded" if view.epsilon is None else shown(view.epsilon, digits=3)
        table.add_row(view.view, view.relation, bound, view.explanation)
    console.print(table)
    say(
        f"For one client with all of its data, delta = {found.views[0].delta:g}, Poisson sampling "
        f"at rate {rate:.4g}, Gaussian noise; trusts {_trusts()}. The same for simulated and "
        "secure noise; only secure noise is valid for release."
    )
    cost = found.views[0].epsilon
    if fits is not None and cost is not None:
        word = "Fits" if fits else "Does not fit"
        spent = shown(cost, digits=4)
        say(f"{word}: epsilon {spent} (central, add-remove) of a budget of {budget:g}.")
    if found.paper_bound is not None:
        say(
            f"The paper's printed bound would say {found.paper_bound:.3g}; it does not hold "
            "(ERRATA 46-51)."
        )
    say(found.verdict)


@app.command("spent")
def spent(
    run: Annotated[Path, typer.Argument(help="A run folder, or a ledger.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """What a run has spent, computed anew from its ledgers after their hashes are checked.

    Several ledgers on the same clients add up: a last line (`together`) says to what.

    Example: `fedprior privacy spent runs/a`
    """
    from fedprior.reporting.ledgers import sentence, sentence_together, together
    from fedprior.reporting.ledgers import spent as read

    check.require(run.exists(), "privacy spent", "RUN", "a run folder or a ledger", str(run))
    rows = read(run)
    rule = "a run with a ledger"
    check.require(bool(rows), "privacy spent", "RUN", rule, str(run), "Was the run private?")
    whole = together(run)
    if as_json:
        typer.echo(json.dumps({"format": 1, "ledgers": rows, "together": whole}))
        return
    for row in rows:
        typer.echo(sentence(row))
    if whole is not None:
        typer.echo(sentence_together(whole))
