"""The beta-binomial likelihood from three histograms: of successes, of failures and of sizes."""

from typing import NamedTuple

import numpy as np

from fedprior.estimation.statistics import Pairs

_SERIES_FROM = 16.0  # Stirling's remainder after three terms is below 1/(1680 * 16^7) = 3e-12 there

_CELLS = 1 << 20  # populations x distinct counts at a time: 8 MB


class Tally(NamedTuple):
    """Histograms of the groups, which are all that the likelihood of a Beta population needs.

    The cost of an evaluation depends on the number of distinct values, not of groups or pairs.
    `won` is the number of successes in all groups of each size. Groups without trials are ignored.
    """

    successes: np.ndarray
    successes_count: np.ndarray
    failures: np.ndarray
    failures_count: np.ndarray
    n: np.ndarray
    n_count: np.ndarray
    won: np.ndarray

    @property
    def total_successes(self) -> float:
        return float(self.successes @ self.successes_count)

    @property
    def total_failures(self) -> float:
        return float(self.failures @ self.failures_count)

    @property
    def num_groups(self) -> float:
        return float(self.n_count.sum())


def tally(pairs: Pairs, count: np.ndarray | None = None) -> Tally:
    """Histograms of the groups with trials; `count` replaces the pairs' counts (for a fold).

    >>> pairs = Pairs(np.array([0, 2, 5]), np.array([0, 2, 2]), np.array([1, 3, 1]), np.arange(5))
    >>> data = tally(pairs)
    >>> data.successes.tolist(), data.successes_count.tolist(), data.n.tolist()
    ([2.0], [4.0], [2.0, 5.0])
    """
    count = np.asarray(pairs.count if count is None else count, np.float64)
    held = (pairs.n > 0) & (count > 0)
    n, successes, count = pairs.n[held], pairs.successes[held], count[held]
    sizes, place = _distinct(n)
    return Tally(
        *_histogram(successes, count),
        *_histogram(n - successes, count),
        sizes.astype(np.float64),
        np.bincount(place, count, minlength=len(sizes)),
        np.bincount(place, count * successes, minlength=len(sizes)),
    )


def _histogram(values: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct values above 0 and their counts (0 adds nothing to the likelihood)."""
    some = values > 0
    distinct, place = _distinct(values[some])
    return distinct.astype(np.float64), np.bincount(place, count[some], minlength=len(distinct))


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, place


def rising(shape: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The log of Gamma(shape + count) / (Gamma(shape) shape^count); the arguments broadcast.

    Written so that nothing cancels for a large shape: the error stays near 1e-16 * count, where a
    difference of log-Gammas would lose all digits as the population narrows to a point.
    """
    shape, count = np.broadcast_arrays(shape, count)
    values = np.empty(shape.shape)
    large = shape >= _SERIES_FROM
    values[large] = _rising_by_series(shape[large], count[large])
    values[~large] = _rising_directly(shape[~large], count[~large])
    return values


def _rising_directly(shape: np.ndarray, count: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return gammaln(shape + count) - gammaln(shape) - count * np.log(shape)


def _rising_by_series(shape: np.ndarray, count: np.ndarray) -> np.ndarray:
    total = shape + count
    return (total - 0.5) * np.log1p(count / shape) - count + _stirling(total) - _stirling(shape)


def _stirling(x: np.ndarray) -> np.ndarray:
    inverse = 1 / x
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square / 1260))


