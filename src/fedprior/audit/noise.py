"""Tests of Gaussian noise: its scale, its shape and its independence, in any dimension."""

import math

import numpy as np

from fedprior.audit.finding import POWER

# Tests on one set of draws, which share the probability of a false alarm.
_TESTS = 6
_MOST_PAIRS = 512  # rows or columns of which all pairs are compared


def deviations(draws: np.ndarray, scale: float, *, alarm: float) -> tuple[str, ...]:
    """Describe how `draws` (num_draws, dimension) deviate from independent N(0, scale^2).

    Tests the sum of squares of all values, of each coordinate and of each draw against chi-square
    (two-sided), all values against the normal distribution (Kolmogorov-Smirnov), the correlations
    of pairs of coordinates and of pairs of draws, and those of each draw with itself at every
    distance, which detect noise that is shared, repeated or tiled. A sound mechanism is reported
    with probability at most `alarm`.
    """
    units = np.asarray(draws, np.float64) / scale
    if not np.isfinite(units).all():
        return ("a release that is not finite",)
    share = alarm / _TESTS
    faults = []
    if _scale(units.reshape(-1, 1)) < share:
        overall = math.sqrt((units**2).mean())
        faults.append(f"noise of {overall:.4g} times the stated scale")
    if min(_scale(units), _scale(units.T)) < share / 2:
        worst = min(_furthest(units), _furthest(units.T), key=lambda scale: -abs(scale - 1))
        faults.append(f"noise of {worst:.4g} times the stated scale in a coordinate or a round")
    if _shape(units) < share:
        faults.append("noise that is not normal")
    if min(correlation(units), _lags(units)) < share or _copied(units):
        faults.append("noise that is shared between coordinates or rounds")
    elif correlation(units.T) < share:
        faults.append("noise that is repeated")
    return tuple(faults)


def upper_scale(draws: np.ndarray, *, alarm: float) -> float:
    """Return an upper confidence limit on the scale of the noise, or of its least coordinate.

    The limit fails with probability at most `alarm`, the same as in `deviations`: draws that pass
    `deviations` have a limit above the stated scale.
    """
    draws = np.asarray(draws, np.float64)
    number, dimension = draws.shape
    squares = (draws**2).sum(axis=0)
    level = alarm / (2 * _TESTS)
    whole = squares.sum() / _quantile(level, draws.size)
    return math.sqrt(min(whole, squares.min() / _quantile(level / (2 * dimension), number)))


def detects(number: int, dimension: int, *, alarm: float) -> str:
    """Say which scale, of all coordinates or of one, is found with probability `POWER`."""
    level = alarm / (2 * _TESTS)
    whole = math.sqrt(_quantile(level, number * dimension) / _quantile(POWER, number * dimension))
    single = math.sqrt(_quantile(level / (2 * dimension), number) / _quantile(POWER, number))
    one = f", or below {_down(single)} in one coordinate" if dimension > 1 else ""
    return f"a scale below {_down(whole)} of the stated one{one}"


def _down(value: float) -> str:
    return f"{math.floor(1000 * value) / 1000:.3f}"


def _quantile(level: float, degrees: int) -> float:
    from scipy.stats import chi2

    return float(chi2.ppf(level, degrees))


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

    return float(kstest(units.ravel()[:2_000_000], "norm").pvalue)


def correlation(units: np.ndarray) -> float:
    """The p-value of the strongest correlation of two columns, of which the first 512 are taken."""
    from scipy.stats import t

    units = units[:, :_MOST_PAIRS]
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


def _lags(units: np.ndarray) -> float:
    """The p-value of the strongest correlation of a row with itself, shifted by any distance.

    The sum over all rows is taken for each distance: of `count` products with mean 0 and variance
    1, whose tail is bounded by Bernstein's inequality for products of two normals.
    """
    number, dimension = units.shape
    if dimension < 8:
        return 1.0
    length = 1 << (2 * dimension - 1).bit_length()
    total = np.zeros(length // 2 + 1)
    for row in units:
        total += np.abs(np.fft.rfft(row, length)) ** 2
    sums = np.fft.irfft(total, length)[1 : dimension - 3]
    count = number * (dimension - np.arange(1, dimension - 3))
    # log E exp(s x y) = -log(1 - s^2) / 2; at s = v / (1 + 2 v), v = |sum| / count, this gives
    # P(|sum| >= count v) <= 2 exp(-count v^2 / (2 (1 + 2 v))), and a little more for overlaps,
    # whose products are uncorrelated but not independent: the exponent is halved for them.
    v = np.abs(sums) / count
    exponent = count * v**2 / (4 * (1 + 2 * v))
    return float(2 * len(sums) * np.exp(-exponent.max()))


def _copied(units: np.ndarray) -> bool:
    """Whether two columns agree up to sign in three rows or more; noise in float32 has ties, but
    two columns of 100,000 agree in three rows with probability below 1e-11.
    """
    rows = np.abs(units[:4])
    return len(rows) > 2 and np.unique(rows, axis=1).shape[1] < rows.shape[1]
