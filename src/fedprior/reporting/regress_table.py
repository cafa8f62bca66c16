"""The columns that `fedprior regress` needs: of a file, or of the simulated example."""

from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check, random
from fedprior.data import measures
from fedprior.data.scan import Scan, quoted, scan, unreadable
from fedprior.reporting.regress_question import RegressQuestion


class Table(NamedTuple):
    """`features` by name, as numbers (NaN where missing) or words; a target and a group a row."""

    features: dict[str, Any]
    target: Any
    groups: Any


def read_rows(question: RegressQuestion) -> Table:
    """The rows of the question's file, columns of numbers and columns of words told apart."""
    import duckdb

    if question.file is None:
        return simulated_shops()
    group, target = str(question.group), str(question.target)
    wanted = [group, target, *question.columns]
    source = scan(question.file, columns=wanted)
    try:
        cells = ", ".join(quoted(name) for name in wanted)
        source.connection.execute(f"CREATE TEMP TABLE rows AS SELECT {cells} FROM source")
        found = {name: _column(source, name) for name in wanted[1:]}
        labels = _fetch(source, quoted(group))
    except duckdb.Error as error:
        raise unreadable(question.file, error) from None
    finally:
        source.close()
    check.require(len(labels) > 0, question.file, "file", "a table with rows", "a header only")
    y = found.pop(target)
    return Table(found, y, labels)


def _column(source: Scan, name: str) -> Any:
    """A column of numbers, or one of words where no cell is a number; both in one are refused."""
    measure = measures.values(source, name)
    (cell,), fault = measure.cells, measure.faults[0]
    rows = f"SELECT {cell.select(False)} FROM rows"
    run = source.connection.execute
    numbers, words = run(
        f"SELECT count({cell.alias}), count_if({fault.condition}) FROM ({rows})"
    ).fetchone()
    if words == 0:
        return _fetch(source, cell.number)
    if numbers == 0:
        text = f"CAST({quoted(name)} AS VARCHAR)"
        return _fetch(source, f"CASE WHEN trim({text}) = '' THEN NULL ELSE {text} END")
    counted = f"SELECT row_number() OVER () AS place, * FROM ({rows})"
    row, shown = run(
        f"SELECT place, {fault.shown} FROM ({counted}) WHERE {fault.condition} "
        "ORDER BY place LIMIT 1"
    ).fetchone()
    raise ValueError(
        f"{source.path}: column {name!r} must be numbers in every row or words in every row, got "
        f"{shown!r} in row {row} beside {numbers:,} numbers."
    )


def _fetch(source: Scan, expression: str) -> Any:
    found = source.connection.execute(f"SELECT {expression} AS cell FROM rows").fetchnumpy()
    return found["cell"]


def simulated_shops() -> Table:
    """80 shops of 4 to 20 weeks: log sales fall with the price, in each shop by its own amount.

    Simulated: intercept ~ N(5, 0.3^2), slope ~ N(-1.2, 0.5^2), correlation -0.3, a holiday adds
    0.25 everywhere, noise 0.3.
    """
    draws = random.stream(0, "partition")
    sizes = draws.integers(4, 21, 80)
    place = np.repeat(np.arange(80), sizes)
    spread = np.array([[0.09, -0.045], [-0.045, 0.25]])
    theta = draws.multivariate_normal([5.0, -1.2], spread, 80)
    price = draws.normal(0.0, 0.5, len(place)).round(2)
    holiday = (draws.random(len(place)) < 0.15).astype(float)
    sales = theta[place, 0] + theta[place, 1] * price + 0.25 * holiday
    sales = (sales + draws.normal(0.0, 0.3, len(place))).round(3)
    groups = np.array([f"shop {number + 1:02d}" for number in range(80)], object)[place]
    return Table({"price": price, "holiday": holiday}, sales, groups)
