"""EM of a discrete mixture whose messages pass through a channel (ERRATA 24, D4)."""

from typing import NamedTuple

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.core import random
from fedprior.estimation.mixture_em import Mixture, maximize, messages


def lemma_radius(radius: float, variance: np.ndarray, least: int, dimension: int) -> float:
    """Radius r + sqrt(s) chi_d^-1(1 - beta / m), beta = 1 / (m n) (Lemma 1; ERRATA 24)."""
    from scipy.stats import chi

    number = len(variance)
    miss = 1 / (float(number) ** 2 * least)
    return float(radius + np.sqrt(variance.max()) * chi.isf(miss, dimension))


def message_channel(
    count: int, dimension: int, rounds: int, epsilon: float | None, delta: float, bits: int | None
) -> LocalGaussian | Quantize:
    """For messages (alpha, alpha x mean / ball): alpha in the simplex, |mean / ball| at most 1.

    About (1 / k, 0) such a message has squared norm |alpha|^2 - 1 / k + |alpha|^2 at most, hence
    2 - 1 / k.
    """
    if bits is not None:
        low = (0.0,) * count + (-1.0,) * (count * dimension)
        return Quantize(bits_per_coordinate=bits, low=low, high=1.0)
    assert epsilon is not None
    middle = (1 / count,) * count + (0.0,) * (count * dimension)
    clip = float(np.sqrt(2 - 1 / count))
    return LocalGaussian.calibrated(
        clip=clip, epsilon=epsilon, delta=delta, rounds=rounds + 1, center=middle
    )


class _Total(NamedTuple):
    """A running mean of noisy totals a group, and the standard deviation of its noise."""

    value: np.ndarray
    error: float


def learn(
    unit: np.ndarray,
    size: np.ndarray,
    mixture: Mixture,
    noise: float,
    radius: float,
    channel: LocalGaussian | Quantize,
    rounds: int,
    seed: int,
) -> Mixture:
    """EM with totals averaged over rounds, in units of the ball (Cappe and Moulines' online EM).

    Round t enters with share t^-0.6: later rounds count as much as they add, and their noise
    averages out where a plain EM step would take that of one round at face value.
    """
    count, number = len(mixture.probabilities), len(unit)
    total = _Total(np.zeros(count * (unit.shape[1] + 1)), 0.0)
    for place in range(rounds):
        key = random.stream(seed, "encode", place)
        share, weighted = messages(unit, size, mixture.centers, mixture.probabilities, noise)
        sent = channel.encode(np.concatenate([share, weighted.reshape(number, -1)], axis=1), key)
        fresh = channel.decode(sent.sum(axis=0), key) / number
        part = (place + 1) ** -0.6
        error = _scale(channel) / np.sqrt(number)
        total = _Total(
            (1 - part) * total.value + part * fresh,
            float(np.hypot((1 - part) * total.error, part * error)),
        )
        mixture = _maximized(total, mixture, radius)
    return mixture


def _maximized(total: _Total, mixture: Mixture, radius: float) -> Mixture:
    """The server's step; centers with too little mass stay, and all are kept within `radius`."""
    count = len(mixture.probabilities)
    mass, moved = total.value[:count], total.value[count:].reshape(count, -1)
    step = maximize(mass, moved, 1.0, centers=mixture.centers)
    centers = np.where((mass > 4 * total.error)[:, None], step.centers, mixture.centers)
    norm = np.linalg.norm(centers, axis=1, keepdims=True)
    centers = centers * (radius / np.maximum(norm, radius))
    # A component is never lost to noise: its probability keeps one standard error of it.
    probabilities = np.maximum(step.probabilities, min(total.error, 1 / count))
    return Mixture(centers, probabilities / probabilities.sum())


def _scale(channel: LocalGaussian | Quantize) -> float:
    """Standard deviation, at most, that the channel adds to one coordinate."""
    if isinstance(channel, LocalGaussian):
        return channel.scale
    return float(np.sqrt(np.max(channel.variance())))
