"""Where the atoms of a nonparametric population may lie, and rows too many to fit binned.

Both work on a coordinate in which a row's likelihood is a bump of known variance: the mean itself
for Gaussian rows; asin(sqrt(rate)) for binomial ones, where the variance is 1 / (4 n) at any rate.
"""

from typing import NamedTuple

import numpy as np

MOST_ATOMS = 1000
MOST_CELLS = 1 << 24  # rows x atoms of the likelihood table: 128 MB, a matrix product in 10 ms
_FIRST_WIDTH = 1 / 16


class AtomGrid(NamedTuple):
    """`position` of each atom, increasing, and the standard deviation of the cell it stands for.

    `spread` is 0 where the grid is finer than half the narrowest bump, and a step / sqrt(12) where
    it cannot be: an atom then stands for its cell, so that a row of very many values keeps to its
    own mean and is not rounded to the grid.
    """

    position: np.ndarray
    spread: np.ndarray


def grid(position: np.ndarray, variance: np.ndarray, *, num_atoms: int) -> AtomGrid:
    """Evenly spaced over the data, steps of at most half the smallest standard deviation.

    The maximum-likelihood population has no mass outside the range of the rows' own estimates. It
    takes up to `MOST_ATOMS` atoms; where these are too few for even steps (an outlier, rows of very
    different precision) half of them go to the quantiles of the rows.
    """
    low, high = float(position.min()), float(position.max())
    if high <= low:
        return AtomGrid(np.array([low]), np.zeros(1))
    finest = float(np.sqrt(variance.min())) / 2
    needed = (high - low) / finest + 1 if finest > 0 else np.inf
    if needed <= max(num_atoms, MOST_ATOMS):
        points = np.linspace(low, high, max(num_atoms, int(np.ceil(needed))))
        return AtomGrid(points, np.zeros(len(points)))
    most = max(num_atoms, MOST_ATOMS)
    even = np.linspace(low, high, most - most // 2)
    data = np.quantile(position, np.linspace(0, 1, most // 2))
    points = np.unique(np.concatenate([even, data]))
    step = np.gradient(points)
    return AtomGrid(points, np.where(step > finest, step / np.sqrt(12), 0.0))


def bin_rows(position: np.ndarray, variance: np.ndarray, *, most: int) -> np.ndarray | None:
    """The bin of each row, at most `most` bins in all; None where the rows are few enough already.

    A bin is 1/16 of a standard deviation wide (never finer than 1/16 of a grid step), and 1/16 wide
    in log variance unless the variances are few; both widths double until the bins are few enough.
    With each bin at the average of its rows the first-order error is zero and the second-order one
    of a row's log-likelihood is at most width^2 / 24, that is 1.6e-4 at 1/16.
    """
    if len(position) <= most:
        return None
    low, high = float(position.min()), float(position.max())
    finest = (high - low) / MOST_ATOMS
    distinct, level = np.unique(variance, return_inverse=True)
    width = _FIRST_WIDTH
    while True:
        if len(distinct) > 64:
            level_of = np.floor(np.log(distinct / distinct[0]) / width).astype(np.int64)
            size_of = distinct[0] * np.exp(level_of * width)
        else:
            level_of, size_of = np.arange(len(distinct)), distinct
        step = width * np.maximum(np.sqrt(size_of), finest)
        column = np.floor((position - low) / step[level]).astype(np.int64)
        code = level_of[level] * (int(column.max()) + 1) + column
        place = _labels(code)
        if int(place.max()) < most:
            return place
        width *= 2


def _labels(code: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... for the distinct codes."""
    span = int(code.max()) + 1
    if span <= max(4 * len(code), 1 << 20):  # a table of all codes is cheaper than a sort
        present = np.zeros(span, bool)
        present[code] = True
        return (np.cumsum(present) - 1)[code]
    return np.unique(code, return_inverse=True)[1]


def averages(place: np.ndarray, count: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """The count of each bin and the count-weighted average of each of `values` in it."""
    total = np.bincount(place, count)
    return [total, *(np.bincount(place, count * each) / total for each in values)]
