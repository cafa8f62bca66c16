"""`fedprior privacy plan` and `fedprior privacy spent`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedprior.cli.audit import audit
from fedprior.core import check

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
    clients: Annotated[int, typer.Option(help="Number of clients.")],
    epsilon: Annotated[float | None, typer.Option(help="The budget.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the sum over the clip of one upload.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    sampling_rate: Annotated[
        float, typer.Option(help="Chance of a client to take part in a round.")
    ] = 1.0,
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

    Example: `fedprior privacy plan --epsilon 3 --delta 1e-5 --clients 10000 --sampling-rate 0.01
    --rounds 500 --parameters 44426`
    """
    from fedprior.privacy.plan import plan as make

    found = make(
        delta=delta,
        num_clients=clients,
        rate=sampling_rate,
        rounds=rounds,
        target=epsilon,
        noise_multiplier=noise_multiplier,
        num_parameters=parameters,
        local_steps=local_steps,
        allow_delta=allow_delta,
    )
    if as_json:
        typer.echo(json.dumps(found.describe()))
        return
    console = Console(highlight=False)
    console.print(f"Noise multiplier {found.noise_multiplier:.4g} for {found.rounds} rounds.")
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("view", "relation", "epsilon", "what it sees"):
        table.add_column(name, justify="right" if name == "epsilon" else "left", overflow="fold")
    for view in found.views:
        shown = "unbounded" if view.epsilon is None else f"{view.epsilon:.3g}"
        table.add_row(view.view, view.relation, shown, view.explanation)
    console.print(table)
    console.print(f"User level, delta = {delta:g}, Gaussian noise, Poisson sampling.")
    if found.paper_bound is not None:
        console.print(
            f"The paper's printed bound would say {found.paper_bound:.3g}; it does not hold "
            "(ERRATA 46-51)."
        )
    console.print(found.verdict)


@app.command("spent")
def spent(
    run: Annotated[Path, typer.Argument(help="A run folder, or a ledger.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """What a run has spent, computed anew from its ledgers after their hashes are checked.

    Example: `fedprior privacy spent runs/a`
    """
    from fedprior.reporting.ledgers import sentence
    from fedprior.reporting.ledgers import spent as read

    check.require(run.exists(), "privacy spent", "RUN", "a run folder or a ledger", str(run))
    rows = read(run)
    rule = "a run with a ledger"
    check.require(bool(rows), "privacy spent", "RUN", rule, str(run), "Was the run private?")
    if as_json:
        typer.echo(json.dumps({"format": 1, "ledgers": rows}))
        return
    for row in rows:
        typer.echo(sentence(row))
