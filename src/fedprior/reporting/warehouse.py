"""From a question to a table in the user's own database: the model, its answers, a few rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.core.plain import picked
from fedprior.data.aggregate import Groups
from fedprior.data.warehouse.connect import (
    Address,
    connect,
    find_address,
    find_table,
    not_installed,
    reason,
    table_or_none,
)
from fedprior.data.warehouse.roles import Roles
from fedprior.data.warehouse.tables import check_name
from fedprior.data.writing import write_table
from fedprior.estimation.in_engine import fit_frame
from fedprior.estimation.result import Estimates, Ranks
from fedprior.reporting import answers as saved
from fedprior.reporting.estimates import SHOWN
from fedprior.reporting.question import COLUMNS, Question

_OWNER = "estimate"


class Database(NamedTuple):
    """A connection to where the table is, and what may be shown of its address."""

    backend: Any
    address: Address


@contextmanager
def open_database(question: Question) -> Iterator[Database]:
    """Connect; every error of the engine is one line without secrets."""
    address = find_address(_OWNER, question.connect, question.connect_file)
    backend = connect(_OWNER, address)
    try:
        yield Database(backend, address)
    except ImportError as error:
        raise not_installed(_OWNER, error) from None
    except (ValueError, TypeError, OSError) as error:
        error.args = tuple(
            address.hide(each) if isinstance(each, str) else each for each in error.args
        )
        raise
    except Exception as error:
        raise ValueError(f"{question.table}: {reason(address, error)}") from None
    finally:
        backend.disconnect()


def fit(database: Database, question: Question) -> Any:
    """The fitted model of the question, its answers in the database."""
    table = str(question.table)
    native = find_table(_OWNER, database.backend, table, database.address)
    if question.out_table is not None:
        check_name(database.backend, question.out_table)
        there = table_or_none(database.backend, question.out_table) is not None
        sentence = f"--out-table {question.out_table} exists already. Overwrite it with --force."
        check.expect(question.force or not there, _OWNER, sentence)
    roles = Roles(group=question.group, **picked(question, *COLUMNS))
    return fit_frame(_model(question), native, roles, owner=table)


def _model(question: Question) -> Any:
    from fedprior.estimation.events import GroupEvents
    from fedprior.estimation.table import GroupMeans, GroupRates

    kinds = {"events": GroupEvents, "rates": GroupRates, "means": GroupMeans}
    options = {**question.options, "strict": question.strict}
    return kinds[question.kind](fit_by=options.pop("fit"), **options)


def save(model: Any, question: Question, found: dict[str, Any]) -> Any:
    """Write what is asked for; gives the answers, from the new table where there is one.

    `found` is what `--json` prints.
    """
    answers = model._answers.named()
    engine = model._answers.sums.engine
    if question.out_table is not None:
        answers = engine.write(answers, question.out_table, replace=question.force)
    keys = len(model._answers.sums.keys)

    @cache
    def rows() -> dict[str, np.ndarray]:
        return _ordered(engine.read(answers), keys)

    def document() -> dict[str, Any]:
        names = ("out", "out_table")
        return saved.document(
            "estimate",
            {name: each for name, each in found.items() if name not in names},
            question,
            source=str(question.table),
            labels=keys,
            kind=question.kind,
            asked=question.asked,
        )

    def write(path: Path) -> None:
        write_table(rows(), path, owner=_OWNER)

    saved.save(question, document, rows, write=write)
    return answers


def _ordered(columns: dict[str, np.ndarray], keys: int) -> dict[str, np.ndarray]:
    """Rows in order of the first columns, the keys, as a file has them."""
    order = np.arange(len(next(iter(columns.values()))))
    for values in reversed([*columns.values()][:keys]):
        order = order[np.argsort(values[order], kind="stable")]
    return {name: values[order] for name, values in columns.items()}


def changed(model: Any, answers: Any) -> tuple[Groups, Estimates, np.ndarray, np.ndarray]:
    """The groups that moved most and those that moved least, and their places among them."""
    import narwhals as nw

    engine, sums = model._answers.sums.engine, model._answers.sums
    size = model.estimates_.size_name
    away = nw.col("personal") - nw.col("raw")
    moved = nw.when(away > 0).then(away).otherwise(-away)
    frame = answers.filter(nw.col(size) > 0).with_columns(fedprior_moved=moved)
    number = 2 * SHOWN if sums.groups <= 2 * SHOWN else SHOWN
    keys = answers.collect_schema().names()[: len(sums.keys)]  # ties by key
    down = [True, *(False for _ in keys)]
    most = engine.read(frame.sort("fedprior_moved", *keys, descending=down).head(number))
    least = {name: values[:0] for name, values in most.items()}
    if sums.groups > 2 * SHOWN:
        least = engine.read(frame.sort("fedprior_moved", *keys).head(number))
    rows = {name: np.concatenate([most[name], least[name]]) for name in most}
    named = zip(*(rows[name] for name in keys), strict=True)
    labels = np.array([" / ".join(map(str, row)) for row in named], object)
    places = np.arange(len(labels))
    parts = len(most["personal"])
    groups = Groups(n=rows[size], rows=sums.rows, labels=labels)
    return groups, _rows(model.estimates_, rows, size), places[:parts], places[parts:]


def _rows(estimates: Estimates, rows: dict[str, np.ndarray], size: str) -> Estimates:
    """The same population with these rows in place of those that stand for many groups."""
    names = ("raw", "personal", "weight", "lower", "upper")
    columns: dict[str, Any] = {name: rows[name] for name in names}
    ranks = None
    if estimates.ranks is not None:
        ranks = Ranks(mean=rows["rank"], lower=rows["rank_lower"], upper=rows["rank_upper"])
    return replace(
        estimates, n=rows[size], above=rows.get("above"), ranks=ranks, count=None, **columns
    )
