"""Unbiased quantization to a few bits per coordinate."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.channels.ranges import box, spread
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import Channel


@dataclass(frozen=True, kw_only=True)
class Quantize(Channel):
    """Rounds each coordinate at random to one of 2^bits levels from low to high, without bias.

    With b = (high - low) / 2, the variance of the rounding is at most (b / (2^bits - 1))^2 (paper
    Thm 2.1; ERRATA 6: `bits` is per coordinate, bits * d per message). Coordinates outside their
    range are clipped first and are then biased (ERRATA 4). `low` and `high` are numbers, or one
    number per coordinate.

    Without privacy, an engine sends a message's weight as its last coordinate; set `weighted` in
    that case. A weight is public, a count or 1, may lie outside the range of the values, and is
    sent unchanged, at 32 bits.

    Protects: nothing; it saves bits. Trusts: the party that computes the sum, with every message.
    """

    bits_per_coordinate: int
    low: Any
    high: Any
    weighted: bool = False

    def __post_init__(self) -> None:
        check.count("Quantize", bits_per_coordinate=self.bits_per_coordinate)
        rule = "at most 24, beyond which float32 levels merge"
        fits = self.bits_per_coordinate <= 24
        check.require(fits, "Quantize", "bits_per_coordinate", rule, self.bits_per_coordinate)
        low, high = box("Quantize", self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def encode(self, message: Array, key: Key) -> Array:
        if not self.weighted:
            return self._round(message, key)
        xp = message.__array_namespace__()
        values, weight = message[..., :-1], message[..., -1:]
        return xp.concatenate([self._round(values, key), weight], axis=-1)

    def _round(self, values: Array, key: Key) -> Array:
        xp = values.__array_namespace__()
        low, high = (spread("Quantize", end, values) for end in (self.low, self.high))
        step = (high - low) / (2**self.bits_per_coordinate - 1)
        place = (xp.clip(values, low, high) - low) / step
        level = xp.floor(place)
        level = level + (random.uniform(key, values.shape) < place - level)
        return xp.clip(low + step * level, low, high)  # rounding errors stay inside the range

    def variance(self) -> Any:
        """Return the largest variance of the rounding in each coordinate, sigma_q^2."""
        half = (np.asarray(self.high) - np.asarray(self.low)) / 2
        return (half / (2**self.bits_per_coordinate - 1)) ** 2

    def sensitivity(self, clip: float, dimension: int) -> float:
        """Return the largest l2 norm after rounding of a message of norm at most `clip`.

        Each coordinate changes by less than the distance between levels, and clipping to a range
        that contains 0 never increases the norm.
        """
        low, high = np.asarray(self.low), np.asarray(self.high)
        inside = bool(((low <= 0) & (high >= 0)).all())
        rule = "a range that contains 0, because a clipped message is rounded"
        check.require(inside, "Quantize", "low and high", rule, (self.low, self.high))
        width = np.broadcast_to((high - low) / (2**self.bits_per_coordinate - 1), (dimension,))
        return clip + float(np.sqrt((width**2).sum()))

    def bits(self, dimension: int) -> float:
        """Return the bits of a message of `dimension` coordinates, including 32 for a weight."""
        weight = 32.0 if self.weighted else 0.0
        return weight + self.bits_per_coordinate * (dimension - self.weighted)
