"""EM of a discrete mixture whose messages pass through a channel (ERRATA 24, D4)."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.core import random
from fedprior.estimation.mixture.em import DiscreteMixture, maximize_mixture, mixture_messages
from fedprior.estimation.mixture.summary import center_errors as information_errors
from fedprior.exchange.batch import Rounds


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


State = TypeVar("State")

# Of the simulation behind `center_errors`: 20 runs know a scale to 16%; 2^12 groups.
_RUNS = 20
_CORRECTIONS = 20
_EVEN = 12


def learn(
    unit: np.ndarray,
    size: np.ndarray,
    mixture: DiscreteMixture,
    noise: float,
    radius: float,
    channel: LocalGaussian | Quantize,
    rounds: int,
    sending: Rounds,
) -> DiscreteMixture:
    """Online EM on what the groups send through the channel, in units of the ball."""

    def send(place: int, mixture: DiscreteMixture) -> np.ndarray:
        rows = _rows(unit, size, mixture, noise)
        key = sending.key("encode", place)
        return sending.add(channel, [rows], key, dimension=rows.shape[1]) / len(unit)

    error = _scale(channel) / np.sqrt(len(unit))
    return online(send, partial(_maximized, radius=radius), mixture, rounds, error)


def simulated_center_errors(
    size: np.ndarray,
    start: DiscreteMixture,
    learned: DiscreteMixture,
    noise: float,
    radius: float,
    channel: LocalGaussian | Quantize,
    rounds: int,
    seed: int,
) -> np.ndarray:
    """Root mean squared errors of the centers, (components, d), from reports and public sizes.

    Three parts, by simulation with evenly spread groups. The channel's noise: the scatter of what
    is learned in the same way, from the same start, from groups of the learned mixture. What the
    few rounds leave to go: how far the learned mixture is from the one that would have led to it,
    found by correcting it again and again. The sampling error of the latter: its information.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    draws = random.stream(seed, "init", 1)
    points = qmc.Sobol(start.centers.shape[1] + 1, seed=draws).random_base2(_EVEN)
    some = size[draws.integers(len(size), size=len(points))]
    away = np.sqrt(noise / some)[:, None] * ndtri(np.clip(points[:, 1:], 1e-12, 1 - 1e-12))

    def groups(source: DiscreteMixture) -> np.ndarray:
        return source.centers[_places(source, points[:, 0])] + away

    def again(source: DiscreteMixture, error: float) -> DiscreteMixture:
        unit = groups(source)

        def send(place: int, mixture: DiscreteMixture) -> np.ndarray:
            total = _rows(unit, some, mixture, noise).mean(axis=0)
            return total + error * draws.standard_normal(total.shape)

        return online(send, partial(_maximized, radius=radius), start, rounds, error)

    error = _scale(channel) / np.sqrt(len(size))
    scatter = np.var([again(learned, error).centers for _ in range(_RUNS)], axis=0, ddof=1)
    source = learned
    for _ in range(_CORRECTIONS):
        source = _corrected(source, learned, again(source, 0.0), radius)
    sampling = information_errors(groups(source), noise / some, source)
    sampling *= np.sqrt(len(points) / len(size))
    return np.sqrt(scatter + (source.centers - learned.centers) ** 2 + sampling**2)


def _places(mixture: DiscreteMixture, uniform: np.ndarray) -> np.ndarray:
    """The components that uniform numbers fall into."""
    return np.searchsorted(np.cumsum(mixture.probabilities)[:-1], uniform)


def _corrected(
    source: DiscreteMixture, target: DiscreteMixture, led: DiscreteMixture, radius: float
) -> DiscreteMixture:
    """`source` less how far what it led to is from the target."""
    share = np.maximum(source.probabilities + target.probabilities - led.probabilities, 1e-6)
    centers = _within(source.centers + target.centers - led.centers, radius)
    return DiscreteMixture(centers, share / share.sum())


def _rows(unit: np.ndarray, size: np.ndarray, mixture: DiscreteMixture, noise: float) -> np.ndarray:
    """The groups' messages, one row each."""
    share, weighted = mixture_messages(unit, size, mixture.centers, mixture.probabilities, noise)
    return np.concatenate([share, weighted.reshape(len(unit), -1)], axis=1)


def online(
    send: Callable[[int, State], np.ndarray],
    maximize: Callable[[np.ndarray, float, State], State],
    state: State,
    rounds: int,
    error: float,
) -> State:
    """EM with totals averaged over rounds (Cappe and Moulines' online EM), the server's half.

    Round `place` brings `send(place, state)`, with noise of standard deviation `error` in each
    coordinate; `maximize` sees the running mean of the totals and the standard deviation of its
    noise. Round t enters with share t^-0.6: later rounds count as much as they add, and their noise
    averages out where a plain EM step would take that of one round at face value.
    """
    total, spread = np.zeros(()), 0.0
    for place in range(rounds):
        part = (place + 1) ** -0.6
        total = (1 - part) * total + part * send(place, state)
        spread = float(np.hypot((1 - part) * spread, part * error))
        state = maximize(total, spread, state)
    return state


def _maximized(
    total: np.ndarray, error: float, mixture: DiscreteMixture, *, radius: float
) -> DiscreteMixture:
    """The server's step; centers with too little mass stay, and all are kept within `radius`."""
    count = len(mixture.probabilities)
    mass, moved = total[:count], total[count:].reshape(count, -1)
    step = maximize_mixture(mass, moved, 1.0, centers=mixture.centers)
    centers = np.where((mass > 4 * error)[:, None], step.centers, mixture.centers)
    centers = _within(centers, radius)
    # A component is never lost to noise: its probability keeps one standard error of it.
    probabilities = np.maximum(step.probabilities, min(error, 1 / count))
    return DiscreteMixture(centers, probabilities / probabilities.sum())


def _within(centers: np.ndarray, radius: float) -> np.ndarray:
    norm = np.linalg.norm(centers, axis=1, keepdims=True)
    return centers * (radius / np.maximum(norm, radius))


def _scale(channel: LocalGaussian | Quantize) -> float:
    """Standard deviation, at most, that the channel adds to one coordinate."""
    if isinstance(channel, LocalGaussian):
        return channel.scale
    return float(np.sqrt(np.max(channel.variance())))