def beta_binomial_log_likelihood(
    data: Tally, mean: np.ndarray, concentration: np.ndarray
) -> np.ndarray:
    """Log p(successes | n) under each Beta(mean M, (1 - mean) M), up to a constant.

    The terms count * log(shape) that `rising` omits add up to the binomial likelihood of one common
    rate, so that the limit M -> infinity is smooth.
    """
    distinct = len(data.successes) + len(data.failures) + len(data.n)
    size = max(1, _CELLS // max(distinct, 1))
    parts = [
        _log_likelihood(data, mean[start : start + size], concentration[start : start + size])
        for start in range(0, len(mean), size)
    ]
    return np.concatenate(parts)


def _log_likelihood(data: Tally, mean: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    return (
        rising((mean * concentration)[:, None], data.successes) @ data.successes_count
        + rising(((1 - mean) * concentration)[:, None], data.failures) @ data.failures_count
        - rising(concentration[:, None], data.n) @ data.n_count
        + _times_log(data.total_successes, mean)
        + _times_log(data.total_failures, 1 - mean)
    )


def _times_log(total: float, rate: np.ndarray) -> np.ndarray:
    return total * np.log(rate) if total else np.zeros_like(rate)


class RisingSlopes(NamedTuple):
    """First and second derivatives of `rising` by its shape."""

    first: np.ndarray
    second: np.ndarray


def rising_slopes(shape: np.ndarray | float, count: np.ndarray) -> RisingSlopes:
    """d/d shape and d2/d shape2 of `rising`; the arguments broadcast against each other."""
    shape, count = np.broadcast_arrays(np.asarray(shape, np.float64), count)
    first, second = np.empty(shape.shape), np.empty(shape.shape)
    large = shape >= _SERIES_FROM
    for part, slopes in ((large, _slopes_by_series), (~large, _slopes_directly)):
        first[part], second[part] = slopes(shape[part], count[part])
    return RisingSlopes(first, second)


def _slopes_directly(shape: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import digamma, zeta

    total = shape + count
    share = count / shape
    first = digamma(total) - digamma(shape) - share
    return first, zeta(2.0, total) - zeta(2.0, shape) + share / shape  # zeta(2, x) is trigamma


def _slopes_by_series(shape: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = shape + count
    share = count / shape
    at, to = 1 / shape**2, 1 / total**2
    first = np.log1p(share) - share + share / (2 * total)
    first += (at - to) / 12 - (at * at - to * to) / 120 + (at**3 - to**3) / 252
    second = share * share / total + (to - at) / 2 + (to / total - at / shape) / 6
    second -= (to * to / total - at * at / shape) / 30
    second += (to**3 / total - at**3 / shape) / 42
    return first, second


class LikelihoodSlope(NamedTuple):
    """Gradient (2,) and Hessian (2, 2) of the log likelihood in (logit mean, log concentration)."""

    gradient: np.ndarray
    hessian: np.ndarray


def beta_binomial_slope(data: Tally, mean: float, concentration: float) -> LikelihoodSlope:
    """The derivatives of `log_likelihood` at one point, from the same histograms."""
    size = concentration
    parts = (
        (mean * size, data.successes, data.successes_count),
        ((1 - mean) * size, data.failures, data.failures_count),
        (size, data.n, data.n_count),
    )
    sums = [
        [each @ count for each in rising_slopes(shape, values)] for shape, values, count in parts
    ]
    return chain(
        mean,
        concentration,
        *(np.array(each) for each in zip(*sums, strict=True)),
        won=data.total_successes,
        lost=data.total_failures,
    )


def chain(
    mean: float | np.ndarray,
    concentration: float | np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    *,
    won: float | np.ndarray,
    lost: float | np.ndarray,
) -> LikelihoodSlope:
    """Chain rule from (alpha, beta, M) to (logit mean, log M), for a sum or for each pair."""
    rest, size = 1 - mean, concentration
    spread = mean * rest
    by_mean = size * (first[0] - first[1]) + won / mean - lost / rest
    by_size = mean * first[0] + rest * first[1] - first[2]
    mean_mean = size**2 * (second[0] + second[1]) - won / mean**2 - lost / rest**2
    mean_size = first[0] - first[1] + size * (mean * second[0] - rest * second[1])
    size_size = mean**2 * second[0] + rest**2 * second[1] - second[2]
    return LikelihoodSlope(
        np.array([spread * by_mean, size * by_size]),
        np.array(
            [
                [
                    spread**2 * mean_mean + spread * (rest - mean) * by_mean,
                    spread * size * mean_size,
                ],
                [spread * size * mean_size, size**2 * size_size + size * by_size],
            ]
        ),
    )
