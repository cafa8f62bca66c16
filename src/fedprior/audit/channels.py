"""Attacks on single channels: worst-case neighbors, distinguished by the exact likelihood ratio.

The channel is treated as a black box that turns messages into releases. Each `attack_*` takes the
channel to audit, so that tests can pass a broken one.
"""

import math
from typing import Any

import numpy as np

from fedprior.audit.bound import detects, lower_bound
from fedprior.audit.finding import Family, Finding
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random
from fedprior.core.algorithm import Key
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Relation
from fedprior.privacy.scores import MeanScore

# Distance of a canary's message from its range, so that a missing clip is detected immediately.
FAR = 1000.0
# Coordinates of a message; the canary changes all of them equally.
DIMENSION = 4

Scores = tuple[np.ndarray, np.ndarray]


def attack_central(
    channel: CentralGaussian, *, draws: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Distinguish an empty sum from the sum of a single canary of norm `clip`."""
    direction = _direction(DIMENSION)
    canary = channel.encode(FAR * channel.clip * direction, random.stream(seed, "encode"))

    def score(world: int, total: np.ndarray) -> np.ndarray:
        totals = np.broadcast_to(total, (draws, DIMENSION))
        released = channel.decode(totals.copy(), random.stream(seed, "decode", world))
        along = released @ direction / channel.clip
        return (along - 0.5) / channel.noise_multiplier**2

    scores = score(0, canary), score(1, np.zeros(DIMENSION))
    claimed = epsilon([(channel.event(DIMENSION), 1)], delta=delta)
    name = f"CentralGaussian, {channel.noise} noise, multiplier {channel.noise_multiplier:g}"
    asked: Any = {"delta": delta, "confidence": confidence, "relation": "add-remove"}
    return distinguished(name, scores, claimed, **asked)


def attack_distributed(
    channel: DistributedGaussian, *, draws: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Distinguish a canary's opposite messages in a sum from which `missing` clients are absent."""
    direction = _direction(DIMENSION)

    def score(world: int, sign: float) -> np.ndarray:
        secure = channel.noise == "secure"
        key: Key = random.secure() if secure else random.stream(seed, "encode", world)
        others = np.zeros((draws, DIMENSION))
        units = channel.units(others + sign * FAR * channel.clip * direction, key)
        for _ in range(channel.fewest - 1):
            units = units + channel.units(others, key)
        released = channel.decode(channel.total(units), key)
        return 2 * (released @ direction) / channel.clip / channel.noise_multiplier**2

    scores = score(0, 1.0), score(1, -1.0)
    claimed = epsilon([(channel.event(DIMENSION), 1)], delta=delta, relation="replace-one")
    name = (
        f"DistributedGaussian, {channel.noise} noise, multiplier {channel.noise_multiplier:g}, "
        f"{channel.missing} of {channel.size} absent"
    )
    return distinguished(name, scores, claimed, delta=delta, confidence=confidence)


def attack_local(
    channel: LocalGaussian, *, draws: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Distinguish messages at opposite ends of the ball around the center."""
    center = np.asarray(channel.center, np.float64)
    direction = _direction(center.size if center.ndim else DIMENSION)
    center = np.broadcast_to(center, direction.shape)

    def score(world: int, sign: float) -> np.ndarray:
        message = center + sign * FAR * channel.clip * direction
        messages = np.broadcast_to(message, (draws, len(direction)))
        released = channel.encode(messages.copy(), random.stream(seed, "encode", world))
        along = (released - center) @ direction
        return 2 * channel.clip * along / channel.scale**2

    scores = score(0, 1.0), score(1, -1.0)
    claimed = channel.guarantee(delta=delta).epsilon
    name = f"LocalGaussian, clip {channel.clip:g}, noise scale {channel.scale:.4g}"
    return distinguished(name, scores, claimed, delta=delta, confidence=confidence)


def attack_one_bit(channel: OneBit, *, draws: int, seed: int, confidence: float) -> Finding:
    """Distinguish messages beyond the two ends of every coordinate's range."""
    low, high = box(channel)
    width = high - low

    def score(world: int, message: np.ndarray) -> np.ndarray:
        messages = np.broadcast_to(message, (draws, len(low)))
        received = channel.encode(messages.copy(), random.stream(seed, "encode", world))
        # One coordinate is reported; the others are at the middle of their range.
        return channel.epsilon * np.sign(((received - (low + high) / 2) / width).sum(axis=-1))

    scores = score(0, high + FAR * width), score(1, low - FAR * width)
    claimed = channel.guarantee(noise="simulated").epsilon
    name = f"OneBit, epsilon {channel.epsilon:g}, {len(low)} coordinates"
    return distinguished(name, scores, claimed, confidence=confidence)


def attack_response(channel: KaryResponse, *, draws: int, seed: int, confidence: float) -> Finding:
    """Distinguish two symbols; by symmetry, all pairs are equally hard."""

    def score(world: int, symbol: int) -> np.ndarray:
        messages = np.tile(np.eye(channel.num_symbols)[symbol], (draws, 1))
        received = channel.encode(messages, random.stream(seed, "encode", world))
        answer = received.argmax(axis=-1)
        return channel.epsilon * ((answer == 0) - 1.0 * (answer == 1))

    scores = score(0, 0), score(1, 1)
    claimed = channel.guarantee(noise="simulated").epsilon
    name = f"KaryResponse, epsilon {channel.epsilon:g}, {channel.num_symbols} symbols"
    return distinguished(name, scores, claimed, confidence=confidence)


def attack_score(mean: MeanScore, *, draws: int, seed: int, confidence: float) -> Finding:
    """Distinguish a client with the best score from one without a score, or with the worst."""
    others = [0.5, 0.9, math.nan]
    end = math.nan if mean.relation == "add-remove" else -math.inf  # no score, or a diverged model

    def released(world: int, score: float) -> np.ndarray:
        key = None if mean.noise == "secure" else random.stream(seed, "decode", world)
        scores = np.array([score, *others])
        return np.array([mean.release(scores, key) for _ in range(draws)])

    scores = released(0, 7.0), released(1, end)
    name = f"MeanScore, {mean.noise} noise, epsilon {mean.epsilon:g}, {mean.relation}"
    claimed = epsilon([(mean.event, 1)], delta=0.0, relation=mean.relation)
    asked: Any = {"confidence": confidence, "relation": mean.relation}
    return distinguished(name, scores, claimed, **asked)


def _direction(dimension: int) -> np.ndarray:
    return np.full(dimension, 1 / math.sqrt(dimension))


def box(channel: OneBit) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of every coordinate's range."""
    low, high = np.asarray(channel.low, np.float64), np.asarray(channel.high, np.float64)
    dimension = max(low.size, high.size) if low.ndim or high.ndim else DIMENSION
    return np.broadcast_to(low, dimension), np.broadcast_to(high, dimension)


def distinguished(
    name: str,
    scores: Scores,
    claimed: float,
    *,
    confidence: float,
    delta: float = 0.0,
    relation: Relation = "replace-one",
    family: Family = "channels",
    detail: str | None = None,
) -> Finding:
    """The finding of scores from two worlds, as many of each, at the epsilon that is claimed."""
    number = len(scores[0])
    return Finding(
        family=family,
        mechanism=name,
        detects=detects(number, claimed, delta=delta, confidence=confidence),
        claimed=claimed,
        lower_bound=lower_bound(*scores, delta=delta, confidence=confidence).epsilon,
        delta=delta,
        relation=relation,
        confidence=confidence,
        detail=detail or f"worst-case neighbors distinguished, {number:,} releases of each",
    )
