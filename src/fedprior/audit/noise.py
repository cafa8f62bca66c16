"""Tests of Gaussian noise: its scale, its shape and its independence."""

import math

import numpy as np

# Tests on one set of draws, which share the probability of a false alarm.
_TESTS = 3


def deviations(draws: np.ndarray, scale: float, *, alarm: float) -> tuple[str, ...]:
    """Describe how `draws` (num_draws, dimension) deviate from independent N(0, scale^2).

    Tests each coordinate's sum of squares against chi-square (two-sided), all values against the
    normal distribution (Kolmogorov-Smirnov), and the correlation of each pair against Student's t,
    which detects noise that is shared between coordinates or rounds. A sound mechanism is reported
    with probability at most `alarm`.
    """
    units = np.asarray(draws, np.float64) / scale
    share = alarm / _TESTS
    faults = []
    if _scale(units) < share:
        worst = _furthest(units)
        faults.append(f"noise of {worst:.4g} times the stated scale in a coordinate")
    if _shape(units) < share:
        faults.append("noise that is not normal")
    if _correlation(units) < share:
        faults.append("noise that is shared between coordinates or rounds")
    return tuple(faults)


def upper_scale(draws: np.ndarray, *, alarm: float) -> float:
    """Return an upper confidence limit on the scale of the coordinate with the least noise.

    The limit fails with probability at most `alarm`, the same as in `deviations`: draws that pass
    `deviations` have a limit above the stated scale.
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
