"""Sums of every group in one pass over a table on disk, computed and kept inside DuckDB.

Only the numbers leave DuckDB; names of groups are fetched for the few that are shown, and results
are joined to the others where they are written.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.data import measures
from fedprior.data.cells import MISSING, key, label, missing_numbers, spelled
from fedprior.data.constants import Constants, constants
from fedprior.data.measures import Measure, Numbers
from fedprior.data.scan import Scan, quoted, scan, unreadable
from fedprior.data.writing import copy_to, filled


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """One row per group, in order of the groups' names.

    Values have `mean` and `within` (the sum of squares around it), or `variance` where standard
    errors are known; outcomes have `successes`, and so have events, whose `n` is the exposure.
    Where rows have a size t of their own, `repeats` counts them, and `squares` and `inverses` are
    sums of successes^2 / t and of 1 / t.
    `rows` were used, `dropped` were not, and `notes` say why; `columns` says what each column was
    read as. `covariates` are the columns with one value in each group. With `categories` there is a
    row for each group and each category. The names are `labels`, or the connection's table `groups`
    for a table on disk.
    """

    n: np.ndarray
    rows: int
    mean: np.ndarray | None = None
    within: np.ndarray | None = None
    variance: np.ndarray | None = None
    successes: np.ndarray | None = None
    repeats: np.ndarray | None = None
    squares: np.ndarray | None = None
    inverses: np.ndarray | None = None
    covariates: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: int = 0
    notes: tuple[str, ...] = ()
    columns: dict[str, str] = field(default_factory=dict)
    labels: np.ndarray | None = None
    categories: np.ndarray | None = None
    connection: Any = None

    @property
    def number(self) -> int:
        """The number of groups."""
        if self.categories is None:
            return len(self.n)
        return len(self.n) // len(dict.fromkeys(self.categories.tolist()))

    def names(self, places: Sequence[int] | None = None) -> list[str]:
        """The names of the groups at `places`, in that order; of all of them by default."""
        if self.labels is not None:
            shown = range(len(self.n)) if places is None else places
            if self.categories is not None:
                return [f"{self.labels[place]}: {self.categories[place]}" for place in shown]
            return [str(self.labels[place]) for place in shown]
        kind = self.connection.execute("SELECT typeof(name) FROM groups LIMIT 1").fetchall()[0][0]
        query = f"SELECT rowid, {spelled('name', kind)} FROM groups"
        if places is None:
            rows = self.connection.execute(f"{query} ORDER BY rowid").fetchall()
            return [name for _, name in rows]
        wanted = ", ".join(str(int(place)) for place in places) or "NULL"
        named = dict(self.connection.execute(f"{query} WHERE rowid IN ({wanted})").fetchall())
        return [named[int(place)] for place in places]

    def keys(self) -> list[tuple[str, ...]]:
        """The labels of every group, one for each column of its key (`cells.key`)."""
        rows = self.connection.execute("SELECT name FROM groups ORDER BY rowid").fetchall()
        parts = (str(name).split(" / ") for (name,) in rows)
        return [tuple(part.replace("//", "/") for part in each) for each in parts]

    def write(self, columns: dict[str, np.ndarray], path: Path) -> None:
        """`group` and the columns, one row per group, as CSV or Parquet; whole or not at all.

        NaN is written as an empty cell (NULL).
        """
        import duckdb

        connection = self.connection if self.labels is None else duckdb.connect()
        if self.labels is not None:
            connection.register("groups", {"name": self.labels})
        if self.categories is not None:
            columns = {"category": self.categories, **columns}
        connection.register("result", columns)
        table = f'SELECT name AS "group", {filled(columns)} FROM groups POSITIONAL JOIN result'
        copy_to(connection, table, path, owner="estimate")


@contextmanager
def aggregate(
    path: str,
    *,
    group: str | Sequence[str],
    value: str | None = None,
    stderr: str | None = None,
    successes: str | None = None,
    trials: str | None = None,
    outcome: str | None = None,
    covariates: Sequence[str] = (),
    events: str | None = None,
    exposure: str | None = None,
    missing: Sequence[str] = MISSING,
    strict: bool = False,
    memory_limit: str | None = None,
) -> Iterator[Groups]:
    """The groups of a CSV or Parquet file (or a glob of them), open as long as the context is.

    Several columns of `group` make one key. Give `value` (with `stderr`: each row an estimate and
    its standard error; several rows of a group are independent estimates of one number and are
    combined by inverse variance), or `successes` and `trials` (summed over a group's rows), or
    `outcome` (0 and 1, true and false), or `events` and `exposure` (summed; 1 a row without it).

    Rows without a group or without a number are dropped and counted, or refused if `strict`; a
    group of which no row is left is dropped with them. `covariates` have one value in a group; a
    group without one is dropped, a group without a number is kept, of size 0. One pass over the
    file; more only where a cell is not a number.
    """
    import duckdb

    names = (group,) if isinstance(group, str) else tuple(group)
    numbers = (value, stderr, successes, trials, outcome, events, exposure)
    wanted = [name for name in numbers if name is not None]
    for name in names:
        rule = "another column than those of numbers"
        check.require(name not in wanted, "estimate", "--group", rule, name)
    source = scan(path, columns=[*names, *wanted, *covariates], memory_limit=memory_limit)

    def measured(numbers: Numbers) -> Measure:
        if outcome is not None:
            return measures.outcomes(numbers, outcome)
        if events is not None:
            return measures.events(numbers, events, exposure)
        if successes is not None and trials is not None:
            return measures.counts(numbers, successes, trials)
        if value is not None and stderr is not None:
            return measures.measurements(numbers, value, stderr)
        return measures.values(numbers, str(value))

    try:
        fixed = constants(source, covariates, missing)
        reading = _Reading(source, names, missing, measured(Numbers(source)), fixed)
        totals = None if missing_numbers(missing) else reading.sum()
        if totals is None or totals.bad or totals.strange:
            reading = reading._replace(measure=measured(Numbers(source, missing)))
            totals = reading.sum()
        yield _aggregate(reading, _checked(reading, totals), strict)
    except duckdb.Error as error:
        raise unreadable(source.path, error) from None
    finally:
        source.close()


class _Totals(NamedTuple):
    rows: int
    unnamed: int  # rows without a group
    used: int
    bad: int
    strange: int
    emptied: int  # groups of which no row is left
    numbers: tuple[int, ...]  # of each column


class _Reading(NamedTuple):
    source: Scan
    group: tuple[str, ...]
    missing: Sequence[str]
    measure: Measure
    fixed: Constants

    @property
    def types(self) -> dict[str, str]:
        return self.source.types

    @property
    def rows(self) -> str:
        """The rows as SQL: the group's name and its numbers.

        One group column is taken as it stands: words for missing are looked for among the groups.
        """
        alone = len(self.group) == 1
        name = quoted(self.group[0]) if alone else key(self.types, self.group, self.missing)
        cells = ", ".join(cell.select for cell in self.measure.cells)
        return f"SELECT {name} AS name, {cells}{self.fixed.select} FROM source"

    @property
    def named(self) -> str:
        """SQL of the name of a row or group in `rows`, NULL where it is missing."""
        alone = len(self.group) == 1
        return label("name", self.types[self.group[0]], self.missing) if alone else "name"

    def sum(self) -> _Totals | None:
        """The table of sums, sorted so that draws by place do not depend on threads.

        Rows are counted only where the file does not tell their number: a count costs 5 to 10%.
        None where NaN, infinity or a huge number came in and DuckDB (before 2.0) refuses to go on.
        """
        import duckdb

        try:
            return self._sum()
        except duckdb.OutOfRangeException:
            return None

    def _sum(self) -> _Totals:
        known = self.source.num_rows()
        counted = "" if known is not None else "count(*) AS n_all, "
        self.source.run(
            f"CREATE OR REPLACE TEMP TABLE sums AS SELECT * REPLACE ({self.named} AS name) FROM "
            f"(SELECT name, {counted}{self.measure.sums}{self.fixed.sums} FROM ({self.rows}) "
            "GROUP BY name) "
            "ORDER BY name"
        )
        summed = (
            "0" if known is not None else "sum(n_all)",
            "sum(n_rows) FILTER (WHERE name IS NOT NULL)",
            f"sum({self.measure.bad})",
            f"count_if({self.measure.strange})",
            "count_if(name IS NOT NULL AND n_rows = 0)",
            *(f"sum({cell.alias}_count)" for cell in self.measure.cells),
        )
        row = self.source.run(f"SELECT {', '.join(summed)} FROM sums")[0]
        total, used, bad, strange, emptied, *numbers = (int(cell or 0) for cell in row)
        total = total if known is None else known
        unnamed = 0
        if used < total:
            query = f"SELECT count(*) FROM ({self.rows}) WHERE {self.named} IS NULL"
            unnamed = self.source.run(query)[0][0]
        return _Totals(total, unnamed, used, bad, strange, emptied, tuple(numbers))

    def refuse(self) -> None:
        """Raise for the first row with a fault, if there is one."""
        rows = f"SELECT row_number() OVER () AS place, * FROM ({self.rows})"
        for fault in self.measure.faults:
            first = self.source.run(
                f"SELECT place, CAST({self.named} AS VARCHAR), CAST({fault.shown} AS VARCHAR) "
                f"FROM ({rows}) WHERE {fault.condition} ORDER BY place LIMIT 1"
            )
            if first:
                row, name, shown = first[0]
                where = f" in row {row}" + (f" (group {name!r})" if name is not None else "")
                remedy = f" {fault.remedy}" if fault.remedy else ""
                raise ValueError(
                    f"{self.source.path}: column {fault.column!r} must be {fault.rule}, got "
                    f"{shown}{where}.{remedy}"
                )

    def dropped(self, totals: _Totals) -> list[str]:
        """Which rows are left out, in words."""
        unvalued = totals.rows - totals.unnamed - totals.used
        columns = " or ".join(repr(name) for name in self.measure.columns)
        said = []
        if totals.unnamed:
            groups = " or ".join(repr(name) for name in self.group) + self._word()
            said.append(f"{counted(totals.unnamed, 'row')} without a group ({groups})")
        if unvalued:
            left = f"; no other in {counted(totals.emptied, 'group')}" if totals.emptied else ""
            left += ", predicted from covariates" * bool(left and self.fixed.columns)
            said.append(f"{counted(unvalued, 'row')} without a number ({columns}{left})")
        return said

    def _word(self) -> str:
        """A word that was taken for a missing group, in words: it may be a name."""
        alone = len(self.group) == 1
        return missing_word(self.source, f"({self.rows})", "name", self.named) if alone else ""

    def columns(self, totals: _Totals) -> dict[str, str]:
        """What each column was read as, in words."""
        return {
            cell.column: cell.kind.said(totals.rows - numbers)
            for cell, numbers in zip(self.measure.cells, totals.numbers, strict=True)
        } | self.fixed.said()


def _checked(reading: _Reading, totals: _Totals | None) -> _Totals:
    """The totals, of rows without a fault and of sums that are finite."""
    if totals is None or totals.bad or totals.strange:
        reading.refuse()
    if totals is None or totals.strange:
        rule = "small enough for their squares to be numbers"
        raise ValueError(check.message(reading.source.path, "values", rule, "values beyond 1e150"))
    return totals


def _aggregate(reading: _Reading, totals: _Totals, strict: bool) -> Groups:
    """The groups of the table of sums, of which those without a name or a number are left out."""
    path, source = reading.source.path, reading.source
    check.expect(totals.rows > 0, path, "the file has a header but no rows.")
    reading.fixed.refuse()
    lacking, idle = reading.fixed.lacking()
    missing = " and ".join([*reading.dropped(totals), *lacking])
    rule = "complete with --strict"
    check.require(not (missing and strict), path, "rows", rule, missing)
    used = totals.used - idle
    check.require(used > 0, path, "file", "a table with rows to use", missing)
    if missing:
        some = reading.fixed.complete if reading.fixed.columns else "n_rows > 0"
        kept = f"SELECT * FROM sums WHERE name IS NOT NULL AND {some} ORDER BY name"
        source.run(f"CREATE TEMP TABLE groups AS {kept}")
        source.run("DROP TABLE sums")
    else:
        source.run("ALTER TABLE sums RENAME TO groups")
    statistics = source.connection.execute(f"SELECT {reading.measure.fetched} FROM groups")
    return Groups(
        rows=used,
        dropped=totals.rows - used,
        notes=(f"Dropped {missing}.",) if missing else (),
        columns=reading.columns(totals),
        connection=source.connection,
        # A group without rows has sums of 0.
        **{name: np.ma.filled(values, 0) for name, values in statistics.fetchnumpy().items()},
        covariates=reading.fixed.fetch(source.connection),
    )


def counted(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {what}" + "s" * (number != 1)


def missing_word(source: Scan, rows: str, cell: str, named: str) -> str:
    """A word among the rows that was taken for missing (`named` is NULL), to follow a column."""
    words = f"count(*) FILTER (WHERE trim(CAST({cell} AS VARCHAR)) <> '')"
    query = f"SELECT max(CAST({cell} AS VARCHAR)), {words} FROM {rows} WHERE {named} IS NULL"
    word, number = source.run(query)[0]
    return f", such as {word!r}: --missing sets the words for missing" if number else ""
