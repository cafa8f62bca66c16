"""What the groups report about their rates under pure local privacy, and the totals it gives."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.estimation.private.posterior import truncated_normal
from fedprior.exchange.batch import Rounds


class RateTotals(NamedTuple):
    """Sums of p and of (p - center)^2 over the groups of each size, estimated without bias.

    Nothing is assumed about the rates: each report is unbiased for its group, so the totals are
    those of the groups at hand, whatever population they come from and however their rates depend
    on the sizes. `covariance` has the variance of `first`, their covariance and the variance of
    `second`, estimated from the reports' own spread about their common mean, which exceeds it in
    expectation. `reach` is how far a single report can move `first` and `second`. Groups of one
    trial say nothing about the square: their `second` is 0, a lower bound. `mean` is the groups'
    average rate, each counted by the precision of its report, and `mean_variance` its variance.
    """

    center: float
    size: np.ndarray
    number: np.ndarray
    first: np.ndarray
    second: np.ndarray
    covariance: np.ndarray  # (sizes, 3)
    reach: np.ndarray  # (sizes, 2)
    mean: float
    mean_variance: float


class RateReports(NamedTuple):
    """Reports of one statistic: the values, their width, and the chance that a group was asked."""

    value: np.ndarray  # NaN where a group was not asked
    width: np.ndarray
    chance: np.ndarray

    def centered(self) -> tuple[float, np.ndarray]:
        """The mean with precision weights, and what each report adds to the sum beyond it."""
        there = np.isfinite(self.value)
        if not there.any():
            return 0.0, np.zeros(len(self.value))
        weight = np.zeros(len(self.value))
        weight[there] = 1 / (self.chance * self.width**2)[there]
        mean = float(weight[there] @ self.value[there] / weight.sum())
        away = np.zeros(len(self.value))
        away[there] = (self.value[there] - mean) / self.chance[there]
        return mean, away


def second_moment(n: np.ndarray, successes: np.ndarray, center: float) -> np.ndarray:
    """W = Z (Z - 1) / (n (n - 1)) - 2 c Z / n + c^2, unbiased for (p - c)^2 (ERRATA D3)."""
    n, successes = n.astype(np.float64), successes.astype(np.float64)
    return successes * (successes - 1) / (n * (n - 1)) - 2 * center * successes / n + center**2


def moment_range(n: np.ndarray, center: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """The range of `second_moment` for groups of `n` >= 2; it shrinks as n grows."""
    n = np.asarray(n, np.float64)
    low = center**2 - (1 + 2 * center * (n - 1)) ** 2 / (4 * n * (n - 1))
    high = np.maximum(np.square(center), np.square(1 - center))
    return low, np.broadcast_to(high, np.shape(low))


def moment_share(n: np.ndarray, successes: np.ndarray, center: float) -> np.ndarray:
    """Every group's `second_moment` as a share of its range."""
    low, high = moment_range(n, center)
    return (second_moment(n, successes, center) - low) / (high - low)


def bit_totals(
    channel: OneBit,
    n: np.ndarray,
    rates: np.ndarray,
    moments: np.ndarray,
    center: float,
) -> RateTotals:
    """Totals from bits: each group has reported its rate or its moment, the other one is NaN.

    Who reports what is drawn at random among the groups of two trials or more, so a report stands
    for 1 / chance groups; a group of one trial reports its rate.
    """
    able = n > 1
    asked = np.isfinite(moments[able]).mean() if able.any() else 0.0
    low, high = moment_range(np.maximum(n, 2), center)
    width = np.broadcast_to(1 / channel.contrast, n.shape)
    first = RateReports(rates, width, np.where(able, 1 - asked, 1.0))
    second = RateReports(moments, (high - low) / channel.contrast, np.where(able, asked, 1.0))
    return _totals(n, first, second, center)


