"""Whether draws are the Gaussian noise that is claimed: its scale, its shape, its independence."""

import math

import numpy as np

# Tests on one set of draws, each with its share of the false alarms.
_TESTS = 3


def deviations(draws: np.ndarray, scale: float, *, alarm: float) -> tuple[str, ...]:
    """How `draws` (num_draws, dimension) differ from independent N(0, scale^2), in words.

    Each coordinate's sum of squares against chi-square (two-sided); all values together against
    the normal distribution (Kolmogorov-Smirnov); each pair's correlation against Student's t, which
    finds noise that is shared between coordinates or rounds. A sound mechanism is named with
    probability at most `alarm`.
    """
    units = np.asarray(draws, np.float64) / scale
    share = alarm / _TESTS
    found = []
    if _scale(units) < share:
        worst = _furthest(units)
        found.append(f"noise of {worst:.4g} times the stated scale in a coordinate")
    if _shape(units) < share:
        found.append("noise that is not normal")
    if _correlation(units) < share:
        found.append("noise that is shared between coordinates or rounds")
    return tuple(found)


def upper_scale(draws: np.ndarray, *, alarm: float) -> float:
    """The scale of the least noised coordinate lies above this with probability at most `alarm`.

    `alarm` is that of `deviations`: a set of draws that passes it has a limit above its scale.
    """
    from scipy.stats import chi2

    draws = np.asarray(draws, np.float64)
    number, dimension = draws.shape
    least = (draws**2).sum(axis=0).min()
    return math.sqrt(least / chi2.ppf(alarm / (2 * _TESTS * dimension), number))


def _scale(units: np.ndarray) -> float:
    from scipy.stats import chi2

    number, dimension = units.shape
    squares = (units**2).sum(axis=0)
    tail = np.minimum(chi2.cdf(squares, number), chi2.sf(squares, number))
    return float(2 * dimension * tail.min())


def _furthest(units: np.ndarray) -> float:
    scales = np.sqrt((units**2).mean(axis=0))
    return float(scales[np.argmax(np.abs(np.log(np.maximum(scales, 1e-300))))])


def _shape(units: np.ndarray) -> float:
    from scipy.stats import kstest

    return float(kstest(units.ravel(), "norm").pvalue)


def _correlation(units: np.ndarray) -> float:
    from scipy.stats import t

    number, dimension = units.shape
    if dimension == 1 or number <= 3:
        return 1.0
    centered = units - units.mean(axis=0)
    norms = np.sqrt((centered**2).sum(axis=0))
    products = centered.T @ centered / np.maximum(np.outer(norms, norms), 1e-300)
    pairs = np.clip(products[np.triu_indices(dimension, 1)], -1, 1)
    strongest = float(np.abs(pairs).max())
    if strongest >= 1:
        return 0.0
    statistic = strongest * math.sqrt((number - 2) / (1 - strongest**2))
    return float(2 * len(pairs) * t.sf(statistic, number - 2))
