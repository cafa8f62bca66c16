"""Sums of each group over all folds but one, from sums by group and fold.

To be imported where narwhals is known to be there.
"""

from dataclasses import replace
from typing import Any

import narwhals as nw

from fedprior.core import check
from fedprior.data.warehouse.engine import wrap
from fedprior.data.warehouse.roles import Roles
from fedprior.data.warehouse.sums import GroupSums, sum_groups


def sum_folds(owner: str, native: Any, roles: Roles, fold: str) -> tuple[GroupSums, list[Any]]:
    """The sums by group and fold, and the folds in order; every row must have one."""
    sums = sum_groups(owner, native, replace(roles, fold=fold))
    without = wrap(owner, native).filter(nw.col(fold).is_null()).select(fold).head(1)
    check.expect(
        not len(sums.engine.read(without)[fold]), owner, "fold must be given in every row."
    )
    last = sums.keys[-1]
    found = sums.engine.read(sums.frame.select(last).unique())[last].tolist()
    check.require(len(found) > 1, owner, "folds", "at least 2 different ones", found)
    return sums, sorted(found)


def without_fold(sums: GroupSums, fold: Any) -> GroupSums:
    """The sums of each group over all folds but this one; means are taken about the center."""
    *keys, last = sums.keys
    rest = sums.frame.filter(nw.col(last) != fold)
    names = rest.collect_schema().names()
    if "variance" in names:
        frame = _measurements(rest, keys, sums.center)
    elif "mean" in names:
        frame = _values(rest, keys, sums.center)
    else:
        numbers = [name for name in names if name not in sums.keys]
        frame = rest.group_by(*keys).agg(nw.col(*numbers).sum())
        whole = [name for name in numbers if name != "exposure"]
        frame = frame.with_columns(nw.col(*whole).cast(nw.Int64))
    kept = sums.engine.write(frame)
    number = sums.engine.read(kept.select(nw.len().cast(nw.Int64).alias("number")))["number"]
    roles = replace(sums.roles, fold=None)
    return replace(sums, frame=kept, roles=roles, groups=int(number[0]))


def _values(rest: Any, keys: list[str], center: float) -> Any:
    """The sum of within + sum of n (mean - middle)^2 is the sum of squares about the joint mean."""
    shift, n = nw.col("mean") - center, nw.col("n")
    rest = rest.select(*keys, "n", "within", s=n * shift, q=n * shift * shift)
    added = rest.group_by(*keys).agg(nw.col("n", "within", "s", "q").sum())
    middle = nw.col("s") / nw.col("n")
    between = nw.col("q") - middle * nw.col("s")
    between = nw.when(between > 0).then(between).otherwise(nw.lit(0.0))
    return added.select(
        *keys,
        n=nw.col("n").cast(nw.Int64),
        mean=middle + center,
        within=nw.col("within") + between,
    )


def _measurements(rest: Any, keys: list[str], center: float) -> Any:
    """Means by inverse variance."""
    precision = 1 / nw.col("variance")
    rest = rest.select(*keys, "n", w=precision, s=precision * (nw.col("mean") - center))
    added = rest.group_by(*keys).agg(nw.col("n", "w", "s").sum())
    return added.select(
        *keys,
        n=nw.col("n").cast(nw.Int64),
        mean=nw.col("s") / nw.col("w") + center,
        variance=1 / nw.col("w"),
    )
