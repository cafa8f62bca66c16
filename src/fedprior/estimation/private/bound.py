"""A lower bound on what shrinking gains, for groups of any rates, from totals of private reports.

Rates p are those of trials, or rates of events as shares of the largest one.

With X the group's own rate, e = X - p, and w = 1 - a, the squared errors of a X + (1 - a) c sum to

    sum (1 - w)^2 e^2 - 2 w (1 - w) e (p - c) + w^2 (p - c)^2.

That they are at most 1 - g times the raw ones, sum e^2, is the sign of a sum that is linear in e^2,
e (p - c) and (p - c)^2. Its expectation is linear in p and p^2, of which the reports give unbiased
totals, and its deviation from their estimate has a variance that they bound as well. Nothing else
about the rates enters: neither a shape of their population nor their independence of the sizes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedprior.estimation.private.posterior import truncated_normal
from fedprior.estimation.private.reports import RateTotals

# One-sided normal quantile at 1%: a bound is to be broken in fewer than 2.5% of the runs, and this
# leaves room for the normal approximation. By simulation, about 1% break (decision 0037).
_QUANTILE = 2.33
# A sum of rare events is skewed: the upper limit of a Poisson count lies about 1 + (z^2 - 1) / 3
# events above its normal limit, and the variance of an event not seen is that of one more.
_SKEWED = 1 + (_QUANTILE**2 - 1) / 3
# The least ratio of the bound to the expected gain. With too much shrinkage, the bound is a small
# part of what is expected; at the largest bound, it may still be half of it.
_LEAST_SHARE = 0.58
_LEAST_GAIN = 0.01
_RATIOS = np.append(0.0, np.geomspace(1e-5, 1e2, 57))[:, None]  # of spread to the noise of a trial
_STEPS = 16  # of bisection: gains are found to 2^-16


class ErrorSum(NamedTuple):
    """Coefficients of e^2, e (p - c) and (p - c)^2 for each size, on the last axis."""

    noise: np.ndarray
    cross: np.ndarray
    spread: np.ndarray

    def linear(self, totals: RateTotals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The expectation as coefficients of 1, p and (p - center)^2, or a lower bound of it.

        E e^2 = V(p) / n = (p - excess p^2) / n. Groups of one trial do not report the square, which
        is at least 0. Counts that were cut lack up to `lost` times p, which is taken off, and in a
        class of sizes E e^2 is bounded by that of the largest or of the least one.
        """
        about, c = totals.center, totals.mean
        size = totals.size if totals.largest is None else totals.largest
        noise = self.noise / np.where(self.noise > 0, size, totals.size)
        bent = totals.law.family.excess * noise
        constant = bent * about**2 + self.spread * (c**2 - about**2)
        rate = noise - 2 * bent * about + 2 * self.spread * (about - c)
        square = self.spread - bent
        square = np.where(totals.law.tells_square(totals.size), square, np.minimum(square, 0))
        lost = totals.lost
        lacking = np.minimum(rate - 2 * about * square, 0) * lost.rate
        lacking = lacking + np.minimum(square, 0) * lost.square
        return constant, rate + lacking / (1 - lost.rate), square


class Shrinkage(NamedTuple):
    """Weights of the center for each size, and lower bounds on the gains, as fractions."""

    center: np.ndarray
    over_raw: float
    over_pooled: float  # NaN where the reports do not exclude a loss


def shrink(totals: RateTotals) -> Shrinkage | None:
    """Weights w = 1 / (1 + n ratio) with the largest expected gain that the bound stands for.

    The bound has to be at least 1%, and 58% of the expected gain; None without such weights. Groups
    of one trial say nothing about how much their rates differ, and keep their own.
    """
    able = totals.law.tells_square(totals.size)
    weight = np.where(able, 1 / (1 + totals.size * _RATIOS), 0.0)

    def against_raw(gain: np.ndarray) -> ErrorSum:
        return ErrorSum(weight * (2 - weight) - gain, 2 * weight * (1 - weight), -(weight**2))

    promised = _largest(totals, against_raw, len(weight))
    shrunk = against_raw(np.zeros((1, 1)))
    expected = value(totals, shrunk) + _negative_spread(totals, shrunk)
    local = value(totals, ErrorSum(np.ones_like(weight), 0 * weight, 0 * weight))
    expected = np.minimum(expected, local)
    kept = (promised >= _LEAST_GAIN) & (promised * local >= _LEAST_SHARE * expected)
    if not kept.any():
        return None
    best = int(np.argmax(np.where(kept, expected, -np.inf)))
    weight = weight[best : best + 1]

    def against_pooled(gain: np.ndarray) -> ErrorSum:
        return ErrorSum(-((1 - weight) ** 2), 2 * weight * (1 - weight), 1 - gain - weight**2)

    pooled = float(_largest(totals, against_pooled, 1)[0])
    return Shrinkage(weight[0], float(promised[best]), pooled if pooled > 0 else np.nan)


def _largest(totals: RateTotals, form: Callable[[np.ndarray], ErrorSum], rows: int) -> np.ndarray:
    """The largest gain in [0, 1) at which the sum's lower bound is not negative, 0 without any."""
    low, high = np.zeros(rows), np.ones(rows)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        holds = lower_bound(totals, form(middle[:, None])) >= 0
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return low


