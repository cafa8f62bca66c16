"""What is summed over a group's rows, in SQL, and which rows are refused."""

from dataclasses import dataclass
from typing import NamedTuple

from fedprior.data.scan import Scan, literal, quoted

# Words for a missing number that other programs write; NaN is read as one, too.
_MARKERS = ("", "na", "n/a", "nan", "null", "none", "-", ".")


class Cell(NamedTuple):
    """A column of numbers: `alias` is the number, `alias_text` the cell as the file has it."""

    alias: str
    column: str
    number: str

    def select(self, nan_is_missing: bool) -> str:
        """Both as an SQL projection; a first pass takes NaN as it comes, which costs nothing."""
        number = self.number
        if nan_is_missing:
            number = f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"
        return f"{number} AS {self.alias}, {quoted(self.column)} AS {self.alias}_text"


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
    rows to refuse, or cells that are no numbers; `strange` holds where NaN or infinity came in.
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


def values(source: Scan, value: str) -> Measure:
    """n, mean and sum of squares around the mean, by Welford's update: safe at any offset."""
    x = Cell("x", value, source.number(value))
    return Measure(
        cells=(x,),
        sums=f"{_cells(source, x)}, count(x) AS n_rows, avg(x) AS mean, "
        "var_pop(x) * count(x) AS within",
        fetched="n_rows AS n, mean, within",
        bad="cells - n_rows",
        strange="NOT isfinite(mean) OR NOT isfinite(within)",
        faults=_numeric(x),
    )


def measurements(source: Scan, value: str, stderr: str) -> Measure:
    """Estimates of one number: mean sum(x / e^2) / sum(1 / e^2), variance 1 / sum(1 / e^2)."""
    x, e = Cell("x", value, source.number(value)), Cell("e", stderr, source.number(stderr))
    both = "FILTER (WHERE x IS NOT NULL AND e IS NOT NULL)"
    mean = f"sum(x / (e * e)) / sum(1 / (e * e)) {both}"
    return Measure(
        cells=(x, e),
        # A single row's value is kept to the bit.
        sums=f"{_cells(source, x, e)}, count(*) {both} AS n_rows, 1 / sum(1 / (e * e)) {both} "
        f"AS variance, CASE WHEN n_rows = 1 THEN max(x) {both} ELSE {mean} END AS mean, "
        "count_if(NOT e > 0 OR isinf(e)) AS wrong, count(x) + count(e) AS numbers",
        fetched="n_rows AS n, mean, variance",
        bad="wrong + cells - numbers",
        strange="NOT isfinite(mean) OR NOT isfinite(variance)",
        faults=(
            *_numeric(x),
            *_numeric(e),
            Fault("NOT e > 0", stderr, "a standard error above 0", "e"),
        ),
    )


def counts(source: Scan, successes: str, trials: str) -> Measure:
    """Successes and trials, summed; every row must be whole numbers with 0 <= s <= t."""
    s = Cell("s", successes, source.number(successes))
    t = Cell("t", trials, source.number(trials))
    both = "FILTER (WHERE s IS NOT NULL AND t IS NOT NULL)"
    fits = "s >= 0 AND s <= t AND s = trunc(s) AND t = trunc(t)"
    return Measure(
        cells=(s, t),
        sums=f"{_cells(source, s, t)}, count(*) {both} AS n_rows, sum(s) {both} AS s, "
        f"sum(t) {both} AS t, count_if(NOT ({fits})) AS wrong, count(s) + count(t) AS numbers",
        fetched="CAST(t AS BIGINT) AS n, CAST(s AS BIGINT) AS successes",
        bad="wrong + cells - numbers",
        strange="NOT isfinite(s) OR NOT isfinite(t)",
        faults=(
            *_numeric(s),
            *_numeric(t),
            Fault("s < 0 OR s <> trunc(s)", successes, "whole numbers of at least 0", "s"),
            Fault("t < 0 OR t <> trunc(t)", trials, "whole numbers of at least 0", "t"),
            Fault(
                "s > t AND NOT isnan(s)",
                successes,
                f"at most the trials in column {trials!r}",
                "CAST(s AS BIGINT) || ' of ' || CAST(t AS BIGINT)",
            ),
        ),
    )


def outcomes(source: Scan, outcome: str) -> Measure:
    """The number of ones, and of ones and zeros; the words true and false, yes and no are both."""
    number = source.number(outcome)
    if source.is_text(outcome):
        word = f"TRY_CAST(TRY_CAST(trim({quoted(outcome)}) AS BOOLEAN) AS DOUBLE)"
        number = f"coalesce({number}, {word})"
    y = Cell("y", outcome, number)
    remedy = "For numbers, use --value; for sums, --successes and --trials."
    # A look at every cell costs a quarter of all; often the file itself says that none is needed.
    wrong = "0" if source.is_binary(outcome) else "count(*) FILTER (WHERE y <> 0 AND y <> 1)"
    return Measure(
        cells=(y,),
        sums=f"{_cells(source, y)}, count(y) AS n_rows, sum(y) AS ones, {wrong} AS wrong",
        fetched="n_rows AS n, CAST(ones AS BIGINT) AS successes",
        bad="wrong + cells - n_rows",
        strange="NOT isfinite(ones)",
        faults=(
            Fault(f"y IS NULL AND {_is_word('y')}", outcome, "0 or 1", "y_text", remedy),
            Fault("y <> 0 AND y <> 1 AND NOT isnan(y)", outcome, "0 or 1", "y_text", remedy),
        ),
    )


def _cells(source: Scan, *cells: Cell) -> str:
    """Cells that hold something: counted for text alone, where not all of them are numbers."""
    counted = [
        f"count({cell.alias}_text)" if source.is_text(cell.column) else f"count({cell.alias})"
        for cell in cells
    ]
    return " + ".join(counted) + " AS cells"


def _numeric(cell: Cell) -> tuple[Fault, Fault]:
    name, text = cell.alias, f"CAST({cell.alias}_text AS VARCHAR)"
    return (
        Fault(f"{name} IS NULL AND {_is_word(name)}", cell.column, "numbers", text),
        Fault(f"isinf({name})", cell.column, "finite", text),
    )


def _is_word(alias: str) -> str:
    """The cell holds text, and not one of the words for missing."""
    text = f"CAST({alias}_text AS VARCHAR)"
    markers = ", ".join(literal(marker) for marker in _MARKERS)
    return f"({alias}_text IS NOT NULL AND lower(trim({text})) NOT IN ({markers}))"
