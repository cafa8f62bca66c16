"""What the groups report about their rates under pure local privacy, and the totals it gives."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.estimation.private.law import TRIALS, CountLaw, Lost
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
    `lost` bounds what counts that were cut lack in both, as multiples of the rate (`CountLaw`).
    Where events have many sizes, `size` is the least one of a class, and `largest` the largest.
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
    law: CountLaw = TRIALS
    lost: Lost = Lost()
    largest: np.ndarray | None = None


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


def second_moment(
    n: np.ndarray, counts: np.ndarray, center: np.ndarray | float, law: CountLaw = TRIALS
) -> np.ndarray:
    """W = Z (Z - 1) / (n (n - 1)) - 2 c Z / n + c^2, unbiased for (p - c)^2 (ERRATA D3).

    For events the first divisor is n^2.
    """
    n, counts = n.astype(np.float64), counts.astype(np.float64)
    return counts * (counts - 1) / law.pairs(n) - 2 * center * counts / n + center**2


def moment_range(
    n: np.ndarray, center: np.ndarray | float, law: CountLaw = TRIALS
) -> tuple[np.ndarray, np.ndarray]:
    """The range of `second_moment` for groups of `n` >= 2; it shrinks as n grows.

    For events, of which few may be expected, the lower end is that of whole counts.
    """
    n = np.asarray(n, np.float64)
    if law is TRIALS:
        low = center**2 - (1 + 2 * center * (n - 1)) ** 2 / (4 * n * (n - 1))
        high = np.maximum(np.square(center), np.square(1 - center))
        return low, np.broadcast_to(high, np.shape(low))
    least = np.floor(0.5 + center * n)  # the count at which W is smallest
    low = np.minimum(*(second_moment(n, least + k, center, law) for k in (0, 1)))
    high = second_moment(n, law.most(n), center, law)
    return low, np.maximum(high, np.square(center))


def moment_share(
    n: np.ndarray, counts: np.ndarray, center: float, law: CountLaw = TRIALS
) -> np.ndarray:
    """Every group's `second_moment` as a share of its range."""
    low, high = moment_range(n, center, law)
    return (second_moment(n, counts, center, law) - low) / (high - low)


def bit_totals(
    channel: OneBit,
    n: np.ndarray,
    rates: np.ndarray,
    moments: np.ndarray,
    center: float,
    law: CountLaw = TRIALS,
) -> RateTotals:
    """Totals from bits: each group has reported its rate or its moment, the other one is NaN.

    Who reports what is drawn at random among the groups of two trials or more, so a report stands
    for 1 / chance groups; a group of one trial reports its rate.
    """
    able = law.tells_square(n)
    asked = np.isfinite(moments[able]).mean() if able.any() else 0.0
    low, high = moment_range(np.where(able, n, 2), center, law)
    width = law.most(n) / n / channel.contrast
    first = RateReports(rates, width, np.where(able, 1 - asked, 1.0))
    second = RateReports(moments, (high - low) / channel.contrast, np.where(able, asked, 1.0))
    return _totals(n, first, second, center, law)


def symbol_totals(
    epsilon: float, n: np.ndarray, counts: np.ndarray, rounds: Rounds, law: CountLaw = TRIALS
) -> RateTotals:
    """Totals from every group's count by randomized response over 0..most, n + 1 symbols of trials.

    With probability 1 - keep an answer is uniform over the symbols; what the statistics are there
    on average is subtracted (1/2 and 1/12 for trials and a center of 1/2).
    """
    answers, keep, most = np.zeros(len(n), np.int64), np.ones(len(n)), law.most(n)
    key, noise = rounds.key("encode"), rounds.noise
    symbols, starts = np.unique(np.sort(most), return_index=True)
    parts = np.split(np.argsort(most, kind="stable"), starts[1:])
    for largest, places in zip(symbols, parts, strict=True):
        channel = KaryResponse(epsilon=epsilon, num_symbols=int(largest) + 1, noise=noise)
        answers[places] = rounds.respond(channel, counts[places].astype(np.int64), key)
        keep[places] = channel.keep
    able, whole, center = law.tells_square(n), np.ones(len(n)), 0.5
    blank = uniform_means(n, center, law)
    rate, moment = answers / n - blank[0], np.full(len(n), np.nan)
    moment[able] = second_moment(n[able], answers[able], center, law) - blank[1][able]
    low, high = moment_range(np.where(able, n, 2), center, law)
    first = RateReports(blank[0] + rate / keep, most / n / keep, whole)
    second = RateReports(blank[1] + moment / keep, (high - low) / keep, whole)
    noise_of = _answer_noise(n, keep, rate, np.nan_to_num(moment), center, law)
    return _totals(n, first, second, center, law, noise_of)