def symbol_totals(
    epsilon: float, n: np.ndarray, successes: np.ndarray, rounds: Rounds
) -> RateTotals:
    """Totals from every group's count of successes by randomized response over n + 1 symbols.

    With probability 1 - keep an answer is uniform over the symbols, where the rate is 1/2 and the
    second moment about 1/2 is 1/12 on average; both are subtracted.
    """
    answers, keep = np.zeros(len(n), np.int64), np.ones(len(n))
    key, noise = rounds.key("encode"), rounds.noise
    sizes, starts = np.unique(np.sort(n), return_index=True)
    for size, places in zip(sizes, np.split(np.argsort(n, kind="stable"), starts[1:]), strict=True):
        channel = KaryResponse(epsilon=epsilon, num_symbols=int(size) + 1, noise=noise)
        answers[places] = rounds.respond(channel, successes[places].astype(np.int64), key)
        keep[places] = channel.keep
    able, whole, center = n > 1, np.ones(len(n)), 0.5
    rate, moment = answers / n - 0.5, np.full(len(n), np.nan)
    moment[able] = second_moment(n[able], answers[able], center) - 1 / 12
    low, high = moment_range(np.maximum(n, 2), center)
    first = RateReports(0.5 + rate / keep, 1 / keep, whole)
    second = RateReports(1 / 12 + moment / keep, (high - low) / keep, whole)
    return _totals(n, first, second, center, _answer_noise(n, keep, rate, np.nan_to_num(moment)))


def _answer_noise(
    n: np.ndarray, keep: np.ndarray, rate: np.ndarray, moment: np.ndarray
) -> tuple[np.ndarray, ...]:
    """(Co)variances of the scaled answers given the counts, estimated without bias.

    With f the statistics less their means over all symbols, and U their covariance there,
    Cov = (1 - keep) (keep f(Z) f(Z)' + U) / keep^2, and E f(Y) f(Y)' = keep f(Z) f(Z)' + (1 - keep)
    U.
    """
    products = (rate**2, rate * moment, moment**2)
    blur = (1 - keep) / keep**2
    parts = zip(products, uniform_moments(n), strict=True)
    first, both, second = (blur * (own + keep * rest) for own, rest in parts)
    return first, both, np.where(n > 1, second, 0.0)


def uniform_moments(n: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Var, Cov and Var of Z / n and of the second moment about 1/2, for Z uniform on 0..n.

    The latter is (d^2 - n / 4) / (n (n - 1)) with d = Z - n / 2, whose square has variance
    (k^2 - 1) (k^2 - 4) / 180 over k = n + 1 symbols.
    """
    k, pairs = n + 1.0, np.maximum(n * (n - 1.0), 1)
    return (n + 2) / (12 * n), 0.0, (k**2 - 1) * (k**2 - 4) / (180 * pairs**2)


def _totals(
    n: np.ndarray,
    first: RateReports,
    second: RateReports,
    center: float,
    noise: tuple[np.ndarray, ...] | None = None,
) -> RateTotals:
    size, place, number = np.unique(n, return_inverse=True, return_counts=True)
    mean, from_mean = first.centered()
    square, from_square = second.centered()

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values, len(size))

    if noise is None:
        noise = (from_mean**2, from_mean * from_square, from_square**2)
    weight = 1 / first.width**2
    widest = np.zeros((len(size), 2))
    for column, sent in enumerate((first, second)):
        asked = np.where(sent.chance > 0, sent.width / np.maximum(sent.chance, 1e-9), np.inf)
        np.maximum.at(widest[:, column], place, asked)
    widest[size == 1, 1] = 0
    # One report more that is as far off as can be: few reports may all be alike.
    unseen = (weight * first.width / np.maximum(first.chance, 1e-9)).max() ** 2
    mean_variance = float((weight**2 @ (noise[0] + 0.25 / n) + unseen) / weight.sum() ** 2)
    return RateTotals(
        center=center,
        size=size,
        number=number,
        first=number * mean + summed(from_mean),
        second=np.where(size > 1, number * square, 0.0) + summed(from_square),
        covariance=np.stack([summed(each) for each in noise], axis=1),
        reach=widest,
        mean=truncated_normal(mean, float(np.sqrt(mean_variance)), 1e-9, 1 - 1e-9)[0],
        mean_variance=mean_variance,
    )
