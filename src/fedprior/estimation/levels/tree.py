"""Linear algebra of nested factors: leaves are eliminated first, in linear time and without fill.

All kernels concern V = I / w + sum_k v_k Z_k Z_k', the covariance of the means of cells with
weights w, in units of the noise. Sums over the rows of a cell stand for rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.estimation.levels.cells import Cells


class Solved(NamedTuple):
    """Effects u = (Z'wZ + 1/v)^-1 Z't, linear in the rows of the cells' sums t (q, cells).

    `cells` (q, cells) are the sums of a cell's effects; `nodes` has a table (q, levels) for each
    factor: in a chain the sum of the effects down to this level, else the effect itself.
    """

    cells: np.ndarray
    nodes: list[np.ndarray]


class NodeSpread(NamedTuple):
    """Variances of the same quantities given the data, in units of the noise."""

    cells: np.ndarray
    nodes: list[np.ndarray]


def summed(place: np.ndarray, values: np.ndarray, number: int) -> np.ndarray:
    """Sums over equal places: (q, rows) -> (q, number)."""
    found = np.empty((len(values), number))
    for row, column in zip(found, values, strict=True):
        row[:] = np.bincount(place, column, minlength=number)
    return found


@dataclass(frozen=True, eq=False)
class Tree:
    """A chain of factors: eliminating a leaf of weight w leaves its parent w / (1 + v w)."""

    cells: Cells
    parents: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, cells: Cells) -> "Tree":
        return cls(cells, cells.parents())

    def factorized(self, weight: np.ndarray, variances: np.ndarray) -> "TreeFactor":
        """The elimination for cells of these weights and factors of these variances."""
        weights = [weight]
        shrinks = []
        for level in range(len(variances) - 1, -1, -1):
            shrinks.append(1 / (1 + weights[-1] * variances[level]))
            if level:
                left = weights[-1] * shrinks[-1]
                size = self.cells.sizes[level - 1]
                weights.append(np.bincount(self.parents[level - 1], left, minlength=size))
        return TreeFactor(self, np.asarray(variances), weights[::-1], shrinks[::-1])


@dataclass(frozen=True, eq=False)
class TreeFactor:
    """The weights that reach each level, and `shrinks` = 1 / (1 + v weight)."""

    tree: Tree
    variances: np.ndarray
    weights: list[np.ndarray]
    shrinks: list[np.ndarray]

    @property
    def log_determinant(self) -> float:
        """Log |V w|."""
        return -float(sum(np.log(shrink).sum() for shrink in self.shrinks))

    def solve(self, totals: np.ndarray) -> Solved:
        cells = self.tree.cells
        sums = [totals]
        for level in range(len(self.variances) - 1, 0, -1):
            left = sums[-1] * self.shrinks[level]
            sums.append(summed(self.tree.parents[level - 1], left, cells.sizes[level - 1]))
        sums.reverse()
        values: list[np.ndarray] = []
        for level, variance in enumerate(self.variances):
            own = variance * sums[level]
            if level:
                own += values[-1].take(self.tree.parents[level - 1], axis=1)
            own *= self.shrinks[level]
            values.append(own)
        return Solved(values[-1], values)

    def residual(self, totals: np.ndarray) -> np.ndarray:
        """V^-1 times the cells' means: sums less weights times effects, without cancellation."""
        if len(self.variances) == 1:
            return totals * self.shrinks[-1]
        above = self.solve(totals).nodes[-2].take(self.tree.parents[-1], axis=1)
        return (totals - self.weights[-1] * above) * self.shrinks[-1]

    def reduced(self, scatter: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """[X y]' V^-1 [X y], where `scatter` is its part within cells.

        A sum of squares of levels about the level above, so that nothing cancels where variances
        are large.
        """
        table, sums = scatter.copy(), totals
        for level in range(len(self.variances) - 1, -1, -1):
            weight, shrink = self.weights[level], self.shrinks[level]
            left = weight * shrink
            mean = np.divide(sums, weight, out=np.zeros(sums.shape), where=weight > 0)
            if level:
                parent, size = self.tree.parents[level - 1], len(self.weights[level - 1])
                sums = summed(parent, sums * shrink, size)
                above = self.weights[level - 1]
                middle = np.divide(sums, above, out=np.zeros(sums.shape), where=above > 0)
                mean -= middle.take(parent, axis=1)
            table += (mean * left) @ mean.T
        return table

    def spread(self) -> NodeSpread:
        found: list[np.ndarray] = []
        for level, variance in enumerate(self.variances):
            own = variance * self.shrinks[level]
            if level:
                above = found[-1][self.tree.parents[level - 1]]
                own = own + self.shrinks[level] ** 2 * above
            found.append(own)
        return NodeSpread(found[-1], found)

    def traces(self) -> np.ndarray:
        """Tr Z_k' V^-1 Z_k for every factor: the derivatives of log |V|."""
        spread, found = self.spread().nodes, []
        for level in range(len(self.variances)):
            kept = self.weights[level] * self.shrinks[level]
            above = spread[level - 1][self.tree.parents[level - 1]] if level else 0.0
            found.append(float((kept - kept**2 * above).sum()))
        return np.array(found)
