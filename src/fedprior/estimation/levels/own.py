"""Rates of single cells: the likelihood of their own counts times a normal law of all the rest."""

import numpy as np
from scipy import special

from fedprior.estimation.levels.laplace import likelihood
from fedprior.estimation.levels.problem import LevelRows, Normal

_POINTS = 64  # of a grid over `_REACH` standard deviations to each side
_REACH = 8.0
_FURTHEST = 300.0  # logarithms whose exponentials and their squares are numbers
_MANY = 20_000  # cells
_CHUNK = 1 << 18  # numbers at a time


def own_rates(
    rows: LevelRows, rest: list[Normal], near: list[Normal], probability: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and limits of the rate of every cell, averaged over states.

    The linear predictor has the density p(y | eta) N(eta; rest), where `rest` is what all other
    data say; `near` are its normal approximations, which say where a grid has to be.
    """
    number = rows.cells.number
    y, size = rows.totals(np.vstack([rows.y, rows.size]))
    if number > _MANY:  # states of so many cells hardly differ
        rest, near = [_matched(rest, probability)], [_matched(near, probability)]
        probability = np.ones(1)
    found = np.empty((4, number))
    about, law = _matched(near, probability), _matched(rest, probability)
    step = max(1, _CHUNK // _POINTS)
    for low in range(0, number, step):
        part = slice(low, min(low + step, number))
        place = np.arange(low, part.stop)
        grid = _grid(_part(about, part), _part(law, part))
        some = LevelRows(
            cells=rows.cells, cell=place, x=grid, y=y[part, None], size=size[part, None],
            family=rows.family,
        )  # fmt: skip
        log = likelihood(some, grid).value
        density = np.zeros_like(log)
        for chance, each in zip(probability, rest, strict=True):
            apart = (grid - each.location[part, None]) ** 2 / each.variance[part, None]
            here = log - apart / 2
            here = np.exp(here - here.max(axis=1, keepdims=True))
            density += chance * here / here.sum(axis=1, keepdims=True)
        found[:, part] = _summary(rows.family, grid, density, level)
    mean, deviation, lower, upper = found
    return mean, deviation, lower, upper


def _matched(parts: list[Normal], probability: np.ndarray) -> Normal:
    """The normal law with the mean and the variance of the mixture."""
    location = np.array([each.location for each in parts])
    middle = probability @ location
    within = np.array([each.variance for each in parts])
    return Normal(middle, probability @ (within + (location - middle) ** 2))


def _part(each: Normal, part: slice) -> Normal:
    return Normal(each.location[part], each.variance[part])


def _grid(near: Normal, rest: Normal) -> np.ndarray:
    """Points (cells, points) that hold the density: near the approximation, and within the rest.

    Where counts are small, the density is wider than its approximation on one side.
    """
    low, high = (near.location + side * _REACH * np.sqrt(near.variance) for side in (-1, 1))
    least, most = (rest.location + side * _REACH * np.sqrt(rest.variance) for side in (-1, 1))
    low, high = np.maximum(low, least), np.minimum(high, most)
    low, high = np.clip(low, -_FURTHEST, _FURTHEST), np.clip(high, -_FURTHEST, _FURTHEST)
    return low[:, None] + np.maximum(high - low, 1e-12)[:, None] * np.linspace(0, 1, _POINTS)


def _summary(
    family: str, grid: np.ndarray, density: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and quantiles of the rate; the density is even between points."""
    density = density / density.sum(axis=1, keepdims=True)
    inverse = np.exp if family == "poisson" else special.expit
    rate = inverse(grid)
    mean = (density * rate).sum(axis=1)
    spread = (density * (rate - mean[:, None]) ** 2).sum(axis=1)
    below = np.cumsum(density, axis=1) - density / 2
    below[:, 1:-1] -= (density[:, 2:] - density[:, :-2]) / 24  # the trapezoid rule's own error
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        right = np.clip((below < tail).sum(axis=1), 1, _POINTS - 1)
        rows = np.arange(len(grid))
        # Normal scores are nearly linear in the predictor.
        first, last = (
            special.ndtri(np.clip(below[rows, place], 1e-15, 1 - 1e-15))
            for place in (right - 1, right)
        )
        span = last - first
        share = (special.ndtri(tail) - first) / np.where(span > 0, span, 1.0)
        share = np.clip(share, 0, 1)
        end = grid[rows, right - 1] + share * (grid[rows, right] - grid[rows, right - 1])
        ends.append(inverse(end))
    return mean, np.sqrt(spread), ends[0], ends[1]
