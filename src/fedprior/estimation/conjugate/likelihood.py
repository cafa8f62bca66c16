"""The marginal likelihood of a conjugate population, from histograms of counts and of sizes."""

from typing import Any, NamedTuple

import numpy as np

from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.families.family import CountFamily, Derivatives, common_mean
from fedprior.estimation.statistics import Pairs

_CELLS = 1 << 20  # populations x distinct counts at a time: 8 MB
# Distinct exposures kept apart; beyond, neighbors share a bin with their mean, which changes each
# exposure by less than 1e-3 and their sum not at all.
_MOST_SIZES = 8192


class Tally(NamedTuple):
    """Histograms of the groups, which are all that the likelihood of the population needs.

    The cost of an evaluation depends on the number of distinct values, not of groups or pairs.
    `won` is the number of successes in all groups of each size. Groups without data are ignored.
    """

    successes: np.ndarray
    successes_count: np.ndarray
    failures: np.ndarray
    failures_count: np.ndarray
    n: np.ndarray
    n_count: np.ndarray
    won: np.ndarray
    family: CountFamily = BINOMIAL

    @property
    def total_successes(self) -> float:
        return float(self.won.sum())

    @property
    def total_failures(self) -> float:
        """Infinite for events, which have no opposite."""
        if np.isinf(self.family.top):
            return np.inf
        return float(self.failures @ self.failures_count)

    @property
    def total_size(self) -> float:
        return float(self.n @ self.n_count)

    @property
    def num_groups(self) -> float:
        return float(self.n_count.sum())

    @property
    def num_informative(self) -> float:
        """Groups that carry information on heterogeneity: one trial does not."""
        return float(self.n_count[self.n > self.family.excess].sum())

    @property
    def is_constant(self) -> bool:
        """Whether all outcomes are equal, so that the mean is on its bound."""
        return min(self.total_successes, self.total_failures) == 0

    def common_mean(self) -> tuple[float, float]:
        """The pooled mean and its variance, under Jeffreys' prior."""
        return common_mean(self.family, self.total_successes, self.total_size)


def tally(pairs: Pairs, count: np.ndarray | None = None) -> Tally:
    """Histograms of the groups with data; `count` replaces the pairs' counts (for a fold).

    >>> pairs = Pairs(np.array([0, 2, 5]), np.array([0, 2, 2]), np.array([1, 3, 1]), np.arange(5))
    >>> data = tally(pairs)
    >>> data.successes.tolist(), data.successes_count.tolist(), data.n.tolist()
    ([2.0], [4.0], [2.0, 5.0])
    """
    count = np.asarray(pairs.count if count is None else count, np.float64)
    held = (pairs.n > 0) & (count > 0)
    n, successes, count = pairs.n[held], pairs.successes[held], count[held]
    sizes, size_count, won = _sizes(n, successes, count)
    events = np.isinf(pairs.family.top)
    return Tally(
        *_histogram(successes, count),
        *_histogram(n[:0] if events else n - successes, count[:0] if events else count),
        sizes,
        size_count,
        won,
        pairs.family,
    )


def _histogram(values: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct values above 0 and their counts (0 adds nothing to the likelihood)."""
    some = values > 0
    distinct, place = _distinct(values[some])
    return distinct.astype(np.float64), np.bincount(place, count[some], minlength=len(distinct))


def _sizes(
    n: np.ndarray, successes: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct sizes (in bins, if there are many and they are not whole), groups and successes."""
    sizes, place = _distinct(n)
    if len(sizes) > _MOST_SIZES and n.dtype.kind == "f":
        logs = np.log(sizes)
        bins = ((logs - logs[0]) * (_MOST_SIZES / (logs[-1] - logs[0]))).astype(np.int64)
        _, bins = np.unique(bins, return_inverse=True)
        place = bins[place]
    groups = np.bincount(place, count)
    return np.bincount(place, count * n) / groups, groups, np.bincount(place, count * successes)


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct values and the place of each; small whole numbers by a table, not a sort."""
    whole = values.dtype.kind in "iu" and len(values) > 0
    if not whole or values.max() > 4 * len(values):
        return np.unique(values, return_inverse=True)
    seen = np.bincount(values) > 0
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[values]


def log_likelihood(data: Tally, mean: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """Log p(successes | n) under each population, up to a constant."""
    distinct = len(data.successes) + len(data.failures) + len(data.n)
    size = max(1, _CELLS // max(distinct, 1))
    parts = [
        data.family.log_likelihood(
            data, mean[start : start + size], concentration[start : start + size]
        )
        for start in range(0, len(mean), size)
    ]
    return np.concatenate(parts)


class LikelihoodSlope(NamedTuple):
    """Gradient (2,) and Hessian (2, 2) of the log-likelihood in (link of the mean, log M)."""

    gradient: np.ndarray
    hessian: np.ndarray


def slope_at(data: Tally, mean: float, concentration: float) -> LikelihoodSlope:
    """The derivatives of `log_likelihood` at one point, from the same histograms."""
    found = data.family.derivatives(data, mean, concentration)
    return linked(data.family, mean, concentration, found)


def linked(family: CountFamily, mean: Any, size: Any, by: Derivatives) -> LikelihoodSlope:
    """Chain rule from (mean, M) to (link of the mean, log M), for a sum or for each row."""
    spread = family.variance(mean)
    cross = spread * size * by.mean_size
    return LikelihoodSlope(
        np.array([spread * by.mean, size * by.size]),
        np.array(
            [
                [spread**2 * by.mean_mean + spread * family.bend(mean) * by.mean, cross],
                [cross, size**2 * by.size_size + size * by.size],
            ]
        ),
    )
