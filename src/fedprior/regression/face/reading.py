"""The rows of a table that have all they need: features, a target, a group."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.columns import DesignColumn, encode, read_columns

_MOST_CLASSES = 50  # more distinct whole numbers are a quantity


class Reading(NamedTuple):
    """Encoded features `table` (rows, features), `target` and `place` (of the group) of each row.

    The target is a number, a count, or a class as its place among `classes`; `levels` are the
    groups. `exposure` is that of each row's count, if it was given.
    """

    columns: tuple[DesignColumn, ...]
    table: np.ndarray
    target: np.ndarray
    place: np.ndarray
    levels: np.ndarray
    classes: np.ndarray | None
    num_dropped: int
    exposure: np.ndarray | None = None


def read(
    owner: str,
    columns: Mapping[str, Any],
    target: Any,
    groups: Any,
    *,
    target_name: str,
    family: str,
    strict: bool,
    exposure: Any = None,
) -> Reading:
    """Rows with a gap are left out and counted, or refused if `strict`; at least two groups."""
    kinds = read_columns(owner, columns)
    table = encode(owner, kinds, columns, lenient=True)
    factor = labels.factorize(owner, "groups", groups)
    y, classes = _target(owner, target_name, target, family=family)
    numeric.same_length(owner, X=table, y=y, groups=factor.place)
    keep = ~np.isnan(table).any(axis=1) & ~np.isnan(y) & (factor.place >= 0)
    if exposure is not None:
        exposure = _exposure(owner, exposure)
        numeric.same_length(owner, y=y, exposure=exposure)
        keep &= ~np.isnan(exposure)
    over = "" if exposure is None else " exposure,"
    dropped = numeric.check_complete(
        owner,
        keep,
        strict=strict,
        missing=f"a missing target,{over} feature or group",
        whole="a target, all features and a group",
        remedy="Leave such rows out, or be lenient.",
    )
    factor, y = factor.keep(keep), y[keep]
    rule, remedy = "at least 2", "A population is learned from many groups."
    check.require(len(factor.levels) > 1, owner, "number of groups", rule, 1, remedy)
    if family == "poisson":
        remedy = "A rate of 0 has no finite logarithm."
        check.require(bool(y.any()), owner, target_name, "above 0 in some row", 0, remedy)
    elif classes is None:
        remedy = "There is nothing to explain."
        varied, rule = bool(np.ptp(y) > 0), "of more than one value"
        check.require(varied, owner, target_name, rule, y[0], remedy)
    else:
        y, classes = _seen(owner, target_name, y, classes)
    kept = None if exposure is None else exposure[keep]
    return Reading(kinds, table[keep], y, factor.place, factor.levels, classes, dropped, kept)


def _target(
    owner: str, name: str, target: Any, *, family: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """The target as numbers, NaN where it is missing, and its classes."""
    if family in ("gaussian", "poisson"):
        y = numeric.numbers(owner, name, target)
        if family == "poisson":
            whole = (y >= 0) & (y == np.rint(y))
            numeric.check_rows(owner, name, y, whole, "a count, a whole number of at least 0")
        return y, None
    factor = labels.factorize(owner, name, target)
    classes = factor.levels
    remedy = "Numbers are for a linear regression."
    if classes.dtype.kind == "f":
        bad = ~np.isfinite(classes) | (classes != np.rint(classes))
        got = float(classes[bad][0]) if bad.any() else 0.0
        rule = "a class in every row, not continuous"
        check.require(not bad.any(), owner, name, rule, got, remedy)
    few, rule = len(classes) <= _MOST_CLASSES, f"at most {_MOST_CLASSES}"
    check.require(few, owner, f"number of classes in {name}", rule, len(classes), remedy)
    return np.where(factor.place < 0, np.nan, factor.place), classes


def _exposure(owner: str, exposure: Any) -> np.ndarray:
    """Positive numbers, NaN where they are missing."""
    found = numeric.numbers(owner, "exposure", exposure)
    remedy = "Leave out rows without exposure: they say nothing of a rate."
    numeric.check_rows(owner, "exposure", found, found > 0, "above 0", remedy)
    return found


def _seen(
    owner: str, name: str, y: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The classes of the rows that were kept, at least two, and their places."""
    used = np.bincount(y.astype(np.int64), minlength=len(classes)) > 0
    rule, remedy = "at least 2", f"Every row is of class {classes[used].tolist()[0]!r}."
    check.require(int(used.sum()) > 1, owner, f"number of classes in {name}", rule, 1, remedy)
    return (np.cumsum(used) - 1.0)[y.astype(np.int64)], classes[used]
