"""Gaussian noise that is correlated over rounds, on the sum of clipped messages."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from fedprior.channels.central_gaussian import clipped
from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Cohort, PrivateChannel
from fedprior.privacy import secure, secure_matrix
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Noise
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import Banded, Buffered, Strategy, charge, whole_run


@dataclass(frozen=True, kw_only=True)
class MatrixGaussian(PrivateChannel):
    """Clips each message to l2 norm `clip`; releases x + C^-1 z with z ~ N(0, (clip z_0)^2 I).

    x are the sums of all `participation.rounds` rounds, C the `strategy`, z_0 `noise_multiplier`.
    Releasing x + C^-1 z is post-processing of C x + z, one Gaussian mechanism for the whole run: if
    a client takes part as `participation` allows, its messages move C x by at most clip * s, s the
    sensitivity of C. It holds for any cohorts that obey the rule, known or not, and for messages
    that depend on earlier releases (Denisov et al. 2022). The engine enforces the rule and charges
    the whole run before its first round. A client that is absent sends zeros (add-remove), and
    whoever else takes part stays the same. With a banded strategy and cyclic Poisson cohorts, not
    known to the adversary, sampling amplifies (Choquette-Choo et al. 2023).

    `noise` is `simulated` (keyed, reproducible, not valid for release) or `secure`: C x + z is then
    formed on the integers, with discrete Gaussian noise, and C inverted afterwards. This needs a
    banded strategy. What is kept for later rounds, noise buffers or clear sums, is secret.

    Protects: one client's whole contribution to the run (add-remove; twice the sensitivity for
    replace-one). Trusts: the party that computes the sums, adds the noise and keeps the buffers.
    """

    clip: float
    noise_multiplier: float
    strategy: Strategy
    participation: Participation
    noise: Noise = "simulated"

    view: ClassVar[Literal["central"]] = "central"

    def __post_init__(self) -> None:
        owner = "MatrixGaussian"
        check.positive(owner, clip=self.clip, noise_multiplier=self.noise_multiplier)
        for name, kind in (("strategy", Banded | Buffered), ("participation", Participation)):
            given = getattr(self, name)
            check.require(isinstance(given, kind), owner, name, f"a {kind}", given)
        check.choice(owner, "noise", self.noise, get_args(Noise))
        if self.noise == "secure":
            secure.require_opendp()
            if not isinstance(self.strategy, Banded):
                raise PrivacyError(
                    f"{owner}: strategy must be banded for secure noise, got {self.strategy!r}. "
                    "The sums of a buffered one cannot be formed exactly."
                )
            secure_matrix.check_coefficients(owner, self.strategy.coefficients)

    @property
    def rule(self) -> Participation:
        return self.participation

    def encode(self, message: Array, key: Key) -> Array:
        return clipped(message, self.clip)

    def longest(self, dimension: int) -> float:
        return secure.reach(self.clip, dimension)

    def decode(self, total: Array, key: Key) -> Array:
        raise PrivacyError(
            "MatrixGaussian: a sum must be released with the noise of the rounds before it. "
            "Call release(total, key, memory), with memory = begin(dimension) in the first round."
        )

    def add(self, rows: Array) -> Array:
        """Sum the messages for `release`, exactly with secure noise (`secure.add_exactly`)."""
        return (
            secure.add_exactly(rows, clip=self.clip)
            if self.noise == "secure"
            else super().add(rows)
        )

    def begin(self, dimension: int) -> PyTree:
        """Return the noise buffers, or the last sums, before the first round: zeros."""
        if isinstance(self.strategy, Banded) and self.noise == "secure":
            return secure_matrix.begin(dimension, bands=self.strategy.bands)
        return np.zeros((self.strategy.num_buffers, dimension), np.float32)

    def release(self, total: Array, key: Key, memory: PyTree) -> tuple[Array, PyTree]:
        """Return the noisy sum of the next round, and the memory after it."""
        if isinstance(self.strategy, Banded) and self.noise == "secure":
            return secure_matrix.release(
                total,
                memory,
                coefficients=self.strategy.coefficients,
                clip=self.clip,
                noise_multiplier=self.noise_multiplier,
            )
        noise, memory = self.strategy.step(random.normal(key, total.shape), memory)
        return total + self.clip * self.noise_multiplier * noise, memory

    def event(self, dimension: int) -> Event:
        """Return the event of the whole run, whoever took part when."""
        return whole_run(self.strategy, self.participation, self.noise_multiplier)

    def charge(self, cohort: Cohort, num_clients: int, dimension: int) -> tuple[Event, int]:
        """Return the event of the whole run under `cohort`, and how often it is composed."""
        parts = (self.strategy, self.participation, self.noise_multiplier)
        return charge(*parts, cohort, num_clients)
