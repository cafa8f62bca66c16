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

    The whole message is clipped as one vector, all blocks together (ERRATA 49), and the noise is
    added whether or not anybody took part (D7). `noise` is `simulated` (keyed, reproducible, not
    valid for release) or `secure` (drawn by OpenDP from the operating system's randomness).

    Protects: one client's whole contribution (add or remove; twice as far for replace-one).
    Trusts: whoever computes the sum and adds the noise; they see every message.
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
        xp = message.__array_namespace__()
        norm = xp.linalg.vector_norm(message, axis=-1, keepdims=True)
        return message * (self.clip / xp.maximum(norm, self.clip))  # defined at norm = 0

    def add(self, rows: Array) -> Array:
        """The messages' sum, for `decode`: exact with secure noise (`secure.add_exactly`)."""
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
        """One round, before any subsampling."""
        return events.gaussian(self.noise_multiplier)
