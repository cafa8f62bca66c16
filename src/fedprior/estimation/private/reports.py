"""What the groups report about their rates under pure local privacy, and its likelihood."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core.algorithm import Key

LogLikelihood = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of (mean, share)


class Bits(NamedTuple):
    """`ones` among `number` one-bit reports of statistics that lie in [low, high]."""

    low: float
    high: float
    number: int
    ones: int


class ReportEvidence(NamedTuple):
    """log p(reports | population), up to a constant, and a range that holds the population's mean.

    The population enters by its mean and by its variance as a `share` of the largest one that rates
    with this mean can have, mean (1 - mean).
    """

    log_likelihood: LogLikelihood
    low: float
    high: float


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


def size_class(n: np.ndarray) -> np.ndarray:
    """The largest of 2, 3, .., 32, 40, 50, .. (steps of a quarter) that is at most n.

    Groups of a class share the range of its smallest size, so that some 80 classes serve all sizes.
    """
    classes = [*range(2, 33)]
    while classes[-1] < max(int(n.max(initial=2)), 2):
        classes.append(classes[-1] * 5 // 4)
    known = np.array(classes)
    return known[np.searchsorted(known, n, side="right") - 1]


def mean_bits(channel: OneBit, n: np.ndarray, successes: np.ndarray, key: Key) -> Bits:
    """Every group's rate as one bit."""
    ones = _ones(channel, successes / n, key)
    return Bits(0.0, 1.0, len(n), int(ones.sum()))


def moment_bits(
    channel: OneBit, n: np.ndarray, successes: np.ndarray, center: float, key: Key
) -> list[Bits]:
    """Every group's `second_moment` as one bit, the reports of one size class together."""
    kinds = size_class(n)
    low, high = moment_range(kinds, center)
    share = (second_moment(n, successes, center) - low) / (high - low)
    ones = _ones(channel, share, key)
    bits = []
    for kind in np.unique(kinds):
        inside = kinds == kind
        first, last = moment_range(kind, center)
        bits.append(Bits(float(first), float(last), int(inside.sum()), int(ones[inside].sum())))
    return bits


def _ones(channel: OneBit, share: np.ndarray, key: Key) -> np.ndarray:
    """The bits that the channel sends of values at `share` of their range."""
    return channel.encode(share[:, None], key)[:, 0] > 0.5


def bits_evidence(
    channel: OneBit, mean: Bits, moments: list[Bits], center: float
) -> ReportEvidence:
    """Likelihood of bits about the mean and about E (p - center)^2: binomial, exactly.

    A report's bit depends on the population only through the expectation of its statistic.
    """

    def log_likelihood(average: np.ndarray, share: np.ndarray) -> np.ndarray:
        moment = share * average * (1 - average) + (average - center) ** 2
        total = np.broadcast_to(_log_bits(channel, mean, average), moment.shape).copy()
        for bits in moments:
            total += _log_bits(channel, bits, moment)
        return total

    return ReportEvidence(log_likelihood, *mean_range(channel, mean))


def mean_range(channel: OneBit, bits: Bits) -> tuple[float, float]:
    """The mean within 7 standard deviations, inside [0, 1]."""
    guess = 0.5 + (bits.ones / bits.number - 0.5) / channel.contrast
    reach = 7 * 0.5 / channel.contrast / np.sqrt(bits.number)
    return max(min(guess, 1.0) - reach, 0.0), min(max(guess, 0.0) + reach, 1.0)


def _log_bits(channel: OneBit, bits: Bits, value: np.ndarray) -> np.ndarray:
    one = channel.probability((value - bits.low) / (bits.high - bits.low))
    return bits.ones * np.log(one) + (bits.number - bits.ones) * np.log1p(-one)


def symbol_evidence(
    epsilon: float, n: np.ndarray, successes: np.ndarray, key: Key
) -> ReportEvidence:
    """Every group's count of successes through randomized response over its n + 1 symbols.

    Likelihood: the beta-binomial law of the count, seen through the channel.
    """
    answers: list[tuple[KaryResponse, np.ndarray]] = []
    guess = reach = 0.0
    for size in np.unique(n):
        channel = KaryResponse(epsilon=epsilon, num_symbols=int(size) + 1)
        symbols = channel.respond(successes[n == size].astype(np.int64), key)
        counts = np.bincount(symbols, minlength=channel.num_symbols)
        answers.append((channel, counts))
        average = counts @ np.arange(size + 1) / size / counts.sum()
        guess += counts.sum() * (0.5 + (average - 0.5) / channel.keep) / len(n)
        reach += counts.sum() * (7 * 0.5 / channel.keep / len(n)) ** 2

    def log_likelihood(average: np.ndarray, share: np.ndarray) -> np.ndarray:
        total = np.zeros(np.broadcast_shapes(average.shape, share.shape))
        for channel, counts in answers:
            law = beta_binomial(channel.num_symbols - 1, average, share)
            blurred = channel.keep * law + (1 - channel.keep) / channel.num_symbols
            total += np.log(blurred) @ counts
        return total

    low = max(min(guess, 1.0) - np.sqrt(reach), 0.0)
    return ReportEvidence(log_likelihood, low, min(max(guess, 0.0) + np.sqrt(reach), 1.0))


def beta_binomial(n: int, mean: np.ndarray, share: np.ndarray) -> np.ndarray:
    """P(Z = 0..n) on a new last axis, for rates Beta-distributed with `mean` and variance share.

    By rising factorials of the mean in steps of share / (1 - share), which hold at share 0 (the
    binomial) as well.
    """
    from scipy.special import gammaln

    mean, share = np.broadcast_arrays(mean, share)
    step = (share / (1 - share))[..., None] * np.arange(n)
    zero = np.zeros((*mean.shape, 1))
    up = np.concatenate([zero, np.cumsum(np.log(mean[..., None] + step), axis=-1)], axis=-1)
    down = np.concatenate([zero, np.cumsum(np.log(1 - mean[..., None] + step), axis=-1)], axis=-1)
    whole = np.log1p(step).sum(axis=-1)[..., None]
    z = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(z + 1) - gammaln(n - z + 1)
    return np.exp(ways + up + down[..., ::-1] - whole)
