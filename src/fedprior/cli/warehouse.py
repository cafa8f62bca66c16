"""What `fedprior estimate --table` prints and writes."""

import json
import warnings
from typing import Any

import typer

from fedprior.cli.answer import head, print_changed, print_estimates
from fedprior.cli.progress import Watcher
from fedprior.cli.screen import Screen, rows_read
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
    screen, sums, estimates = Screen(), model._answers.sums, model.estimates_
    size = f"{estimates.num_groups:,}, {rows_read(sums.rows, sums.dropped)}"
    print_estimates(screen, head(size, estimates), estimates)
    print_changed(screen, *warehouse.changed(model, answers))