def value(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """The estimated sum; without groups of one trial, it is unbiased."""
    constant, rate, square = form.linear(totals)
    return constant @ totals.number + rate @ totals.first + square @ totals.second


def lower_bound(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """A lower confidence bound of 99% on the sum over the groups at hand.

    The center c comes from the same reports: its error times that of the totals is `sway`.
    """
    _, rate, square = form.linear(totals)
    chance = totals.law.largest_variance / totals.size
    mean_noise = totals.covariance[:, 0] + totals.number * chance
    sway = 2 * np.sqrt(form.spread**2 @ mean_noise * totals.mean_variance)
    reach = (np.abs(rate) * totals.reach[:, 0] + np.abs(square) * totals.reach[:, 1]).max(axis=-1)
    scale = np.sqrt(variance(totals, form) + 2 * sway**2 + reach**2)
    found = value(totals, form) + _negative_spread(totals, form)
    return found - sway - _QUANTILE * scale - _SKEWED * reach


def _negative_spread(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """What the value loses if an estimate of sum spread (p - c)^2 of the wrong sign is taken as 0.

    By chance, the squares of all groups are then estimated too small, by at least as much.
    """
    able = totals.law.tells_square(totals.size)
    weight = np.where(able, np.abs(form.spread), 0.0)
    none = np.zeros_like(weight)
    number = np.maximum(weight @ totals.number, 1e-300)
    lacking = np.maximum(-value(totals, ErrorSum(none, none, weight)) / number, 0.0)
    _, _, square = form.linear(totals)
    return np.minimum((square * able) @ totals.number * lacking, 0.0)


def variance(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """Of the difference between the sum and its estimate: from the reports, and from chance."""
    return _report_variance(totals, form) + _chance_variance(totals, form)


def _report_variance(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    _, rate, square = form.linear(totals)
    first, both, second = totals.covariance.T
    return np.maximum(rate**2 @ first + 2 * (rate * square) @ both + square**2 @ second, 0.0)


def _chance_variance(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """Bound on the variance of the difference if all counts were reported without noise.

    For a group it is 2 (noise - spread)^2 V^2 / (n (n - excess)) + (2 spread - cross)^2 V
    (p - c)^2 / n exactly, where V <= 1/4 (1 for events) makes it linear in p and p^2; for one
    trial, 4 noise^2 V (p - center)^2. The bound is taken one standard error above its estimate.
    """
    n, about, able = totals.size, totals.center, totals.law.tells_square(totals.size)
    largest, pairs = totals.law.largest_variance, np.where(able, totals.law.pairs(n), 1)
    single = 4 * max(about, 1 - about) ** 2 * form.noise**2
    doubled = 2 * largest * (form.noise - form.spread) ** 2
    noise = np.where(able, doubled / pairs * n, single * n)
    spread = np.where(able, largest * (2 * form.spread - form.cross) ** 2 / n, 0.0)
    bound = ErrorSum(noise, 0 * noise, spread)
    most = largest * noise / n + spread * max(totals.mean, 1 - totals.mean) ** 2
    upper = value(totals, bound) + np.sqrt(_report_variance(totals, bound))
    upper = np.clip(upper, 0, most @ totals.number)
    return (np.sqrt(upper) + np.sqrt(_cut_variance(totals, form))) ** 2


def _cut_variance(totals: RateTotals, form: ErrorSum) -> np.ndarray:
    """Bound on the expected square of what cutting counts changes in the estimate of the sum.

    The standard deviations of both parts add up at most (Minkowski).
    """
    _, rate, square = form.linear(totals)
    lost, number = totals.lost, totals.number
    first = (rate - 2 * totals.center * square) ** 2 * lost.rate_squared
    total = totals.first + np.sqrt(totals.covariance[:, 0])
    total = np.clip(total / (1 - lost.rate), 0.0, number)
    return 2 * (first + square**2 * lost.square_squared) @ total


def spread_bound(totals: RateTotals) -> float:
    """An upper confidence bound of 99% on the mean of (p - c)^2 over the groups.

    Groups of one trial do not report it and count with their largest possible value.
    """
    able = totals.law.tells_square(totals.size)
    form = ErrorSum(np.zeros(len(able)), np.zeros(len(able)), np.where(able, -1.0, 0.0))
    farthest = max(totals.mean, 1 - totals.mean) ** 2
    total = -float(lower_bound(totals, form)) + farthest * totals.number[~able].sum()
    return min(max(total / float(totals.number.sum()), totals.mean_variance), farthest)


def heterogeneity(totals: RateTotals) -> tuple[float, float]:
    """Variance of the groups' rates and its standard error: D3's truncated mean (ERRATA D3).

    Sizes count by the precision of their reports, so this is what sizes have in common if the rates
    do not depend on them.
    """
    able = totals.law.tells_square(totals.size)
    precision = np.zeros(len(able))
    precision[able] = 1 / totals.reach[able, 1] ** 2
    form = ErrorSum(
        np.zeros(len(able)), np.zeros(len(able)), precision / (precision @ totals.number)
    )
    found = float(value(totals, form)) + totals.mean_variance
    scale = np.sqrt(float(variance(totals, form)) + 2 * totals.mean_variance**2)
    return truncated_normal(found, float(scale), 0.0, totals.mean * (1 - totals.mean))