def _answer_noise(
    n: np.ndarray,
    keep: np.ndarray,
    rate: np.ndarray,
    moment: np.ndarray,
    center: float,
    law: CountLaw,
) -> tuple[np.ndarray, ...]:
    """(Co)variances of the scaled answers given the counts, estimated without bias.

    With f the statistics less their means over all symbols, and U their covariance there,
    Cov = (1 - keep) (keep f(Z) f(Z)' + U) / keep^2, and E f(Y) f(Y)' = keep f(Z) f(Z)' + (1 - keep)
    U.
    """
    products = (rate**2, rate * moment, moment**2)
    blur = (1 - keep) / keep**2
    parts = zip(products, uniform_moments(n, center, law), strict=True)
    first, both, second = (blur * (own + keep * rest) for own, rest in parts)
    able = law.tells_square(n)
    return first, np.where(able, both, 0.0), np.where(able, second, 0.0)


def uniform_means(
    n: np.ndarray, center: np.ndarray | float, law: CountLaw
) -> tuple[np.ndarray, np.ndarray]:
    """Means of Z / n and of its second moment for Z uniform on 0..most.

    E Z = most / 2 and E Z (Z - 1) = most (most - 1) / 3.
    """
    most = law.most(n).astype(np.float64)
    rate, pairs = most / (2 * n), _pairs(n, law)
    return rate, most * (most - 1) / (3 * pairs) - 2 * center * rate + center**2


def uniform_moments(
    n: np.ndarray, center: np.ndarray | float, law: CountLaw
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Var, Cov and Var of Z / n and of its second moment, for Z uniform on 0..most.

    The latter is d^2 / pairs + slope d and a constant, with d = Z - most / 2, whose square has
    variance (k^2 - 1) (k^2 - 4) / 180 over k = most + 1 symbols, d itself (k^2 - 1) / 12.
    """
    most = law.most(n).astype(np.float64)
    k, pairs = most + 1, _pairs(n, law)
    slope, single = (most - 1) / pairs - 2 * center / n, (k**2 - 1) / 12
    second = (k**2 - 1) * (k**2 - 4) / (180 * pairs**2) + slope**2 * single
    return single / n**2, slope * single / n, second


def _pairs(n: np.ndarray, law: CountLaw) -> np.ndarray:
    return np.where(law.tells_square(n), law.pairs(n * 1.0), 1.0)


def _totals(
    n: np.ndarray,
    first: RateReports,
    second: RateReports,
    center: float,
    law: CountLaw,
    noise: tuple[np.ndarray, ...] | None = None,
) -> RateTotals:
    size, largest, place, number = law.classes(n)
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
    able = law.tells_square(size)
    widest[~able, 1] = 0
    # One report more that is as far off as can be: few reports may all be alike.
    unseen = (weight * first.width / np.maximum(first.chance, 1e-9)).max() ** 2
    chance = law.largest_variance / n
    mean_variance = float((weight**2 @ (noise[0] + chance) + unseen) / weight.sum() ** 2)
    return RateTotals(
        center=center,
        size=size,
        number=number,
        first=number * mean + summed(from_mean),
        second=np.where(able, number * square, 0.0) + summed(from_square),
        covariance=np.stack([summed(each) for each in noise], axis=1),
        reach=widest,
        mean=truncated_normal(mean, float(np.sqrt(mean_variance)), 1e-9, 1 - 1e-9)[0],
        mean_variance=mean_variance,
        law=law,
        lost=_lost(n, place, len(size), law),
        largest=largest,
    )


def _lost(n: np.ndarray, place: np.ndarray, number: int, law: CountLaw) -> Lost:
    """The largest bounds on what is lost by cutting in each class."""
    worst = np.zeros((4, number))
    for each, own in zip(worst, law.lost(n, law.most(n)), strict=True):
        np.maximum.at(each, place, own)
    return Lost(*worst)
