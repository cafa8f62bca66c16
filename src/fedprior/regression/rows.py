"""The rows of many groups, stored so that groups can be a batch axis."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedprior.core import check

_OWNER = "GroupedRows"
_BLOCK_CELLS = 1 << 21  # numbers in one block: 16 MB


class Block(NamedTuple):
    """Groups of one size: `x` (g, n, d), `fixed` (g, n, p), `y` (g, n) of `groups` (g,).

    `offset` (g, n) is there if the rows have one.
    """

    groups: np.ndarray
    x: np.ndarray
    fixed: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupedRows:
    """Rows sorted by group: group i has rows start[i] to start[i + 1].

    `x` (rows, d) are the features whose coefficients theta_i vary by group, `fixed` (rows, p) those
    with one coefficient for all groups, and `y` (rows,) is the target, a number, a class 0, 1, ...
    or a count. A group may have no rows. An intercept is an ordinary column of ones. `offset`
    (rows,) is a known part of what the features explain: the log exposure of a count.
    """

    x: np.ndarray
    fixed: np.ndarray
    y: np.ndarray
    start: np.ndarray
    offset: np.ndarray | None = None

    def __post_init__(self) -> None:
        rows = len(self.y)
        check.require(self.x.ndim == 2, _OWNER, "x", "a table (rows, features)", self.x.shape)
        check.require(self.fixed.ndim == 2, _OWNER, "fixed", "a table", self.fixed.shape)
        for name in ("x", "fixed"):
            table = getattr(self, name)
            check.require(len(table) == rows, _OWNER, name, f"{rows} rows", len(table))
            check.require(bool(np.isfinite(table).all()), _OWNER, name, "finite", "nan or inf")
        check.require(bool(np.isfinite(self.y).all()), _OWNER, "y", "finite", "nan or inf")
        if self.offset is not None:
            fits = np.shape(self.offset) == (rows,) and bool(np.isfinite(self.offset).all())
            rule = f"{rows} finite numbers"
            check.require(fits, _OWNER, "offset", rule, np.shape(self.offset))
        ends = len(self.start) >= 2 and self.start[0] == 0 and self.start[-1] == rows
        check.require(ends, _OWNER, "start", f"offsets from 0 to {rows}", self.start)
        rising = bool((np.diff(self.start) >= 0).all())
        check.require(rising, _OWNER, "start", "rising offsets", self.start)

    @classmethod
    def of(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        place: np.ndarray,
        num_groups: int,
        *,
        fixed: np.ndarray | None = None,
        offset: np.ndarray | None = None,
    ) -> "GroupedRows":
        """Sort rows that are in any order; `place` (rows,) is the group of each row."""
        order = np.argsort(place, kind="stable")
        sizes = np.bincount(place, minlength=num_groups)
        fixed = np.empty((len(y), 0)) if fixed is None else fixed
        return cls(
            x=np.asarray(x, np.float64)[order],
            fixed=np.asarray(fixed, np.float64)[order],
            y=np.asarray(y, np.float64)[order],
            start=np.concatenate([[0], np.cumsum(sizes)]),
            offset=None if offset is None else np.asarray(offset, np.float64)[order],
        )

    @property
    def num_groups(self) -> int:
        return len(self.start) - 1

    @property
    def num_rows(self) -> int:
        return len(self.y)

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def num_fixed(self) -> int:
        return self.fixed.shape[1]

    @cached_property
    def sizes(self) -> np.ndarray:
        """n_i, (m,)."""
        return np.diff(self.start)

    @cached_property
    def place(self) -> np.ndarray:
        """The group of each row, (rows,)."""
        return np.repeat(np.arange(self.num_groups), self.sizes)

    def blocks(self, *, cells: int = _BLOCK_CELLS) -> Iterator[Block]:
        """Yield all groups with rows in blocks of one size, of at most `cells` numbers each.

        There are at most sqrt(2 rows) distinct sizes, so most work is vectorized over groups.
        """
        width = max(self.num_features + self.num_fixed, 1)
        order = np.argsort(self.sizes, kind="stable")
        sizes, first = np.unique(self.sizes[order], return_index=True)
        for size, low, high in zip(sizes, first, [*first[1:], len(order)], strict=True):
            if size == 0:
                continue
            step = max(1, cells // (int(size) * width))
            for begin in range(low, high, step):
                groups = order[begin : min(begin + step, high)]
                rows = self.start[groups][:, None] + np.arange(size)
                offset = None if self.offset is None else self.offset[rows]
                yield Block(groups, self.x[rows], self.fixed[rows], self.y[rows], offset)

    def subset(self, keep: np.ndarray) -> "GroupedRows":
        """The rows where the mask `keep` (rows,) is true, with the same groups."""
        sizes = np.bincount(self.place[keep], minlength=self.num_groups)
        return GroupedRows(
            x=self.x[keep],
            fixed=self.fixed[keep],
            y=self.y[keep],
            start=np.concatenate([[0], np.cumsum(sizes)]),
            offset=None if self.offset is None else self.offset[keep],
        )
