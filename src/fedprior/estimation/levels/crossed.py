"""Linear algebra of crossed factors: the largest is eliminated, the others are a dense matrix."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse

from fedprior.core import check
from fedprior.estimation.levels.cells import Cells
from fedprior.estimation.levels.tree import NodeSpread, Solved, Tree, summed

MOST = 3_000  # levels of all factors but the largest: a matrix of 72 MB, a second per round
_CHUNK = 1 << 22  # numbers held at once


def kernel(owner: str, cells: Cells) -> "Tree | Crossed":
    """The linear algebra that suits the factors."""
    return Tree.of(cells) if cells.nested else Crossed.of(owner, cells)


@dataclass(frozen=True, eq=False)
class Crossed:
    """Factors in any relation: `largest`, and `others` with their levels side by side.

    `slots` give the place in the sparse matrix `pattern` (levels of the largest, levels of the
    others) of each cell, one array for each of the others.
    """

    cells: Cells
    largest: int
    others: tuple[int, ...]
    offsets: np.ndarray
    pattern: sparse.csr_matrix
    slots: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, owner: str, cells: Cells) -> "Crossed":
        largest = int(np.argmax(cells.sizes))
        others = tuple(k for k in range(len(cells.sizes)) if k != largest)
        sizes = [cells.sizes[k] for k in others]
        rest = sum(sizes)
        rule = f"at most {MOST:,} for all crossed factors but the largest"
        remedy = "Cross fewer levels, or use nested groups, which have no such limit."
        check.require(rest <= MOST, owner, "number of levels", rule, rest, remedy)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        upper = cells.places[largest]
        pairs = [upper * rest + offsets[j] + cells.places[k] for j, k in enumerate(others)]
        known, place = np.unique(np.concatenate(pairs), return_inverse=True)
        starts = np.searchsorted(known // rest, np.arange(cells.sizes[largest] + 1))
        shape = (cells.sizes[largest], rest)
        pattern = sparse.csr_matrix((np.ones(len(known)), known % rest, starts), shape=shape)
        slots = tuple(place.reshape(len(others), -1))
        return cls(cells, largest, others, offsets, pattern, slots)

    def _filled(self, data: np.ndarray) -> sparse.csr_matrix:
        """The sparse matrix with these numbers."""
        pattern = self.pattern
        return sparse.csr_matrix((data, pattern.indices, pattern.indptr), shape=pattern.shape)

    def factorized(self, weight: np.ndarray, variances: np.ndarray) -> "CrossedFactor":
        """The elimination for cells of these weights and factors of these variances."""
        cells, rest = self.cells, int(self.offsets[-1])
        own = np.bincount(cells.places[self.largest], weight, minlength=cells.sizes[self.largest])
        each = (np.bincount(slot, weight, minlength=self.pattern.nnz) for slot in self.slots)
        data = np.sum(list(each), axis=0)
        joint = self._filled(data)
        gain = variances[self.largest] / (1 + variances[self.largest] * own)
        scaled = self._filled(data * np.repeat(gain, np.diff(joint.indptr)))
        left = np.zeros((rest, rest))
        sums = [np.bincount(cells.places[k], weight, minlength=cells.sizes[k]) for k in self.others]
        left[np.diag_indices(rest)] = np.concatenate(sums)
        for j, first in enumerate(self.others):
            for i, second in enumerate(self.others):
                if i == j:
                    continue
                code = (self.offsets[j] + cells.places[first]) * rest
                code = code + self.offsets[i] + cells.places[second]
                left += np.bincount(code, weight, minlength=rest**2).reshape(rest, rest)
        left -= (joint.T @ scaled).toarray()
        deviation = np.sqrt(np.repeat([variances[k] for k in self.others], np.diff(self.offsets)))
        inner = np.eye(rest) + deviation[:, None] * left * deviation
        lower = np.linalg.cholesky(inner)
        parts = (own, gain, joint, left, deviation, lower)
        return CrossedFactor(self, np.asarray(variances), weight, *parts)


@dataclass(frozen=True, eq=False)
class CrossedFactor:
    """`gain` = v / (1 + v w) of the largest factor; `left` is what it leaves to the others."""

    kernel: Crossed
    variances: np.ndarray
    weight: np.ndarray
    own: np.ndarray
    gain: np.ndarray
    joint: sparse.csr_matrix
    left: np.ndarray
    deviation: np.ndarray
    lower: np.ndarray

    @property
    def log_determinant(self) -> float:
        """Log |V w|."""
        inner = 2 * np.log(np.diag(self.lower)).sum()
        return float(np.log1p(self.variances[self.kernel.largest] * self.own).sum() + inner)

    def solve(self, totals: np.ndarray) -> Solved:
        kernel, cells = self.kernel, self.kernel.cells
        first = summed(cells.places[kernel.largest], totals, len(self.own))
        sums = [summed(cells.places[k], totals, cells.sizes[k]) for k in kernel.others]
        right = np.concatenate(sums, axis=1) - (self.gain * first) @ self.joint
        small = linalg.cho_solve((self.lower, True), (self.deviation * right).T)
        small = self.deviation * small.T
        large = self.gain * (first - (self.joint @ small.T).T)
        nodes: list[np.ndarray] = [large] * len(cells.sizes)
        for j, k in enumerate(kernel.others):
            nodes[k] = small[:, kernel.offsets[j] : kernel.offsets[j + 1]]
        value = sum(node[:, place] for node, place in zip(nodes, cells.places, strict=True))
        return Solved(np.asarray(value), nodes)

    def residual(self, totals: np.ndarray) -> np.ndarray:
        """V^-1 times the cells' means: sums less weights times effects."""
        return totals - self.weight * self.solve(totals).cells

    def reduced(self, scatter: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """[X y]' V^-1 [X y], where `scatter` is its part within cells."""
        weight = self.weight
        mean = np.divide(totals, weight, out=np.zeros(totals.shape), where=weight > 0)
        table = mean @ self.residual(totals).T
        return scatter + (table + table.T) / 2

    @cached_property
    def _covariance(self) -> np.ndarray:
        """That of the effects of all factors but the largest."""
        half = linalg.solve_triangular(self.lower, np.diag(self.deviation), lower=True)
        return half.T @ half

    @cached_property
    def _spread(self) -> tuple[NodeSpread, float]:
        """Variances, and the trace of the largest factor."""
        kernel, cells, covariance = self.kernel, self.kernel.cells, self._covariance
        small = np.diag(covariance)
        own = np.empty(len(self.own))
        value = np.zeros(cells.number)
        order = np.argsort(cells.places[kernel.largest], kind="stable")
        starts = np.searchsorted(cells.places[kernel.largest][order], np.arange(len(own) + 1))
        step, trace = max(1, _CHUNK // len(small)), 0.0
        for low in range(0, len(own), step):
            high = min(low + step, len(own))
            block = self.joint[low:high] @ covariance  # -cov(large, small) / gain
            square = np.asarray(self.joint[low:high].multiply(block).sum(axis=1)).ravel()
            gain = self.gain[low:high]
            own[low:high] = gain + gain**2 * square
            kept = 1 - self.own[low:high] * gain
            trace += float((self.own[low:high] * kept - kept**2 * square).sum())
            inside = order[starts[low] : starts[high]]
            upper = cells.places[kernel.largest][inside]
            for j, k in enumerate(kernel.others):
                lower = kernel.offsets[j] + cells.places[k][inside]
                value[inside] -= 2 * self.gain[upper] * block[upper - low, lower]
        value += own[cells.places[kernel.largest]]
        for j, k in enumerate(kernel.others):
            one = kernel.offsets[j] + cells.places[k]
            for i, other in enumerate(kernel.others):
                value += covariance[one, kernel.offsets[i] + cells.places[other]]
        nodes: list[np.ndarray] = [own] * len(cells.sizes)
        for j, k in enumerate(kernel.others):
            nodes[k] = small[kernel.offsets[j] : kernel.offsets[j + 1]]
        return NodeSpread(value, nodes), trace

    def spread(self) -> NodeSpread:
        return self._spread[0]

    def traces(self) -> np.ndarray:
        """Tr Z_k' V^-1 Z_k for every factor: the derivatives of log |V|."""
        scaled = self.deviation[:, None] * self.left
        half = linalg.solve_triangular(self.lower, scaled, lower=True)
        each = np.diag(self.left) - (half**2).sum(axis=0)
        found = np.empty(len(self.variances))
        found[self.kernel.largest] = self._spread[1]
        for j, k in enumerate(self.kernel.others):
            found[k] = each[self.kernel.offsets[j] : self.kernel.offsets[j + 1]].sum()
        return found
