"""Sums of every group in one pass over a table on disk, computed and kept inside DuckDB.

Only the numbers leave DuckDB; names of groups are fetched for the few that are shown, and results
are joined to the others where they are written.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.data import measures
from fedprior.data.measures import Measure
from fedprior.data.scan import Scan, literal, quoted, scan, unreadable, writing

SUFFIXES = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """One row a group, in order of the groups' names.

    Values have `mean` and `within` (the sum of squares around it), or `variance` where standard
    errors are known; outcomes have `successes`. `rows` were used, `dropped` were not, and `notes`
    say why. The names are `labels`, or the connection's table `groups` for a table on disk.
    """

    n: np.ndarray
    rows: int
    mean: np.ndarray | None = None
    within: np.ndarray | None = None
    variance: np.ndarray | None = None
    successes: np.ndarray | None = None
    dropped: int = 0
    notes: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    connection: Any = None

    def names(self, places: Sequence[int]) -> list[str]:
        """The names of the groups at `places`, in that order."""
        if self.labels is not None:
            return [str(self.labels[place]) for place in places]
        wanted = ", ".join(str(int(place)) for place in places) or "NULL"
        query = f"SELECT rowid, CAST(name AS VARCHAR) FROM groups WHERE rowid IN ({wanted})"
        found = dict(self.connection.execute(query).fetchall())
        return [found[int(place)] for place in places]

    def write(self, columns: dict[str, np.ndarray], path: Path) -> None:
        """`group` and the columns, a row a group, as CSV or Parquet; whole or not at all.

        NaN is written as an empty cell (NULL).
        """
        import duckdb

        connection = self.connection if self.labels is None else duckdb.connect()
        if self.labels is not None:
            connection.register("groups", {"name": self.labels})
        connection.register("result", columns)
        cells = ", ".join(_cell(name, values) for name, values in columns.items())
        table = f'SELECT name AS "group", {cells} FROM groups POSITIONAL JOIN result'
        aside = path.with_name(path.name + ".tmp")
        kind = SUFFIXES[path.suffix]
        with writing(path, "--out"):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                connection.execute(f"COPY ({table}) TO {literal(str(aside))} ({kind})")
                aside.rename(path)
            finally:
                aside.unlink(missing_ok=True)


@contextmanager
def aggregate(
    path: str,
    *,
    group: str,
    value: str | None = None,
    stderr: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    outcome: str | None = None,
    strict: bool = False,
    memory_limit: str | None = None,
) -> Iterator[Groups]:
    """The groups of a CSV or Parquet file (or a glob of them), open as long as the context is.

    Give `value` (with `stderr`: each row an estimate and its standard error; several rows of a
    group are independent estimates of one number and are combined by inverse variance), or
    `successes` and `trials` (summed over a group's rows), or `outcome` (0 and 1, true and false).

    Rows without a group or without a number are dropped and counted, or refused if `strict`; a
    group of which no row is left is dropped with them. A missing number is NULL, NaN, an empty
    cell or a word for it (NA); a missing group is NULL, NaN or an empty cell: NA may be a name.
    """
    import duckdb

    wanted = [name for name in (value, stderr, successes, trials, outcome) if name is not None]
    rule = "another column than those of numbers"
    check.require(group not in wanted, "estimate", "--group", rule, group)
    source = scan(path, columns=[group, *wanted], memory_limit=memory_limit)
    try:
        if outcome is not None:
            measure = measures.outcomes(source, outcome)
        elif successes is not None and trials is not None:
            measure = measures.counts(source, successes, trials)
        elif value is not None and stderr is not None:
            measure = measures.measurements(source, value, stderr)
        else:
            measure = measures.values(source, str(value))
        yield _aggregate(_Reading(source, group, measure), strict)
    except duckdb.Error as error:
        raise unreadable(path, error) from None
    finally:
        source.close()


class _Totals(NamedTuple):
    rows: int
    unnamed: int  # rows without a group
    used: int
    bad: int
    strange: int
    emptied: int  # groups of which no row is left


class _Reading(NamedTuple):
    source: Scan
    group: str
    measure: Measure

    def run(self, query: str) -> Any:
        return self.source.connection.execute(query)

    def rows(self, nan_is_missing: bool) -> str:
        """The rows as SQL: the group's name and its numbers."""
        name = quoted(self.group)
        if self.source.types[self.group] in ("FLOAT", "DOUBLE"):
            name = f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END"
        cells = ", ".join(cell.select(nan_is_missing) for cell in self.measure.cells)
        return f"SELECT {name} AS name, {cells} FROM source"

    def sum(self, *, nan_is_missing: bool) -> _Totals:
        """The table of sums, sorted so that draws by place do not depend on threads.

        Rows are counted only where the file does not tell their number: a count costs 5 to 10%.
        """
        known, rows = self.source.num_rows(), self.rows(nan_is_missing)
        counted = "" if known is not None else "count(*) AS n_all, "
        self.run(
            f"CREATE OR REPLACE TEMP TABLE sums AS SELECT name, {counted}{self.measure.sums} "
            f"FROM ({rows}) GROUP BY name ORDER BY name"
        )
        summed = (
            "0" if known is not None else "sum(n_all)",
            "sum(n_rows) FILTER (WHERE name IS NOT NULL)",
            f"sum({self.measure.bad})",
            f"count_if({self.measure.strange})",
            "count_if(name IS NOT NULL AND n_rows = 0)",
        )
        found = self.run(f"SELECT {', '.join(summed)} FROM sums").fetchone()
        total, used, bad, strange, emptied = (int(cell or 0) for cell in found)
        total = total if known is None else known
        unnamed = 0
        if used < total:
            unnamed = self.run(f"SELECT count(*) FROM ({rows}) WHERE name IS NULL").fetchone()[0]
        return _Totals(total, unnamed, used, bad, strange, emptied)

    def first(self, condition: str, shown: str) -> tuple[int, str, str] | None:
        """(row from 1, group, what is shown) of the first row for which `condition` holds."""
        rows = f"SELECT row_number() OVER () AS place, * FROM ({self.rows(False)})"
        return self.run(
            f"SELECT place, CAST(name AS VARCHAR), CAST({shown} AS VARCHAR) FROM ({rows}) "
            f"WHERE {condition} ORDER BY place LIMIT 1"
        ).fetchone()

    def refuse(self) -> None:
        """Raise for the first row with a fault, if there is one."""
        for fault in self.measure.faults:
            found = self.first(fault.condition, fault.shown)
            if found is not None:
                row, name, shown = found
                where = f" in row {row}" + (f" (group {name!r})" if name is not None else "")
                remedy = f" {fault.remedy}" if fault.remedy else ""
                raise ValueError(
                    f"{self.source.path}: column {fault.column!r} must be {fault.rule}, got "
                    f"{shown}{where}.{remedy}"
                )

    def missing(self, totals: _Totals) -> list[str]:
        """What is missing, in words."""
        unvalued = totals.rows - totals.unnamed - totals.used
        columns = " or ".join(repr(name) for name in self.measure.columns)
        found = []
        if totals.unnamed:
            found.append(f"{_count(totals.unnamed, 'row')} without a group ({self.group!r})")
        if unvalued:
            left = f"; no other in {_count(totals.emptied, 'group')}" if totals.emptied else ""
            found.append(f"{_count(unvalued, 'row')} without a number ({columns}{left})")
        return found


def _aggregate(reading: _Reading, strict: bool) -> Groups:
    """One pass over the file; more only where something is wrong with it."""
    path = reading.source.path
    totals = reading.sum(nan_is_missing=False)
    check.require(totals.rows > 0, path, "file", "a table with rows", "a header only")
    if totals.bad or totals.strange:
        reading.refuse()
    if totals.strange:
        totals = reading.sum(nan_is_missing=True)
        rule = "small enough for their squares to be numbers"
        check.require(not totals.strange, path, "values", rule, "values beyond 1e150")
    missing = " and ".join(reading.missing(totals))
    rule = "complete with --strict"
    check.require(not (missing and strict), path, "rows", rule, missing)
    check.require(totals.used > 0, path, "file", "a table with rows to use", missing)
    if missing:
        kept = "SELECT * FROM sums WHERE name IS NOT NULL AND n_rows > 0 ORDER BY name"
        reading.run(f"CREATE TEMP TABLE groups AS {kept}")
        reading.run("DROP TABLE sums")
    else:
        reading.run("ALTER TABLE sums RENAME TO groups")
    columns = reading.run(f"SELECT {reading.measure.fetched} FROM groups").fetchnumpy()
    return Groups(
        rows=totals.used,
        dropped=totals.rows - totals.used,
        notes=(f"Dropped {missing}.",) if missing else (),
        connection=reading.source.connection,
        **{name: np.ma.getdata(values) for name, values in columns.items()},
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _cell(name: str, values: np.ndarray) -> str:
    column = quoted(name)
    if values.dtype.kind != "f":
        return column
    return f"CASE WHEN isnan({column}) THEN NULL ELSE {column} END AS {column}"
