"""What is summed over a group's rows, in SQL, and which rows are refused."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedprior.core import check
from fedprior.data.cells import Column, Kind, as_kind, describe, is_nan, not_nan
from fedprior.data.scan import Scan, quoted

_REPEATS = "repeats, squares, inverses"  # sums that show how much the rows of a group vary


class Cell(NamedTuple):
    """A column of numbers: `alias` is the number, `alias_text` the cell as the file has it."""

    alias: str
    column: str
    number: str
    text: str
    kind: Column

    @property
    def select(self) -> str:
        """Both as an SQL projection."""
        return f"{self.number} AS {self.alias}, {self.text} AS {self.alias}_text"


class Numbers(NamedTuple):
    """How columns of numbers are read.

    Without `missing` numbers are taken as they stand, NaN included, which costs nothing; with it
    words for missing, decimal commas and NaN are looked for first.
    """

    source: Scan
    missing: Sequence[str] | None = None

    def cell(self, alias: str, name: str) -> Cell:
        source, stored = self.source, self.source.types[name]
        is_text, is_number = source.is_text(name), source.is_number(stored) or stored == "BOOLEAN"
        rule = "a column of numbers"
        allowed = is_text or is_number
        check.require(allowed, source.path, f"column {name!r}", rule, stored.lower())
        if self.missing is None:
            number = f"{'TRY_CAST' if is_text else 'CAST'}({quoted(name)} AS DOUBLE)"
            kind: Kind = "truth" if stored == "BOOLEAN" else "number"
            column = Column(name=name, kind=kind, value=number, cell=quoted(name))
            return Cell(alias, name, number, quoted(name), column)
        column = describe(source, [name], missing=self.missing)[name]
        check.require(column.kind != "date", source.path, f"column {name!r}", rule, "dates")
        if column.kind == "text":  # each number counts, and the first word is refused
            column = as_kind(source, name, "number", "", self.missing)
        number = not_nan(f"CAST({column.value} AS DOUBLE)")
        return Cell(alias, name, number, column.cell, column)


class Fault(NamedTuple):
    """Rows for which `condition` holds are refused: column must be RULE, got `shown`. REMEDY"""

    condition: str
    column: str
    rule: str
    shown: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """SQL of one kind of table: over rows, then over the table of sums.

    `sums` makes `n_rows` (rows used) and the statistics; `fetched` are the latter. `bad` counts
    rows to refuse, or cells that are no numbers; `strange` holds where NaN or infinity came in. The
    sums count the numbers of the cell `x` as `x_count`.
    """

    cells: tuple[Cell, ...]
    sums: str
    fetched: str
    bad: str
    strange: str
    faults: tuple[Fault, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(cell.column for cell in self.cells)


def values(numbers: Numbers, value: str) -> Measure:
    """n, mean and sum of squares around the mean, by Welford's update: safe at any offset."""
    x = numbers.cell("x", value)
    return Measure(
        cells=(x,),
        sums=f"{_counts(numbers, x)}, count(x) AS n_rows, avg(x) AS mean, "
        "var_pop(x) * count(x) AS within",
        fetched="n_rows AS n, mean, within",
        bad="cells - n_rows",
        strange="NOT isfinite(mean) OR NOT isfinite(within)",
        faults=_numeric(x),
    )


def measurements(numbers: Numbers, value: str, stderr: str) -> Measure:
    """Estimates of one number: mean sum(x / e^2) / sum(1 / e^2), variance 1 / sum(1 / e^2)."""
    x, e = numbers.cell("x", value), numbers.cell("e", stderr)
    both = "FILTER (WHERE x IS NOT NULL AND e IS NOT NULL)"
    mean = f"sum(x / (e * e)) / sum(1 / (e * e)) {both}"
    return Measure(
        cells=(x, e),
        # A single row's value is kept to the bit.
        sums=f"{_counts(numbers, x, e)}, count(*) {both} AS n_rows, 1 / sum(1 / (e * e)) {both} "
        f"AS variance, CASE WHEN n_rows = 1 THEN max(x) {both} ELSE {mean} END AS mean, "
        "count(*) FILTER (WHERE NOT e > 0 OR isinf(e)) AS wrong",
        fetched="n_rows AS n, mean, variance",
        bad="wrong + cells - x_count - e_count",
        strange="NOT isfinite(mean) OR NOT isfinite(variance)",
        faults=(
            *_numeric(x),
            *_numeric(e),
            Fault("NOT e > 0", stderr, "a standard error above 0", "e"),
        ),
    )


def counts(numbers: Numbers, successes: str, trials: str) -> Measure:
    """Successes and trials, summed; every row must be whole numbers with 0 <= s <= t."""
    return _summed(
        numbers,
        successes,
        trials,
        "s >= 0 AND s <= t AND s = trunc(s) AND t = trunc(t)",
        "CAST(t AS BIGINT)",
        _whole("t", trials),
        Fault(
            f"s > t AND NOT {is_nan('s')}",
            successes,
            f"at most the trials in column {trials!r}",
            "CAST(s AS BIGINT) || ' of ' || CAST(t AS BIGINT)",
        ),
    )


