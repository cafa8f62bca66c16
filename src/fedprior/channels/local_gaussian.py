"""Gaussian noise added by the client, on a ball."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedprior.channels.central_gaussian import clipped
from fedprior.channels.ranges import bound, spread
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import PrivateChannel
from fedprior.privacy import calibrate, events
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Guarantee, shown


@dataclass(frozen=True, kw_only=True)
class LocalGaussian(PrivateChannel):
    """Projects a message onto the l2 ball of radius `clip` around `center`; adds N(0, scale^2 I).

    Any two messages are then at most 2 * clip apart, from which the analytic Gaussian mechanism
    gives (epsilon, delta) (ERRATA 5-8); `LocalGaussian.calibrated` computes the scale for a budget.
    `center` is a public number or vector, and stands for a message that is not finite. The noise is
    floating-point: for simulation only.

    Protects: one client's whole message (replace one). Trusts: nobody; the client adds the noise.
    """

    clip: float
    scale: float
    center: Any = 0.0

    view: ClassVar[Literal["local"]] = "local"

    def __post_init__(self) -> None:
        check.positive("LocalGaussian", clip=self.clip, scale=self.scale)
        object.__setattr__(self, "center", bound("LocalGaussian", "center", self.center))

    @classmethod
    def calibrated(
        cls, *, clip: float, epsilon: float, delta: float, rounds: int = 1, center: Any = 0.0
    ) -> "LocalGaussian":
        """Return the channel for which `rounds` messages of a client cost (epsilon, delta)."""
        check.positive("LocalGaussian", clip=clip)
        scale = calibrate.gaussian_scale(epsilon, delta, sensitivity=2 * clip, rounds=rounds)
        return cls(clip=clip, scale=scale, center=center)

    def encode(self, message: Array, key: Key) -> Array:
        center = spread("LocalGaussian", self.center, message)
        inside = clipped(message - center, self.clip)
        return center + inside + self.scale * random.normal(key, message.shape)

    def event(self, dimension: int) -> Event:
        """Return the event of one message; visible messages are not amplified by sampling."""
        return events.gaussian(self.scale / self.clip)

    def bits(self, dimension: int) -> float:
        """Return 32 bits per coordinate, for floats."""
        return 32.0 * dimension

    def guarantee(
        self,
        *,
        delta: float,
        rounds: int = 1,
        unit: str = "one client's whole message",
        bits: float | None = None,
    ) -> Guarantee:
        """Return the guarantee of `rounds` messages of one client at `delta`.

        `bits` is their total size; it is computed by default if `center` is a vector.
        """
        if bits is None and np.ndim(self.center) == 1:
            bits = rounds * self.bits(len(self.center))
        epsilon = calibrate.gaussian_epsilon(
            self.scale, delta, sensitivity=2 * self.clip, rounds=rounds
        )
        return Guarantee(
            epsilon=max(epsilon, 1e-12),  # 0 if the noise is so large that delta alone suffices
            delta=delta,
            unit=unit,
            neighbors="replace one",
            trust="nobody (local model)",
            mechanism=f"analytic Gaussian mechanism on a ball of radius {self.clip:g}, noise scale "
            f"{shown(self.scale, digits=6)}, {rounds} message{'s' if rounds > 1 else ''}",
            noise="simulated",
            bits=bits,
        )
