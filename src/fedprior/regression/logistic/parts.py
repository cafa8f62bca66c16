"""Blocks of groups of one size with their classes or counts."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.regression.logistic.laws import CLASSES, COUNTS, RowLaw
from fedprior.regression.rows import GroupedRows


class ClassBlock(NamedTuple):
    """Groups of one size n, (g,): log odds of the c = C - 1 classes against class 0.

    log odds (g, n, c) = x theta + fixed beta, with `x` (g, n, c, D) and `fixed` (g, n, c, P)
    expanded over the classes (D = d c, P = p c, class-major); `y` (g, n, c) is one-hot. Under the
    law of counts c = 1, `y` is the count, and the log rate has a known part `offset` (g, n, 1).
    """

    groups: np.ndarray
    x: np.ndarray
    fixed: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None
    law: RowLaw = CLASSES

    def take(self, chosen: np.ndarray) -> "ClassBlock":
        """The groups where the mask `chosen` (g,) is true."""
        offset = None if self.offset is None else self.offset[chosen]
        own = (self.groups[chosen], self.x[chosen], self.fixed[chosen], self.y[chosen])
        return ClassBlock(*own, offset, self.law)

    def shifted(self, odds: np.ndarray) -> np.ndarray:
        """Log odds with their known part, if there is one."""
        return odds if self.offset is None else odds + self.offset


def check_classes(
    owner: str, rows: GroupedRows, num_classes: int, *, all_seen: bool = True
) -> None:
    """Raise unless targets are 0, ..., C - 1 and, with `all_seen`, every class occurs."""
    check.count(owner, least=2, num_classes=num_classes)
    _check_whole(owner, rows.y, num_classes - 1, f"a class, 0 to {num_classes - 1}")
    seen = np.unique(rows.y).astype(int).tolist()
    rule, remedy = f"of all {num_classes} classes", "A class that never occurs has no finite odds."
    check.require(len(seen) == num_classes or not all_seen, owner, "y", rule, seen, remedy)


def check_counts(owner: str, rows: GroupedRows, *, some: bool = True) -> None:
    """Raise unless targets are whole numbers of at least 0, with `some` above 0."""
    _check_whole(owner, rows.y, np.inf, "a count, a whole number of at least 0")
    any_event = not some or bool(rows.y.any())
    remedy = "A rate of 0 has no finite logarithm."
    check.require(any_event, owner, "y", "above 0 in some row", 0, remedy)


def _check_whole(owner: str, y: np.ndarray, most: float, rule: str) -> None:
    good = (y == np.floor(y)) & (y >= 0) & (y <= most)
    if not good.all():
        first = int(np.argmin(good))
        check.require(False, owner, "y", rule, float(y[first]), f"See row {first + 1}.")


def parts_of(rows: GroupedRows, num_classes: int = 2, *, law: RowLaw = CLASSES) -> list[ClassBlock]:
    """The blocks of `rows`, expanded over the classes."""
    own = num_classes - 1
    cells = max(1, (1 << 15) // own**2)
    return [
        ClassBlock(
            block.groups,
            spread_out(block.x, own),
            spread_out(block.fixed, own),
            _targets(block.y, num_classes, law),
            None if block.offset is None else block.offset[..., None],
            law,
        )
        for block in rows.blocks(cells=cells)
    ]


def _targets(y: np.ndarray, num_classes: int, law: RowLaw) -> np.ndarray:
    if law is COUNTS:
        return y[..., None]
    return (y[..., None] == np.arange(1, num_classes)).astype(np.float64)


def flat(columns: np.ndarray) -> np.ndarray:
    """(g, n, c, q) as (g, n c, q)."""
    groups, size, num_odds, width = columns.shape
    return columns.reshape(groups, size * num_odds, width)


def along(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum over rows and classes of columns * values: (g, n, c, q) and (g, n, c) to (g, q)."""
    return (values.reshape(len(values), 1, -1) @ flat(columns))[:, 0]


def across(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """For each group left' right: (g, n, c, q) and (g, n, c, r) to (g, q, r)."""
    return flat(left).transpose(0, 2, 1) @ flat(right)


def spread_out(columns: np.ndarray, num_odds: int) -> np.ndarray:
    """Expand (g, n, q) to (g, n, c, c q): each class has its own columns, zero elsewhere."""
    if num_odds == 1:
        return columns[:, :, None, :]
    groups, size, width = columns.shape
    wide = np.zeros((groups, size, num_odds, num_odds, width))
    own = np.arange(num_odds)
    wide[:, :, own, own, :] = columns[:, :, None, :]
    return wide.reshape(groups, size, num_odds, num_odds * width)
