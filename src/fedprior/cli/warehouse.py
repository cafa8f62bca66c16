"""What `fedprior estimate --table` prints and writes."""

import json
import warnings
from typing import Any

import typer
from rich.console import Console

from fedprior.cli import regressions
from fedprior.cli.answer import head, print_changed
from fedprior.cli.progress import Watcher
from fedprior.estimation.groups import EstimationWarning
from fedprior.reporting import estimates as reporting
from fedprior.reporting import warehouse
from fedprior.reporting.question import Question


def answer(question: Question, watcher: Watcher, *, as_json: bool) -> None:
    """Sum, fit and join in the user's database; write what is asked for; print."""
    with warehouse.open_database(question) as database:
        with watcher.busy("summing"), warnings.catch_warnings():
            warnings.simplefilter("ignore", EstimationWarning)  # it is among the notes
            model = warehouse.fit(database, question)
        sums = model._answers.sums
        for note in sums.notes:
            watcher.say(note)
        found = _as_json(question, model)
        answers = warehouse.save(model, question, found)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            _print(question, model, answers)
    watcher.written(question.out, question.out_table, question.report)


def _as_json(question: Question, model: Any) -> dict[str, Any]:
    sums = model._answers.sums
    found = reporting.summary(model.estimates_)
    found |= {"notes": list(model.notes_), "rows": sums.rows, "dropped": sums.dropped}
    written = {"out": question.out, "out_table": question.out_table}
    return found | {name: str(place) for name, place in written.items() if place is not None}


def _print(question: Question, model: Any, answers: Any) -> None:
    console = Console(highlight=False, markup=False, emoji=False)  # names stand as they are
    sums, estimates = model._answers.sums, model.estimates_
    dropped = f" ({sums.dropped:,} dropped)" if sums.dropped else ""
    size = f"{estimates.num_groups:,}, {sums.rows:,} rows{dropped}"
    console.print(head(size, estimates))
    console.print(f"\n{estimates.sentence}", soft_wrap=True)
    for note in estimates.notes:
        console.print(f"Note: {note}", soft_wrap=True)
    if estimates.meta is not None:
        console.print()
        console.print(regressions.meta_lines(estimates.meta))
    groups, rows, most, least = warehouse.changed(model, answers)
    print_changed(console, groups, rows, {"Most changed": most, "Least changed": least})
