"""Which variances the data allow: a grid with probabilities, fine where the data say little."""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

from fedprior.estimation.levels.fit import LevelsFit
from fedprior.estimation.levels.problem import Problem

_DEPTH = 8.0  # log-densities this far below the highest are left out: 4 standard deviations
_SURE = 0.07  # standard deviation of log variance below which one point serves
_FURTHEST = 14.0  # above the estimate: where the search for an end ends
_POINTS = {1: 25, 2: 13, 3: 7}  # of each axis, by the number of axes
_FEWER = {1: 15, 2: 9, 3: 5}  # with many cells
_MANY = 20_000  # cells
_KEPT = 1e-4  # of the highest probability


class Hyper(NamedTuple):
    """Ratios (points, factors) and their probabilities."""

    ratios: np.ndarray
    probability: np.ndarray


class _Axis(NamedTuple):
    """Log(ratio + middle) from `low` to `high`: the prior 1 / (ratio + middle) is flat in it."""

    middle: float
    low: float
    high: float

    def points(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Points and weights of the trapezoid rule."""
        number = int(np.clip(np.ceil((self.high - self.low) / 0.4) + 1, min(9, most), most))
        grid = np.linspace(self.low, self.high, number)
        weight = np.ones(number)
        weight[[0, -1]] = 0.5
        return np.maximum(np.exp(grid) - self.middle, 0.0), weight


def plausible(problem: Problem, fit: LevelsFit) -> Hyper:
    """The posterior of the variance ratios about their estimate.

    The prior of each is 1 / (r + r0), where r0 is the sampling variance of an effect if the factor
    had no variance: flat for what cannot be seen, scale-free beyond, proper with two levels. A
    factor whose variance is known to a few percent keeps its estimate.
    """
    ratios = fit.ratios
    with np.errstate(invalid="ignore", divide="ignore"):
        sure = 2 * fit.scale_errors / fit.scales < _SURE
    axes = [None if sure[k] else _axis(problem, ratios, k) for k in range(len(ratios))]
    wide = [each for each in axes if each is not None]
    if not wide:
        return Hyper(ratios[None], np.ones(1))
    many = problem.rows.cells.number > _MANY
    most = (_FEWER if many else _POINTS)[min(len(wide), 3)]
    lines = [
        (ratios[[factor]], np.ones(1)) if axis is None else axis.points(most)
        for factor, axis in enumerate(axes)
    ]
    grid = np.array(list(product(*(points for points, _ in lines))))
    weight = np.array([np.prod(each) for each in product(*(weights for _, weights in lines))])
    density = np.array([_density(problem, point) for point in grid])
    probability = weight * np.exp(density - density.max())
    kept = probability > _KEPT * probability.max()
    probability = probability[kept] / probability[kept].sum()
    return Hyper(grid[kept], probability)


def _axis(problem: Problem, ratios: np.ndarray, factor: int) -> _Axis:
    """The range of one ratio, the others at their estimates."""
    none = ratios.copy()
    none[factor] = 0.0
    information = float(problem.information(none)[factor])
    middle = problem.rows.cells.sizes[factor] / max(information, 1e-300)

    def density(x: float) -> float:
        at = ratios.copy()
        at[factor] = max(np.exp(x) - middle, 0.0)
        return _density(problem, at)

    floor, here = float(np.log(middle)), float(np.log(ratios[factor] + middle))
    top = density(here)
    step = float(np.sqrt(2 / problem.rows.cells.sizes[factor]))
    high, top = _end(density, here, top, step, here + _FURTHEST)
    low, top = _end(density, here, top, -step, floor)
    return _Axis(middle, low, high)


def _density(problem: Problem, ratios: np.ndarray) -> float:
    """The log density; none where variances are so extreme that rounding leaves no matrix."""
    try:
        return problem.density(ratios)
    except np.linalg.LinAlgError:
        return -np.inf


def _end(
    density: Callable[[float], float], here: float, top: float, step: float, limit: float
) -> tuple[float, float]:
    """Where the density has fallen by `_DEPTH` in the direction of `step`, and the highest seen."""
    inside, outside, reach = here, None, step
    while outside is None:
        point = here + reach
        if (limit - point) * step <= 0:
            point = limit
        value = density(point)
        top = max(top, value)
        if value < top - _DEPTH:
            outside = point
        elif point == limit:
            return limit, top
        else:
            inside, reach = point, 2 * reach
    for _ in range(3):
        middle = (inside + outside) / 2
        below = density(middle) < top - _DEPTH
        inside, outside = (inside, middle) if below else (middle, outside)
    return outside, top
