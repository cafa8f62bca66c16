"""Gaussian noise in shares, one from each client, on a sum that nobody sees without it."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedprior.channels.central_gaussian import clipped
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Cohort, PrivateChannel
from fedprior.privacy import events, secure
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Noise

_OWNER = "DistributedGaussian"
_TAIL = 16  # share scales that the grid leaves room for; noise is larger with probability 1e-57
_MOST = 2**24 - 1  # units of a simulated upload, which float32 represents exactly
# Least standard deviation s of a share, in units of the grid. A sum of n such discrete Gaussians is
# itself one up to a factor of exp(tau) in probability, tau = 10 sum_k exp(-2 pi^2 s^2 k / (k + 1))
# over k < n (Kairouz, Liu and Steinke 2021): here tau < exp(-10^8). The delta of such noise differs
# from that of a continuous Gaussian by a relative 2 / s^2 at most, here 2^-23 (computed).
_FINEST = 2.0**12


@dataclass(frozen=True, kw_only=True)
class DistributedGaussian(PrivateChannel):
    """Clips each message to l2 norm `clip`; every client adds its share of the noise to its own.

    An upload is a vector of whole units of a common grid: the clipped message, truncated toward
    zero, plus discrete Gaussian noise of scale clip * noise_multiplier / sqrt(size - missing). The
    uploads of a round are added under masks (Bonawitz et al. 2017), so that the server learns their
    sum only. Unless more than `missing` of the `size` clients of a round are absent, the sum has
    noise of a scale of at least clip * noise_multiplier (the distributed discrete Gaussian
    mechanism, Kairouz, Liu and Steinke 2021); of `total_scale` if nobody is.

    `noise` is `simulated` (keyed and rounded to the grid, for rehearsals in which uploads are not
    masked; not valid for release) or `secure` (drawn by OpenDP at the client, from the operating
    system's randomness; masked uploads are made by `units`).

    Protects: one client's whole contribution, in every round (replace-one: who takes part is known,
    and a client that is absent takes its noise with it). Trusts: that at most `missing` clients of
    a round are absent, add no noise or tell others what they sent, and that the server follows the
    protocol of the masks. Does not hide who takes part or is absent. Nobody can clip a masked
    upload: a client that sends anything else than its message can spoil the sum.
    """

    clip: float
    noise_multiplier: float
    size: int
    missing: int
    noise: Noise = "simulated"

    view: ClassVar[Literal["masked"]] = "masked"

    def __post_init__(self) -> None:
        check.positive(_OWNER, clip=self.clip, noise_multiplier=self.noise_multiplier)
        check.count(_OWNER, size=self.size)
        check.count(_OWNER, least=0, missing=self.missing)
        rule, remedy = f"below size ({self.size})", "At least one client has to add noise."
        check.require(self.missing < self.size, _OWNER, "missing", rule, self.missing, remedy)
        check.choice(_OWNER, "noise", self.noise, ("simulated", "secure"))
        secure.check_cohort_size(self.size)
        if self.share < _FINEST * self.unit:
            raise PrivacyError(
                f"{_OWNER}: noise_multiplier must give each client a share of at least "
                f"{_FINEST:g} units of the grid, {_FINEST * self.unit:g}, got {self.share:g}. "
                "Raise it: so little noise would hide nobody."
            )
        if self.noise == "secure":
            secure.require_opendp()

    @property
    def fewest(self) -> int:
        """The fewest clients whose sum may be released."""
        return self.size - self.missing

    @property
    def share(self) -> float:
        """Standard deviation of the noise that one client adds."""
        return self.clip * self._multiplier

    @property
    def total_scale(self) -> float:
        """Standard deviation of the noise on the sum if nobody is absent."""
        return self.share * math.sqrt(self.size)

    @property
    def unit(self) -> float:
        """The unit of the grid, a power of 2; uploads practically stay below 2^24 units."""
        return secure.grid(self._bound)

    @property
    def _bound(self) -> float:
        return self.clip + _TAIL * self.share

    @property
    def _multiplier(self) -> float:
        """The noise multiplier of one client's share, rounded up."""
        return self.noise_multiplier / math.sqrt(self.fewest) * (1 + 2.0**-50)

    def _reach(self, dimension: int) -> float:
        """How far one message may move the sum, in units, including the rounding of the clip."""
        return secure.reach(self.clip, dimension) / self.unit

    def _truncated(self, message: Array) -> Array:
        """The clipped message in whole units; truncation never increases its norm."""
        return message.__array_namespace__().trunc(clipped(message, self.clip) * (1 / self.unit))

    def encode(self, message: Array, key: Key) -> Array:
        """Return what `units` does with simulated noise, in the unit of the message."""
        if self.noise == "secure":
            raise PrivacyError(
                f"{_OWNER}: an upload with secure noise must be made in whole units, to be masked. "
                "Call units(message, random.secure()) at the client."
            )
        xp = message.__array_namespace__()
        scale = self._multiplier * self._reach(message.shape[-1])
        noise = xp.round(scale * random.normal(key, message.shape))
        return xp.clip(self._truncated(message) + noise, -_MOST, _MOST) * self.unit

    def units(self, message: Array, key: Key) -> np.ndarray:
        """Return the upload of a message in whole units of the grid (int64), to be masked.

        With secure noise, `key` is `random.secure()`; every call draws anew.
        """
        if self.noise == "simulated":
            return self.to_units(self.encode(message, key))
        if not isinstance(key, random.Secure):
            raise PrivacyError(
                f"{_OWNER}: secure noise must be drawn from the operating system, got {key!r}. "
                "Pass random.secure()."
            )
        whole = self._truncated(np.asarray(message)).astype(np.int64)
        reach = self._reach(whole.shape[-1])
        mechanism = secure.discrete_gaussian(whole.size, reach, self._multiplier)
        return np.asarray(mechanism(whole.ravel().tolist()), np.int64).reshape(whole.shape)

    def to_units(self, upload: Array) -> np.ndarray:
        """Return an upload with simulated noise in whole units of the grid, exactly."""
        return np.rint(np.asarray(upload, np.float64) / self.unit).astype(np.int64)

    def add(self, rows: Array) -> Array:
        """Sum uploads with simulated noise exactly, as integers (`secure.add_exactly`)."""
        if self.noise == "secure":
            raise PrivacyError(
                f"{_OWNER}: uploads with secure noise must be added under their masks. "
                "Call total(units) with the sum of the units."
            )
        return secure.add_exactly(rows, clip=self._bound)

    def total(self, units: np.ndarray) -> np.ndarray:
        """Return a sum of uploads in units as `decode` takes it."""
        return secure.parts(units)

    def decode(self, total: Array, key: Key) -> Array:
        """Return the sum as it is, in float32: its noise is in it.

        The same sum of units gives the same bits, whether it was added here or under masks.
        """
        return secure.rounded(total, clip=self._bound) if total.dtype == np.int32 else total

    def event(self, dimension: int) -> Event:
        """Return the event of one round, if no more than `missing` clients are absent."""
        return events.gaussian(self.noise_multiplier)

    def charge(self, cohort: Cohort, num_clients: int, dimension: int) -> tuple[Event, None]:
        """Return the event under `cohort`, which must be of `size` clients; they are known."""
        event: Event = cohort.amplify(self.event(dimension), num_clients)
        hides = event.sampling == "poisson" or (event.sampling == "fixed" and event.amplified)
        sizes = {cohort.capacity(num_clients), cohort.expected_size(num_clients)}
        if hides or cohort.cycle != 1 or sizes != {self.size}:
            raise PrivacyError(
                f"{_OWNER}: cohort must have {self.size} known clients in every round and claim no "
                f"amplification, got {cohort!r} of {num_clients} clients. Use "
                f"FixedSize(size={self.size}), or Everyone() for as many clients."
            )
        return event, None
