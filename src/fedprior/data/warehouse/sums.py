"""Sums of every group, computed and kept in the engine; only totals leave it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.core import check
from fedprior.data.aggregate import counted
from fedprior.data.warehouse.engine import Engine, engine_of, narwhals, wrap
from fedprior.data.warehouse.roles import Roles, is_float

if TYPE_CHECKING:
    from fedprior.data.warehouse.rows import FrameFault, FrameMeasure

PLACE = "place"


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupSums:
    """One row per group with a name and a number, in the engine.

    The columns of `frame` are the keys (`key_0`, ...) and the statistics: n and successes,
    exposure and events, or n, mean and within (or variance). `groups` of them have data in `rows`,
    and `center` is the mean of their means.
    """

    owner: str
    roles: Roles
    engine: Engine
    frame: Any
    groups: int
    rows: int
    dropped: int
    notes: tuple[str, ...]
    center: float

    @property
    def keys(self) -> list[str]:
        return [f"key_{number}" for number in range(len(self.roles.keys))]

    def tally(self, *columns: str) -> dict[str, np.ndarray]:
        """The distinct rows of these statistics, and the `count` of groups that share each."""
        nw = narwhals(self.owner)
        return self.engine.read(
            self.frame.group_by(*columns).agg(nw.len().cast(nw.Int64).alias("count"))
        )

    def bins(self) -> dict[str, np.ndarray]:
        """Of all groups with the same n: count, sum and sum of squares of means, sum of within.

        The means are relative to the center, so that squares lose no digits.
        """
        nw = narwhals(self.owner)
        centered = self.frame.select(
            "n", "within", shift=nw.col("mean") - self.center
        ).with_columns(square=nw.col("shift") * nw.col("shift"))
        return self.engine.read(
            centered.group_by("n").agg(
                nw.len().cast(nw.Int64).alias("count"),
                nw.col("shift").sum(),
                nw.col("square").sum(),
                nw.col("within").sum(),
            )
        )

    def placed(self) -> "GroupSums":
        """The same with the column `place`, the position by key, which stands for the keys."""
        frame = self.frame.with_row_index(PLACE, order_by=self.keys)
        nw = narwhals(self.owner)
        return replace(
            self, frame=self.engine.write(frame.with_columns(nw.col(PLACE).cast(nw.Int64)))
        )

    def statistics(self, *, every: int = 1) -> dict[str, np.ndarray]:
        """The statistics of all groups, or of one in `every` by key, without their keys."""
        frame = self.frame if every == 1 else self.engine.thin(self.frame, self.keys, every)
        found = self.engine.read(frame.drop(*self.keys))
        if PLACE not in found:
            return found
        order = np.argsort(found.pop(PLACE))
        return {name: values[order] for name, values in found.items()}


def sum_groups(owner: str, native: Any, roles: Roles, *, strict: bool = False) -> GroupSums:
    """The sums of a native frame by group; raises for rows that must not be there.

    One pass over the rows. Rows without a group or a number (NULL, NaN) are left out and counted,
    or refused if `strict`.
    """
    engine, frame = engine_of(owner, native), wrap(owner, native)
    schema = frame.collect_schema()
    _check_columns(owner, roles, list(schema))
    kinds = [schema[name] for name in roles.numbers.values()]
    attempts = (False, True) if any(is_float(kind) for kind in kinds) else (True,)
    found = None
    for careful in attempts:
        found = found or _attempt(owner, engine, frame, roles, schema, careful=careful)
    if found is None:
        raise AssertionError("a careful attempt returns or raises")
    asked, kept, totals = found
    return _finished(owner, engine, kept, roles, asked, totals, strict)


def _check_columns(owner: str, roles: Roles, known: Sequence[str]) -> None:
    for name in (*roles.keys, *roles.numbers.values()):
        rule = f"one of {', '.join(known)}"
        check.require(name in known, owner, "column", rule, name, check.nearest(name, known))
    used = [*roles.keys, *roles.numbers.values()]
    twice = next((name for name in used if used.count(name) > 1), None)
    check.require(twice is None, owner, "columns", "different from each other", twice)


def _attempt(
    owner: str, engine: Engine, frame: Any, roles: Roles, schema: Any, *, careful: bool
) -> "tuple[FrameMeasure, Any, dict[str, float]] | None":
    """The table of sums and its totals; None where a careful pass has to follow.

    Numbers are first taken as they stand, which costs nothing: NaN, infinity and huge numbers turn
    sums into one of them, or make the engine raise.
    """
    from fedprior.data.warehouse.rows import measure

    asked = measure(owner, roles, schema, careful=careful)
    keys = {f"key_{number}": name for number, name in enumerate(roles.keys)}
    nw = narwhals(owner)
    rows = frame.select(**{alias: nw.col(name) for alias, name in keys.items()}, **asked.cells)
    try:
        kept = engine.write(rows.group_by(*keys).agg(**asked.sums))
        totals = _totals(engine, kept, list(keys), [schema[each] for each in roles.keys], asked)
    except Exception as error:
        if not careful:
            return None
        _refuse(owner, engine, rows, roles, asked.faults)
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{owner}: the engine could not sum the rows: {reason}") from error
    strange = not math.isfinite(totals["finite"]) or not math.isfinite(totals["wrong"])
    if strange and not careful:
        return None
    if strange or totals["wrong"]:
        _refuse(owner, engine, rows, roles, asked.faults)
        rule = "small enough for their squares to be numbers"
        check.require(not strange, owner, "values", rule, "values beyond 1e150")
    return asked, kept, totals


def _totals(
    engine: Engine, kept: Any, keys: list[str], kinds: list[Any], asked: "FrameMeasure"
) -> dict[str, float]:
    import narwhals as nw

    named = _named(keys, kinds)
    held = named & (nw.col("used") > 0)

    def total(where: Any, values: Any) -> Any:
        return nw.when(where).then(values).sum().cast(nw.Float64)

    one = nw.lit(1, nw.Int32)
    expressions = {
        "rows": nw.col("rows").sum().cast(nw.Float64),
        "unnamed": total(~named, nw.col("rows")),
        "used": total(named, nw.col("used")),
        "groups": total(held, one),
        "emptied": total(named & ~(nw.col("used") > 0), one),
        "finite": asked.finite.sum(),
    }
    if "wrong" in asked.sums:
        expressions["wrong"] = nw.col("wrong").sum().cast(nw.Float64)
    if "mean" in asked.statistics:
        expressions["center"] = nw.when(held).then(asked.statistics["mean"]).mean()
    found = engine.read(kept.select(**expressions))
    totals = {"wrong": 0.0} | {name: float(values[0]) for name, values in found.items()}
    if not totals["rows"] > 0:  # sums of nothing may be NULL
        return dict.fromkeys(totals, 0.0)
    return totals


def _named(keys: list[str], kinds: list[Any]) -> Any:
    """Whether a group has a name: no part of it is NULL or NaN."""
    import narwhals as nw

    found = nw.lit(True)
    for key, kind in zip(keys, kinds, strict=True):
        there = ~nw.col(key).is_null()
        found = found & (there & ~nw.col(key).is_nan() if is_float(kind) else there)
    return found


def _refuse(
    owner: str, engine: Engine, rows: Any, roles: Roles, faults: "tuple[FrameFault, ...]"
) -> None:
    """Raise for a row with a fault, if there is one."""
    import narwhals as nw

    for fault in faults:
        shown = ["key_0", fault.alias, *([fault.beside] if fault.beside else [])]
        found = engine.read(rows.filter(fault.condition).select(nw.col(*shown)).head(1))
        cells = [each[0] for each in found.values() if len(each)]
        if not cells:
            continue
        group, *values = cells
        got = " of ".join(f"{float(value):.15g}" for value in values)
        where = "" if group is None else f" (group {str(group)!r})"
        remedy = f" {fault.remedy}" if fault.remedy else ""
        column = roles.numbers[fault.alias]
        raise ValueError(
            f"{owner}: column {column!r} must be {fault.rule}, got {got}{where}.{remedy}"
        )


def _finished(
    owner: str,
    engine: Engine,
    kept: Any,
    roles: Roles,
    asked: "FrameMeasure",
    totals: dict[str, float],
    strict: bool,
) -> GroupSums:
    import narwhals as nw

    rows, used = int(totals["rows"]), int(totals["used"])
    check.expect(rows > 0, owner, "the table has no rows.")
    missing = _dropped(roles, totals)
    rule = "complete in strict mode"
    check.require(not (missing and strict), owner, "rows", rule, missing)
    check.require(used > 0, owner, "table", "one with rows to use", missing)
    keys = [f"key_{number}" for number in range(len(roles.keys))]
    if missing:
        schema = kept.collect_schema()
        held = _named(keys, [schema[key] for key in keys]) & (nw.col("used") > 0)
        kept = kept.filter(held)
    return GroupSums(
        owner=owner,
        roles=roles,
        engine=engine,
        frame=kept.select(*keys, **asked.statistics),
        groups=int(totals["groups"]),
        rows=used,
        dropped=rows - used,
        notes=(f"Dropped {missing}.",) if missing else (),
        center=totals.get("center", 0.0),
    )


def _dropped(roles: Roles, totals: dict[str, float]) -> str:
    """Which rows are left out, in words."""
    unnamed, emptied = int(totals["unnamed"] or 0), int(totals["emptied"] or 0)
    unvalued = int(totals["rows"]) - unnamed - int(totals["used"])
    said = []
    if unnamed:
        names = " or ".join(map(repr, roles.keys))
        said.append(f"{counted(unnamed, 'row')} without a group ({names})")
    if unvalued:
        names = " or ".join(map(repr, roles.numbers.values()))
        left = f"; no other in {counted(emptied, 'group')}" if emptied else ""
        said.append(f"{counted(unvalued, 'row')} without a number ({names}{left})")
    return " and ".join(said)
