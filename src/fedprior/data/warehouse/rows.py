"""What is summed over a group's rows, as narwhals expressions, and which rows are refused.

To be imported where narwhals is known to be there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import narwhals as nw

from fedprior.core import check
from fedprior.data.warehouse.roles import Roles, is_float

_LARGEST = 1.7976931348623157e308  # beyond it is infinity
_LEAST_ERROR, _LARGEST_ERROR = 1e-150, 1e150  # standard errors whose squares are numbers


class FrameFault(NamedTuple):
    """Rows for which `condition` holds are refused: column must be RULE, got `shown`. REMEDY"""

    condition: Any
    alias: str
    rule: str
    remedy: str = ""
    beside: str = ""  # another number that is shown: got 5 of 3


@dataclass(frozen=True, kw_only=True, eq=False)
class FrameMeasure:
    """Expressions over rows (`cells`), over a group's rows (`sums`) and over its sums.

    `sums` make `used`, the number of complete rows, and mostly `wrong`, 0 if none is refused.
    `finite` is a number that NaN or infinity in a row turns into one of them; `statistics` are
    what is estimated from.
    """

    cells: dict[str, Any]
    sums: dict[str, Any]
    statistics: dict[str, Any]
    finite: Any
    faults: tuple[FrameFault, ...] = field(default=())


def measure(owner: str, roles: Roles, schema: Mapping[str, Any], *, careful: bool) -> FrameMeasure:
    """The expressions of these roles; `careful` takes NaN for missing, at some cost."""
    cells = {
        alias: _number(owner, name, schema[name], careful=careful)
        for alias, name in roles.numbers.items()
    }
    kinds = {alias: schema[name] for alias, name in roles.numbers.items()}
    whole = {alias: kind.is_integer() or kind == nw.Boolean for alias, kind in kinds.items()}
    if roles.outcome is not None:
        truth = schema[roles.outcome] == nw.Boolean
        return _outcomes(cells, truth=truth, whole=whole["y"])
    if roles.value is not None:
        return _values(cells) if roles.stderr is None else _measurements(cells)
    if roles.events is not None:
        return _events(cells, whole, roles)
    return _counts(cells, whole, roles)


def _number(owner: str, name: str, kind: Any, *, careful: bool) -> Any:
    """A column as float64, NULL where it is missing. Sums of whole numbers are exact to 2^53."""
    column = nw.col(name)
    if kind == nw.Boolean:  # PostgreSQL has no cast from truth values to numbers but integer
        truth = nw.when(~column).then(nw.lit(0, nw.Int32))
        return nw.when(column).then(nw.lit(1, nw.Int32)).otherwise(truth).cast(nw.Float64)
    if not kind.is_numeric():
        got = str(kind).lower()
        remedy = "Cast it before."
        check.require(False, owner, f"column {name!r}", "a column of numbers", got, remedy)
    if careful and is_float(kind):
        column = nw.when(~column.is_nan()).then(column)
    return column if kind == nw.Float64 else column.cast(nw.Float64)


def _complete(cells: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of rows that have all of them."""
    if len(cells) == 1:
        return dict(cells)
    (first, x), (second, y) = cells.items()
    return {first: nw.when(~y.is_null()).then(x), second: nw.when(~x.is_null()).then(y)}


def _one_where(condition: Any) -> Any:
    return nw.when(condition).then(nw.lit(1, nw.Int32)).otherwise(nw.lit(0, nw.Int32))


def _base(alias: str, wrong: Any) -> dict[str, Any]:
    found = {"rows": nw.len(), "used": nw.col(alias).count()}
    return found if wrong is None else found | {"wrong": wrong}


def _infinite(alias: str) -> FrameFault:
    column = nw.col(alias)
    return FrameFault((column > _LARGEST) | (column < -_LARGEST), alias, "finite")


def _outcomes(cells: dict[str, Any], *, truth: bool, whole: bool) -> FrameMeasure:
    """y^2 - y is 0 for 0 and 1, above 0 for any other whole number; its square for any number."""
    y = nw.col("y")
    apart = y * y - y
    wrong = None if truth else (apart if whole else apart * apart).sum()
    remedy = "For numbers, give value; for sums, successes and trials."
    return FrameMeasure(
        cells=cells,
        sums=_base("y", wrong) | {"ones": y.sum()},
        statistics={"n": _count("used"), "successes": _count("ones")},
        finite=nw.col("ones"),
        faults=(FrameFault((y != 0) & (y != 1), "y", "0 or 1", remedy),),
    )


