"""A meta-analysis repeated without each of its studies, all of them at once."""

from collections.abc import Callable

import numpy as np

from fedprior.core import check
from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, ratio_range
from fedprior.estimation.gaussian.rows import rows_of
from fedprior.estimation.gaussian.summary import average_row
from fedprior.estimation.meta import LeaveOneOut

MOST_STUDIES = 2_000  # since leaving each out compares all pairs of them
_COARSE = 65  # variances of the first grid
_GOLDEN = float(np.sqrt(5) - 1) / 2
_STEPS = 40  # of golden sections: to 4e-9 of the bracket

Height = Callable[[np.ndarray], np.ndarray]
"""The log-likelihood without each study, at a variance of its own."""


def without_each(bins: Bins, law: MeanLaw, raw: np.ndarray) -> LeaveOneOut:
    """The restricted maximum without each study; its mean at the average covariates of all."""
    least = law.design.shape[1] + 2
    fits = least <= bins.num_groups <= MOST_STUDIES
    rule = f"from {least} to {MOST_STUDIES:,}"
    check.require(fits, "leave_one_out", "number of studies", rule, bins.num_groups)
    some = bins.place < bins.num_bins
    others = _Others(
        rows_of(bins, law)[some],
        (raw[some] - bins.center)[:, 0],
        bins.unit[bins.place[some]],
    )
    low, high, step = ratio_range(bins, law)
    grid = np.linspace(np.log1p(low / step), np.log1p(high / step), _COARSE)

    def height(logs: np.ndarray) -> np.ndarray:
        return others.log_likelihood(step * np.expm1(logs))

    best = _highest(height, grid, bins.num_groups)
    found = others.answer(step * np.expm1(best), average_row(bins, law))
    return LeaveOneOut(**{**found, "mean": found["mean"] + bins.center[0]})


def _highest(height: Height, grid: np.ndarray, number: int) -> np.ndarray:
    """The argmax for each study: the best point of the grid, then golden sections about it."""
    best = np.stack([height(np.full(number, each)) for each in grid]).argmax(axis=0)
    left, right = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    for _ in range(_STEPS):
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        higher = height(inner) >= height(outer)
        left, right = np.where(higher, left, inner), np.where(higher, outer, right)
    lowest = np.full(number, grid[0])  # a maximum at the end is not among the sections
    return np.where(height(lowest) >= height(left), lowest, left)


class _Others:
    """Sums over all studies but one; `ratio` has one variance for each study that is left out."""

    def __init__(self, x: np.ndarray, y: np.ndarray, variance: np.ndarray) -> None:
        self.variance, self.width = variance, x.shape[1]
        products = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        self.table = np.concatenate([products, x * y[:, None], (y**2)[:, None]], axis=1)

    def sums(self, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Weights (left out, studies), X'WX, its inverse times X'Wy, and the squares about it."""
        weight = 1 / (self.variance + ratio[:, None])
        np.fill_diagonal(weight, 0.0)
        found = weight @ self.table
        normal = found[:, : self.width**2].reshape(-1, self.width, self.width)
        right = found[:, self.width**2 : -1]
        coefficients = np.linalg.solve(normal, right[..., None])[..., 0]
        squares = found[:, -1] - (coefficients * right).sum(axis=1)
        return weight, normal, coefficients, np.maximum(squares, 0.0)

    def log_likelihood(self, ratio: np.ndarray) -> np.ndarray:
        weight, normal, _, squares = self.sums(ratio)
        np.fill_diagonal(weight, 1.0)
        return (np.log(weight).sum(axis=1) - np.linalg.slogdet(normal)[1] - squares) / 2

    def answer(self, variance: np.ndarray, average: np.ndarray) -> dict[str, np.ndarray]:
        """The fields of `LeaveOneOut`, the mean relative to the center."""
        _, normal, coefficients, _ = self.sums(variance)
        weight, plain, _, q = self.sums(np.zeros_like(variance))
        second = (weight**2 @ self.table[:, : self.width**2]).reshape(plain.shape)
        trace = weight.sum(axis=1) - np.trace(np.linalg.solve(plain, second), axis1=1, axis2=2)
        typical = (len(weight) - 1 - self.width) / trace
        rows = np.broadcast_to(average[:, None], (len(normal), self.width, 1))
        return {
            "mean": coefficients @ average,
            "mean_error": np.sqrt(np.linalg.solve(normal, rows)[..., 0] @ average),
            "variance": variance,
            "q": q,
            "i_squared": variance / (variance + typical),
        }
