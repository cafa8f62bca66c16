"""Randomized responses, one bit or one of k symbols: pure epsilon-DP, valid for release."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedprior.channels.ranges import box, spread
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import PrivateChannel
from fedprior.privacy import events
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Guarantee, Noise

# Draws are multiples of 2**-53 on the host and of 2**-23 on a device (integers there have 32 bits).
# Probabilities are rounded to the coarser grid, on the safe side, so that their ratios are at most
# e^epsilon for the actual draws and not only in exact arithmetic. Above epsilon 15, answers are
# more private than claimed.
_GRID = 2.0**23
_ROUNDED = 1 + 1e-4  # tolerance for an honest upload computed in float32
_LEAST_EPSILON = 1e-5  # below this, nothing of the message is left on the grid


def _check_epsilon(owner: str, epsilon: float) -> None:
    check.positive(owner, epsilon=epsilon)
    rule = f"at least {_LEAST_EPSILON:g}"
    check.require(epsilon >= _LEAST_EPSILON, owner, "epsilon", rule, epsilon)


def _pure(epsilon: float, unit: str, mechanism: str, noise: Noise, bits: float) -> Guarantee:
    """The guarantee of one randomized response, which holds against every observer."""
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        unit=unit,
        neighbors="replace one",
        trust="nobody (local model)",
        mechanism=mechanism,
        noise=noise,
        bits=bits,
    )


@dataclass(frozen=True, kw_only=True)
class OneBit(PrivateChannel):
    """Reports one random coordinate s_j of the message as a bit B ~ Bern(1/2 + k (t - 1/2)).

    Here t = (s_j - low) / (high - low) and k = (e^epsilon - 1) / (e^epsilon + 1). The upload is
    mid + d (high - low) (B - 1/2) / k for coordinate j, with mid = (low + high) / 2, and mid for
    the other coordinates: a vector whose mean is the message (ERRATA D3). Coordinates outside their
    range are clipped first, and NaN counts as the middle of it: its bit is a fair coin. j does not
    depend on the data, so only one bit is revealed.

    Protects: one client's whole message (replace one, pure epsilon). Trusts: nobody; the client
    draws the bit.
    """

    epsilon: float
    low: Any = 0.0
    high: Any = 1.0
    noise: Noise = "simulated"

    view: ClassVar[Literal["local"]] = "local"

    def __post_init__(self) -> None:
        _check_epsilon("OneBit", self.epsilon)
        check.choice("OneBit", "noise", self.noise, get_args(Noise))
        low, high = box("OneBit", self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def contrast(self) -> float:
        """k, the dependence of the bit on the value: from 0 (a fair coin) to 1 (no noise)."""
        return 1 - 2 * self._least

    @property
    def _least(self) -> float:
        """The smallest probability of either answer, 1 / (e^epsilon + 1), rounded up.

        Two more units of the grid cover the rounding error of the exponential.
        """
        return (math.ceil(_GRID / (math.exp(min(self.epsilon, 700.0)) + 1)) + 2) / _GRID

    def probability(self, share: Array) -> Array:
        """Return P(bit = 1) for a value at the fraction `share` (t) of its range."""
        xp = share.__array_namespace__()
        share = xp.where(xp.isnan(share), 0.5, share)
        chance = 0.5 + self.contrast * (xp.clip(share, 0, 1) - 0.5)
        return xp.clip(chance, self._least, 1 - self._least)

    def encode(self, message: Array, key: Key) -> Array:
        xp = message.__array_namespace__()
        dimension = message.shape[-1]
        draws = random.uniform(key, (*message.shape[:-1], 2))
        chosen = xp.minimum(xp.floor(draws[..., :1] * dimension), dimension - 1)
        hot = xp.arange(dimension) == chosen
        low, high = (spread("OneBit", end, message) for end in (self.low, self.high))
        share = (message - low) / (high - low)
        bit = draws[..., 1:] < self.probability(share)
        away = dimension * (high - low) * (bit - 0.5) / self.contrast
        return (low + high) / 2 + xp.where(hot, away, 0)

    def longest(self, dimension: int) -> float:
        low, high = (np.broadcast_to(end, (dimension,)) for end in (self.low, self.high))
        away = dimension * float(np.max(high - low)) / (2 * self.contrast)
        return (float(np.linalg.norm((low + high) / 2)) + away) * _ROUNDED

    def event(self, dimension: int) -> Event:
        """Return the event of one report; visible reports are not amplified by sampling."""
        return events.response(self.epsilon)

    def bits(self, dimension: int) -> float:
        """Return the bits of a report: the bit itself and the index of its coordinate."""
        return 1.0 + math.ceil(math.log2(dimension))

    def guarantee(
        self, *, noise: Noise, dimension: int = 1, unit: str = "one client's whole message"
    ) -> Guarantee:
        """Return the pure epsilon guarantee of one message."""
        return _pure(self.epsilon, unit, "one randomized bit", noise, self.bits(dimension))


@dataclass(frozen=True, kw_only=True)
class KaryResponse(PrivateChannel):
    """Keeps a symbol in 0..k-1 with probability c, else draws one uniformly from all k.

    Here c = (e^epsilon - 1) / (e^epsilon + k - 1). A message is a one-hot vector; the upload is
    (one-hot(answer) - (1 - c) / k) / c, whose mean is the message, so uploads add up to an unbiased
    histogram. `respond` does the same for integer symbols.

    Protects: one client's symbol (replace one, pure epsilon). Trusts: nobody; the client draws the
    answer.
    """

    epsilon: float
    num_symbols: int
    noise: Noise = "simulated"

    view: ClassVar[Literal["local"]] = "local"

    def __post_init__(self) -> None:
        _check_epsilon("KaryResponse", self.epsilon)
        check.choice("KaryResponse", "noise", self.noise, get_args(Noise))
        check.count("KaryResponse", least=2, num_symbols=self.num_symbols)
        rule = f"larger for {self.num_symbols:,} symbols, because no answer would ever be kept"
        check.require(self.keep > 0, "KaryResponse", "epsilon", rule, self.epsilon)

    @property
    def keep(self) -> float:
        """c, rounded down such that the ratio holds for draws on the grid."""
        rare = math.floor(_GRID / self.num_symbols) / _GRID
        often = math.ceil(_GRID / self.num_symbols) / _GRID
        odds = math.exp(min(self.epsilon, 700.0)) * rare - often
        return max(math.floor(_GRID * (odds / (1 + odds))) - 1, 0) / _GRID

    def matrix(self) -> np.ndarray:
        """Return P(answer | symbol), one row per symbol."""
        keep, num = self.keep, self.num_symbols
        return keep * np.eye(num) + (1 - keep) / num

    def respond(self, symbols: Array, key: Key) -> Array:
        """Draw one answer for each of the integer `symbols`; those out of range are clipped to it.

        No answer lies outside the range: it would say that nothing was randomized.
        """
        xp = symbols.__array_namespace__()
        whole = symbols.dtype.kind in "iub"  # NaN or 1.5 would be sent as it is
        check.require(whole, "KaryResponse", "symbols", "integers", str(symbols.dtype))
        chance, other = random.uniform_and_integer(key, symbols.shape, self.num_symbols)
        symbols = xp.clip(symbols, 0, self.num_symbols - 1)
        return xp.where(chance < self.keep, symbols, xp.asarray(other).astype(symbols.dtype))

    def encode(self, message: Array, key: Key) -> Array:
        xp = message.__array_namespace__()
        rule = f"one-hot of length {self.num_symbols}"
        fits = message.shape[-1] == self.num_symbols
        check.require(fits, "KaryResponse", "message", rule, message.shape)
        answer = self.respond(xp.argmax(message, axis=-1), key)
        hot = xp.arange(self.num_symbols) == answer[..., None]
        return (hot.astype(message.dtype) - (1 - self.keep) / self.num_symbols) / self.keep

    def longest(self, dimension: int) -> float:
        rest = (1 - self.keep) / self.num_symbols
        squares = (1 - rest) ** 2 + (self.num_symbols - 1) * rest**2
        return math.sqrt(squares) / self.keep * _ROUNDED

    def event(self, dimension: int) -> Event:
        """Return the event of one report; visible reports are not amplified by sampling."""
        return events.response(self.epsilon)

    def bits(self, dimension: int | None = None) -> float:
        """Return the bits of an answer; `dimension` is ignored."""
        return float(math.ceil(math.log2(self.num_symbols)))

    def guarantee(self, *, noise: Noise, unit: str = "one client's symbol") -> Guarantee:
        """Return the pure epsilon guarantee of one message."""
        mechanism = f"randomized response over {self.num_symbols} symbols"
        return _pure(self.epsilon, unit, mechanism, noise, self.bits())