def events(numbers: Numbers, events: str, exposure: str | None) -> Measure:
    """Events and exposure, summed; without a column of exposure, each row has an exposure of 1."""
    if exposure is None:
        s = numbers.cell("s", events)
        return Measure(
            cells=(s,),
            sums=f"{_counts(numbers, s)}, count(s) AS n_rows, sum(s) AS s, "
            "count(*) FILTER (WHERE s < 0 OR s <> trunc(s)) AS wrong, count(s) AS repeats, "
            "sum(s * s) AS squares, CAST(count(s) AS DOUBLE) AS inverses",
            fetched=f"CAST(n_rows AS DOUBLE) AS n, CAST(s AS BIGINT) AS successes, {_REPEATS}",
            bad="wrong + cells - s_count",
            strange="NOT isfinite(s)",
            faults=(*_numeric(s), _whole("s", events)),
        )
    return _summed(
        numbers,
        events,
        exposure,
        "s >= 0 AND s = trunc(s) AND t >= 0 AND (t > 0 OR s = 0)",
        "t",
        Fault("t < 0", exposure, "at least 0", "t"),
        Fault("t = 0 AND s > 0", events, f"0 where column {exposure!r} is 0", "s"),
    )


def _summed(
    numbers: Numbers, happened: str, sizes: str, fits: str, size: str, *faults: Fault
) -> Measure:
    """Sums of the columns s and t; `fits` holds in a good row, `size` is n in the table of sums."""
    s, t = numbers.cell("s", happened), numbers.cell("t", sizes)
    both = "FILTER (WHERE s IS NOT NULL AND t IS NOT NULL)"
    return Measure(
        cells=(s, t),
        sums=f"{_counts(numbers, s, t)}, count(*) {both} AS n_rows, sum(s) {both} AS s, "
        f"sum(t) {both} AS t, {_repeats()}, count(*) FILTER (WHERE NOT ({fits})) AS wrong",
        fetched=f"{size} AS n, CAST(s AS BIGINT) AS successes, {_REPEATS}",
        bad="wrong + cells - s_count - t_count",
        strange="NOT isfinite(s) OR NOT isfinite(t)",
        faults=(*_numeric(s), *_numeric(t), _whole("s", happened), *faults),
    )


def outcomes(numbers: Numbers, outcome: str) -> Measure:
    """The number of ones, and of ones and zeros; the words true and false, yes and no are both."""
    source, y = numbers.source, numbers.cell("y", outcome)
    if source.is_text(outcome):
        word = f"TRY_CAST(TRY_CAST(trim({y.text}) AS BOOLEAN) AS DOUBLE)"
        y = y._replace(number=f"coalesce({y.number}, {word})")
        if numbers.missing is None:
            # What is neither 0 nor 1 counts as no number, and is looked at in a second pass.
            other = f"CASE WHEN {y.number} IN (0, 1) THEN {y.number} END"
            cell = f"CASE {y.text} WHEN '1' THEN 1.0::DOUBLE WHEN '0' THEN 0.0::DOUBLE ELSE {other}"
            y = y._replace(number=f"{cell} END")
    y = y._replace(kind=replace(y.kind, kind="truth", note=""))
    remedy = "For numbers, use --value; for sums, --successes and --trials."
    # A look at every cell costs a quarter of all; often the file itself says that none is needed.
    known = source.is_binary(outcome) or (source.is_text(outcome) and numbers.missing is None)
    wrong = "0" if known else "count(*) FILTER (WHERE y <> 0 AND y <> 1)"
    return Measure(
        cells=(y,),
        sums=f"{_counts(numbers, y)}, count(y) AS n_rows, sum(y) AS ones, {wrong} AS wrong",
        fetched="n_rows AS n, CAST(ones AS BIGINT) AS successes",
        bad="wrong + cells - n_rows",
        strange="NOT isfinite(ones)",
        faults=(
            Fault("y IS NULL AND y_text IS NOT NULL", outcome, "0 or 1", "y_text", remedy),
            Fault(f"y <> 0 AND y <> 1 AND NOT {is_nan('y')}", outcome, "0 or 1", "y_text", remedy),
        ),
    )


def _repeats() -> str:
    """Rows s of size t above 0: how many, sum s^2 / t and sum 1 / t."""
    some = "FILTER (WHERE s IS NOT NULL AND t > 0)"
    return (
        f"count(*) {some} AS repeats, sum(s * s / t) {some} AS squares, "
        f"sum(1 / t) {some} AS inverses"
    )


def _counts(numbers: Numbers, *cells: Cell) -> str:
    """Numbers of each cell, and cells that hold something, which for text are not all numbers."""
    filled = [
        f"count({cell.alias}{'_text' * numbers.source.is_text(cell.column)})" for cell in cells
    ]
    own = [f"count({cell.alias}) AS {cell.alias}_count" for cell in cells]
    return f"{', '.join(own)}, {' + '.join(filled)} AS cells"


def _whole(alias: str, column: str) -> Fault:
    rule = "whole numbers of at least 0"
    return Fault(f"{alias} < 0 OR {alias} <> trunc({alias})", column, rule, alias)


def _numeric(cell: Cell) -> tuple[Fault, Fault]:
    name, text = cell.alias, f"CAST({cell.alias}_text AS VARCHAR)"
    word = f"{name} IS NULL AND {name}_text IS NOT NULL"
    return (
        Fault(word, cell.column, "numbers", text),
        Fault(f"isinf({name})", cell.column, "finite", text),
    )
