"""What a model of several factors is made of, and what it says at given variances."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy import linalg

from fedprior.estimation.levels.cells import Cells
from fedprior.estimation.levels.crossed import CrossedFactor
from fedprior.estimation.levels.tree import TreeFactor, summed

Factor = TreeFactor | CrossedFactor


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelRows:
    """Rows, or sums of rows: row r lies in `cell[r]`, its linear predictor is x beta + effects.

    For the family gaussian, `y` is the mean of `size` rows, `within` the sum of squares about these
    means and `num_rows` the number of rows; with `known`, `size` is 1 / variance of y. For binomial
    and poisson, `y` are the successes or events of `size` trials or of an exposure `size`. The
    first column of `x` is 1, all others have mean 0. `counts` is the number of rows that a row
    stands for, where `size` is not.
    """

    cells: Cells
    cell: np.ndarray
    x: np.ndarray
    y: np.ndarray
    size: np.ndarray
    family: str = "gaussian"
    within: float = 0.0
    num_rows: int = 0
    known: bool = False
    counts: np.ndarray | None = None

    @property
    def num_fixed(self) -> int:
        return self.x.shape[1]

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Sums over the rows of each cell: (q, rows) -> (q, cells)."""
        return summed(self.cell, values, self.cells.number)


class Normal(NamedTuple):
    """Theta ~ N(location, variance), on the scale of the linear predictor."""

    location: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """All effects given the data and the variances of the factors.

    `log_density` is the likelihood with the coefficients integrated over. Values are at the mean
    row: of `cells`, of the levels of every factor (`nodes`), and of the whole (`beta[0]`).
    `variances` and `noise` are in units of the data; `freedom` is that of the noise. `pulls` are
    the weights of the own data, of the levels of every factor, then of the cells if these differ.
    `rest` is what the other cells say of a cell, where it has a likelihood of its own.
    """

    log_density: float
    variances: np.ndarray
    noise: float
    freedom: float
    beta: np.ndarray
    covariance: np.ndarray
    cells: Normal
    nodes: tuple[Normal, ...]
    pulls: tuple[np.ndarray, ...]
    rest: Normal | None = None


class Problem(Protocol):
    """The likelihood of a family, in variances of the factors relative to that of the noise."""

    @property
    def rows(self) -> LevelRows: ...

    def start(self) -> np.ndarray:
        """Standard deviations of the factors, then coefficients if they are not profiled out."""

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """-2 log likelihood, and its gradient."""

    def density(self, ratios: np.ndarray) -> float:
        """The log likelihood with coefficients and noise integrated over."""

    def information(self, ratios: np.ndarray) -> np.ndarray:
        """What the data say of the effects of each factor, in sum: 1 / sampling variance."""

    def noise(self, ratios: np.ndarray) -> float:
        """The noise variance that goes with the ratios."""

    def state(self, ratios: np.ndarray) -> State:
        """All effects, given the variances."""


def values_at(
    factor: Factor, totals: np.ndarray, beta: np.ndarray, covariance: np.ndarray, noise: float
) -> tuple[Normal, tuple[Normal, ...]]:
    """Values of cells and levels at the mean row, x = (1, 0, ...).

    `totals` (p + 1, cells) are the weighted sums of x and y in each cell. A value is
    x beta + A (y - X beta) with A linear, so the error of beta enters by x - A X.
    """
    solved, spread = factor.solve(totals), factor.spread()

    def value(table: np.ndarray, own: np.ndarray) -> Normal:
        row = -table[:-1]
        row[0] += 1
        doubt = (row * (covariance @ row)).sum(axis=0)
        return Normal(beta @ row + table[-1], noise * own + doubt)

    nodes = tuple(map(value, solved.nodes, spread.nodes))
    if isinstance(factor, TreeFactor):  # the finest level is the cell
        return nodes[-1], nodes
    return value(solved.cells, spread.cells), nodes


def pulls(factor: Factor, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """The weight of the own data in the value of each level of each factor, and of each cell.

    In a chain it is against the value of the level above, where factors cross against all others.
    """
    if isinstance(factor, TreeFactor):
        return tuple(1 - shrink for shrink in factor.shrinks)
    spread = factor.spread()
    known = [
        1 - own / variance if variance > 0 else np.zeros(len(own))
        for own, variance in zip(spread.nodes, factor.variances, strict=True)
    ]
    return (*known, np.minimum(weight * spread.cells, 1.0))


def eliminated(gram: np.ndarray, totals: np.ndarray, factor: Factor) -> np.ndarray:
    """[X y]' V^-1 [X y], (p + 1, p + 1)."""
    return gram - totals @ factor.solve(totals).cells.T


def coefficients(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Beta, the inverse of X'V^-1 X, its log determinant, and the sum of squares that is left."""
    lower = np.linalg.cholesky(table[:-1, :-1])
    half = linalg.solve_triangular(lower, table[:-1, -1], lower=True)
    inverse = linalg.cho_solve((lower, True), np.eye(len(lower)))
    left = float(table[-1, -1] - half @ half)
    log_determinant = 2 * float(np.log(np.diag(lower)).sum())
    return inverse @ table[:-1, -1], inverse, log_determinant, left
