"""The grid of atoms of a nonparametric population, and bins for too many rows.

Both use a coordinate in which a row's likelihood is a bump of known variance: the mean itself for
Gaussian rows, and asin(sqrt(rate)) for binomial rows, where the variance is 1 / (4 n) at any rate.
"""

from typing import NamedTuple

import numpy as np

_LEAST_ATOMS = 300
MOST_ATOMS = 1000
MOST_CELLS = 1 << 24  # rows x atoms of the likelihood table: 128 MB, 10 ms per matrix product
_FIRST_WIDTH = 1 / 16


class AtomGrid(NamedTuple):
    """`position` of each atom, increasing, and the standard deviation of its cell.

    `spread` is 0 if the grid is finer than half the narrowest bump, else step / sqrt(12): the atom
    then represents its cell, so that a very precise row keeps its own mean instead of being rounded
    to the grid.
    """

    position: np.ndarray
    spread: np.ndarray


def grid(position: np.ndarray, variance: np.ndarray, *, most: int = MOST_ATOMS) -> AtomGrid:
    """An even grid over the data with steps of at most half the smallest standard deviation.

    The maximum-likelihood population has no mass outside the range of the rows. At most `most`
    atoms are used; if these are too few for even steps (an outlier, or rows of very
    different precision), half of them are placed at quantiles of the rows.
    """
    low, high = float(position.min()), float(position.max())
    if high <= low:
        return AtomGrid(np.array([low]), np.zeros(1))
    finest = float(np.sqrt(variance.min())) / 2
    needed = (high - low) / finest + 1 if finest > 0 else np.inf
    if needed <= most:
        points = np.linspace(low, high, max(min(_LEAST_ATOMS, most), int(np.ceil(needed))))
        return AtomGrid(points, np.zeros(len(points)))
    even = np.linspace(low, high, most - most // 2)
    data = np.quantile(position, np.linspace(0, 1, most // 2))
    points = np.unique(np.concatenate([even, data]))
    step = np.gradient(points)
    return AtomGrid(points, np.where(step > finest, step / np.sqrt(12), 0.0))


def bin_rows(position: np.ndarray, variance: np.ndarray, *, most: int) -> np.ndarray | None:
    """The bin of each row, with at most `most` bins; None if the rows are few enough.

    A bin is 1/16 of a standard deviation wide (at least 1/16 of a grid step), and 1/16 wide in log
    variance unless there are few distinct variances; both widths double until there are at most
    `most` bins. With each bin at the average of its rows the first-order error vanishes, and the
    second-order error of a row's log-likelihood is at most width^2 / 24, or 1.6e-4 at 1/16.
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
    """The count of each bin, and the count-weighted average of each array in it."""
    total = np.bincount(place, count)
    return [total, *(np.bincount(place, count * each) / total for each in values)]