def _values(cells: dict[str, Any]) -> FrameMeasure:
    """n, mean and sum of squares around the mean: engines update the variance safely."""
    x = nw.col("x")
    return FrameMeasure(
        cells=cells,
        sums=_base("x", None) | {"mean": x.mean(), "spread": x.var(ddof=0)},
        statistics={
            "n": _count("used"),
            "mean": nw.col("mean"),
            "within": nw.col("spread") * nw.col("used"),
        },
        finite=nw.col("mean") * nw.col("mean") + nw.col("spread"),
        faults=(_infinite("x"),),
    )


def _measurements(cells: dict[str, Any]) -> FrameMeasure:
    """Estimates of one number: mean sum(x / e^2) / sum(1 / e^2), variance 1 / sum(1 / e^2)."""
    x, e, used, total = nw.col("x"), nw.col("e"), nw.col("used"), nw.col("total")
    good = (e > _LEAST_ERROR) & (e < _LARGEST_ERROR)
    precision = nw.when(good).then(1 / (e * e))
    mean = nw.when(total > 0).then(nw.col("moment") / total)
    return FrameMeasure(
        cells=_complete(cells),
        sums=_base("x", _one_where(~good).sum())
        | {"total": precision.sum(), "moment": (x * precision).sum(), "single": x.max()},
        statistics={
            "n": _count("used"),
            # A single row's value is kept to the bit.
            "mean": nw.when(used == 1).then(nw.col("single")).otherwise(mean),
            "variance": nw.when(total > 0).then(1 / total),
        },
        finite=nw.col("moment") + total,
        faults=(
            _infinite("x"),
            _infinite("e"),
            FrameFault(~(e > 0), "e", "a standard error above 0"),
            FrameFault(~good, "e", f"between {_LEAST_ERROR:g} and {_LARGEST_ERROR:g}"),
        ),
    )


def _counts(cells: dict[str, Any], whole: Mapping[str, bool], roles: Roles) -> FrameMeasure:
    """Successes and trials, summed; every row must be whole numbers with 0 <= s <= t."""
    s, t = nw.col("s"), nw.col("t")
    rule = f"at most the trials in column {roles.trials!r}"
    return _summed(
        cells,
        (s < 0) | (s > t) | _fractional(whole),
        {"n": _count("all"), "successes": _count("ones")},
        _not_whole("s"),
        _not_whole("t"),
        FrameFault(s > t, "s", rule, beside="t"),
    )


def _events(cells: dict[str, Any], whole: Mapping[str, bool], roles: Roles) -> FrameMeasure:
    """Events and exposure, summed; without a column of exposure, each row has an exposure of 1."""
    s, t = nw.col("s"), nw.col("t")
    wrong = (s < 0) | _fractional({"s": whole["s"]})
    exposure, statistics = nw.col("used").cast(nw.Float64), {"events": _count("ones")}
    if roles.exposure is None:
        return _summed(cells, wrong, {"exposure": exposure, **statistics}, _not_whole("s"))
    impossible, rule = (s > 0) & ~(t > 0), f"0 where column {roles.exposure!r} is 0"
    return _summed(
        cells,
        wrong | (t < 0) | impossible,
        {"exposure": nw.col("all"), **statistics},
        _not_whole("s"),
        FrameFault(t < 0, "t", "at least 0"),
        FrameFault(impossible, "s", rule, "Events need an exposure above 0."),
    )


def _summed(
    cells: dict[str, Any], wrong: Any, statistics: dict[str, Any], *faults: FrameFault
) -> FrameMeasure:
    """Sums of s and, where there is one, of t; rows where `wrong` are refused for the faults."""
    names = {alias: {"s": "ones", "t": "all"}[alias] for alias in cells}
    sums = {name: nw.col(alias).sum() for alias, name in names.items()}
    return FrameMeasure(
        cells=_complete(cells),
        sums=_base("s", _one_where(wrong).sum()) | sums,
        statistics=statistics,
        finite=reduce(add, map(nw.col, sums)),
        faults=(*map(_infinite, cells), *faults),
    )


def _fractional(whole: Mapping[str, bool]) -> Any:
    """Whether one of the numbers has a fraction; columns of whole numbers are not looked at."""
    found = nw.lit(False)
    for alias, always in whole.items():
        if not always:
            found = found | (nw.col(alias) != nw.col(alias).floor())
    return found


def _not_whole(alias: str) -> FrameFault:
    column = nw.col(alias)
    return FrameFault(
        (column < 0) | (column != column.floor()), alias, "whole numbers of at least 0"
    )


def _count(name: str) -> Any:
    return nw.col(name).cast(nw.Int64)
