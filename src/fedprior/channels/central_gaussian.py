"""Gaussian noise on the sum of clipped messages."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import PrivateChannel
from fedprior.privacy import events, secure
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Noise


@dataclass(frozen=True, kw_only=True)
class CentralGaussian(PrivateChannel):
    """Clips each message to l2 norm `clip`; adds N(0, (clip * noise_multiplier)^2 I) to the sum.

    All blocks of the message are clipped together, as one vector (ERRATA 49), and the noise is
    added even to an empty sum (D7). `noise` is `simulated` (keyed, reproducible, not valid for
    release) or `secure` (drawn by OpenDP from the operating system's randomness).

    Protects: one client's whole contribution (add-remove; twice the sensitivity for replace-one).
    Trusts: the party that computes the sum and adds the noise, which sees every message.
    """

    clip: float
    noise_multiplier: float
    noise: Noise = "simulated"

    view: ClassVar[Literal["central"]] = "central"

    def __post_init__(self) -> None:
        check.positive("CentralGaussian", clip=self.clip, noise_multiplier=self.noise_multiplier)
        check.choice("CentralGaussian", "noise", self.noise, ("simulated", "secure"))
        if self.noise == "secure":
            secure.require_opendp()

    def encode(self, message: Array, key: Key) -> Array:
        return clipped(message, self.clip)

    def add(self, rows: Array) -> Array:
        """Sum the messages for `decode`, exactly with secure noise (`secure.add_exactly`)."""
        if self.noise == "secure":
            return secure.add_exactly(rows, clip=self.clip)
        return super().add(rows)

    def longest(self, dimension: int) -> float:
        return secure.reach(self.clip, dimension)

    def decode(self, total: Array, key: Key) -> Array:
        if self.noise == "secure":
            return secure.add_gaussian(
                total, clip=self.clip, noise_multiplier=self.noise_multiplier
            )
        return total + self.clip * self.noise_multiplier * random.normal(key, total.shape)

    def event(self, dimension: int) -> Event:
        """Return the event of one round, before sampling."""
        return events.gaussian(self.noise_multiplier)


def clipped(message: Array, clip: float) -> Array:
    """Return the message, shortened to l2 norm `clip` if it is longer; 0 if it is not finite."""
    xp = message.__array_namespace__()
    finite = xp.all(xp.isfinite(message), axis=-1, keepdims=True)
    message = xp.where(finite, message, 0)  # not a product: NaN * 0 is NaN
    norm = xp.linalg.vector_norm(message, axis=-1, keepdims=True)
    return message * (clip / xp.maximum(norm, clip))  # defined at norm = 0
