"""Natural cubic splines, parameterized by their values at the knots."""

import numpy as np


def spline_basis(
    at: np.ndarray, values: np.ndarray, count: np.ndarray, num_knots: int
) -> np.ndarray:
    """The basis at points `at`, one column per knot; knots are quantiles of weighted `values`.

    `count` holds the weights. The outermost knots are the extremes, and equal knots are merged.
    """
    order = np.argsort(values)
    share = np.cumsum(count[order]) / count.sum()
    inner = np.searchsorted(share, np.linspace(0, 1, num_knots)[1:-1])
    knots = np.unique(np.r_[values.min(), values[order][inner], values.max()])
    return natural_spline(knots, at)


def natural_spline(knots: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Columns j: the natural cubic spline that is 1 at knot j and 0 at the others, at each `at`.

    On a piece of width w, with a = (right - x) / w and b = 1 - a: a y0 + b y1 + ((a^3 - a) y0'' +
    (b^3 - b) y1'') w^2 / 6, the second derivatives y'' from the continuity of the first.
    """
    widths = np.diff(knots)
    bends = np.zeros((len(knots), len(knots)))
    if len(knots) > 2:
        jump = np.diff(np.diff(np.eye(len(knots)), axis=0) / widths[:, None], axis=0)
        system = np.diag((widths[:-1] + widths[1:]) / 3)
        system += np.diag(widths[1:-1] / 6, 1) + np.diag(widths[1:-1] / 6, -1)
        bends[1:-1] = np.linalg.solve(system, jump)
    piece = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(widths) - 1)
    width = widths[piece]
    first = ((knots[piece + 1] - at) / width)[:, None]
    second = 1 - first
    sixth = (width**2 / 6)[:, None]
    line = first * np.eye(len(knots))[piece] + second * np.eye(len(knots))[piece + 1]
    curve = (first**3 - first) * bends[piece] + (second**3 - second) * bends[piece + 1]
    return line + sixth * curve
