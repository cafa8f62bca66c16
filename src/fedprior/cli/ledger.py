"""`fedprior privacy ledger`: the budget of a population."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedprior.cli import asked
from fedprior.core import check
from fedprior.core.check import PrivacyError

if TYPE_CHECKING:
    from fedprior.privacy.events import Relation

app = typer.Typer(
    name="ledger",
    help="Keep one privacy budget for a population, charged by every run, estimate and regression.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

File = Annotated[Path, typer.Argument(help="The ledger.")]
Key = Annotated[Path | None, typer.Option(help="File with the key of a ledger that has one.")]


@app.command("init")
def init(
    file: Annotated[Path, typer.Argument(help="The new ledger.")],
    epsilon: Annotated[float, typer.Option(help="The budget of the population.")],
    delta: asked.Delta,
    relation: Annotated[
        str,
        typer.Option(
            help="Neighbors: replace-one, or add-remove, which refuses local reports, secure sums "
            "and cohorts of fixed size."
        ),
    ] = "replace-one",
    clients: Annotated[
        int | None,
        typer.Option(help="Number of clients, to check that delta is below 1 / clients."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="Sign all lines with the key in this file; made if it does not exist."),
    ] = None,
    allow_delta: asked.AllowDelta = False,
    as_json: asked.AsJson = False,
) -> None:
    """Make a budget that all questions to the same clients share.

    `train` and `estimate` charge it with --ledger FILE (and --key FILE) before they release
    anything, from any number of processes; a question that it does not cover is refused. In
    Python, private regressions charge it, too.

    Example: `fedprior privacy ledger init clinics.jsonl --epsilon 3 --delta 1e-6 --key clinics.key`
    """
    from fedprior.privacy.opening import begin_ledger
    from fedprior.privacy.plans import check_delta_below
    from fedprior.reporting.population import statement

    owner = "ledger init"
    finite = 0 < epsilon < math.inf
    check.require(finite, owner, "--epsilon", "a positive number", epsilon)
    check.choice(owner, "--relation", relation, ("replace-one", "add-remove"))
    remedy = "Choose one well below 1 / clients."
    check.require(0 < delta < 1, owner, "--delta", "in (0, 1)", delta, remedy)
    if clients is not None:
        check.require(clients >= 1, owner, "--clients", "at least 1", clients)
        check_delta_below(delta, clients, allowed=allow_delta)
    neighbors: Relation = relation  # type: ignore[assignment]
    begin_ledger(
        file,
        epsilon=epsilon,
        delta=delta,
        relation=neighbors,
        key=key,
        allow_delta=allow_delta,
    )
    stated = statement(file, key)
    if as_json:
        typer.echo(json.dumps(stated))
        return
    typer.echo(
        f"{file}: a budget of epsilon {epsilon:g} at delta {delta:g} for one client ({relation})."
    )
    if key is not None:
        typer.echo(f"Its lines are signed with the key in {key}. Whoever has it can forge them.")
    option = "" if key is None else f" --key {key}"
    typer.echo(f"Charge it with --ledger {file}{option}.")
    _say_head(stated["head"])


@app.command("show")
def show(file: File, key: Key = None, as_json: asked.AsJson = False) -> None:
    """Show who spent what of a budget, what is left, and against whom the guarantee holds.

    Every line is verified, and epsilon is computed anew from the recorded events. The ledger of a
    single run is shown, too.

    Example: `fedprior privacy ledger show clinics.jsonl --key clinics.key`
    """
    from fedprior.reporting.population import sentence, statement

    stated = statement(file, key)
    if as_json:
        typer.echo(json.dumps(stated))
        return
    typer.echo(sentence(stated))
    console = Console(highlight=False)
    if stated["charges"]:
        console.print(_charges(stated["charges"]))
    console.print(_views(stated["views"]))
    for line in _notes(stated):
        typer.echo(line)
    _say_head(stated["head"])


@app.command("verify")
def verify(
    file: File,
    key: Key = None,
    head: Annotated[
        str | None,
        typer.Option(help="A hash that was kept elsewhere, to see whether lines were cut since."),
    ] = None,
    as_json: asked.AsJson = False,
) -> None:
    """Check that no line of a ledger was changed, removed or forged (exit code 1 if one was).

    Without a key, somebody who can write the file can compute all hashes anew; without --head, the
    last lines can be cut unnoticed.

    Example: `fedprior privacy ledger verify clinics.jsonl --key clinics.key --head HASH`
    """
    from fedprior.reporting.population import verify as check_lines

    try:
        found = check_lines(file, key, head)
    except PrivacyError as error:
        typer.echo(f"fedprior: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(found))
        return
    signed = "and signed with the key"
    if not found["keyed"]:
        signed = "but not signed: whoever can write the file could have written it anew"
    typer.echo(f"{file}: every line is as it was written, {signed}.")
    if head is not None:
        typer.echo("The head that was kept is among them: nothing before it was cut or replaced.")
    _say_head({"lines": found["lines"], "hash": found["hash"]})


def _charges(rows: list[dict[str, Any]]) -> Table:
    from fedprior.reporting.population import details, figure

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("epsilon\nby itself", justify="right")
    table.add_column("charged by", overflow="fold")
    for row in rows:
        table.add_row(figure(row["epsilon"]), Text(f"{row['who']}\n{details(row)}"))
    return table


def _views(views: list[dict[str, Any]]) -> Table:
    from fedprior.reporting.population import figure

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("against somebody who")
    table.add_column("epsilon", justify="right")
    for view in views:
        bound = "unbounded" if view["epsilon"] is None else figure(view["epsilon"])
        table.add_row(view["adversary"], bound)
    return table


def _notes(stated: dict[str, Any]) -> list[str]:
    """What the figures rest on."""
    rows = stated["charges"]
    lines = []
    if any(row["view"] == "central" for row in rows):
        lines.append("Charges of the central view trust whoever adds up the messages.")
    if any(row["view"] == "masked" for row in rows):
        lines.append("Charges of the masked view trust that enough clients add their noise.")
    simulated = sum(row["noise"] == "simulated" for row in rows)
    if simulated:
        lines.append(
            f"{simulated} of {len(rows)} charges had simulated noise. They count like the others, "
            "but what they produced is not valid for release."
        )
    numbers = sorted({row["clients"] for row in rows if row["clients"] is not None})
    if len(numbers) > 1:
        told = ", ".join(f"{number:,}" for number in numbers)
        lines.append(f"The charges state different numbers of clients: {told}.")
    return lines


def _say_head(head: dict[str, Any]) -> None:
    lines = "1 line" if head["lines"] == 1 else f"{head['lines']} lines"
    typer.echo(
        f"Head after {lines}: {head['hash']}\n"
        "Keep it elsewhere: fedprior privacy ledger verify --head HASH shows whether lines were "
        "cut later."
    )
