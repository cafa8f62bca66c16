"""The clients of several seeds side by side, for trainings that share one program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, random
from fedprior.core.algorithm import Array
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.engines.grid import Family
from fedprior.engines.pools import padded_pools
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts

Numbers = Mapping[str, float]  # of one point


@dataclass(frozen=True, eq=False)
class Seeds:
    """The federations of several seeds, padded to one shape, with their cohort and channel.

    `identity` separates the private draws of this sweep from those of other runs.
    """

    numbers: tuple[int, ...]
    federations: tuple[Federation, ...]
    cohort: Cohort
    channel: Channel = field(default_factory=Identity)
    identity: Any = ""

    def __post_init__(self) -> None:
        counts = sorted({federation.num_clients for federation in self.federations})
        rule = "the same for every seed"
        check.require(len(counts) == 1, "sweep", "number of clients", rule, counts)
        bounds = list({federation.most_samples for federation in self.federations})
        check.require(len(bounds) == 1, "sweep", "most_samples", rule, bounds)
        if self.channel.noise == "secure":
            raise check.PrivacyError(
                "sweep: noise must be simulated. Every training of a sweep would spend a separate "
                "budget: choose on public data or by simulation, then train once."
            )

    @property
    def num_clients(self) -> int:
        return self.federations[0].num_clients

    def agreement(self, family: Family, point: Numbers, place: int) -> Agreement:
        """Return the agreement of one training; private draws are independent between points."""
        return Agreement(
            algorithm=family.at(point),
            facts=Facts.of(self.federations[place], private=self.channel.private),
            channel=self.channel,
            cohort=self.cohort,
            seed=self.numbers[place],
            identity=[self.identity, {**point, **dict(family.fixed)}],
        )

    @cached_property
    def roots(self) -> Array:
        return jnp.stack([random.root(number) for number in self.numbers])

    @cached_property
    def train(self) -> ClientData:
        """The training samples on the device, with a leading axis of seeds on all but `rows`."""
        return _stack([each.train for each in self.federations])

    @cached_property
    def valid(self) -> ClientData:
        """The validation samples, like `train`."""
        return self.held_out("valid")

    def held_out(self, part: str) -> ClientData:
        """Return the validation or test samples, like `train`.

        Both have the same shape, so that one program serves both (the shape of the test samples is
        known before they are read).
        """
        both = [getattr(each, name) for name in ("valid", "test") for each in self.federations]
        largest = max(split.largest for split in both)
        length = max(len(split.x) for split in both)
        parts = [getattr(each, part) for each in self.federations]
        return _stack(parts, length=length, largest=largest)

    def free(self) -> None:
        """Forget the samples on the device; they are put there again where they are used."""
        for name in ("train", "valid"):
            self.__dict__.pop(name, None)

    def groups(self, size: int) -> list["Seeds"]:
        """Split the seeds into groups of at most `size`."""
        if size >= len(self.numbers):
            return [self]
        return [
            replace(
                self,
                numbers=self.numbers[first : first + size],
                federations=self.federations[first : first + size],
            )
            for first in range(0, len(self.numbers), size)
        ]


def _stack(parts: Sequence[Split], *, length: int = 0, largest: int = 1) -> ClientData:
    length = max([length, 1, *(len(part.x) for part in parts)])
    largest = max([largest, *(part.largest for part in parts)])
    return ClientData(
        x=jnp.asarray(padded_pools([part.x for part in parts], length)),
        y=jnp.asarray(padded_pools([part.y for part in parts], length)),
        start=jnp.asarray(np.stack([part.start for part in parts])),
        size=jnp.asarray(np.stack([part.size for part in parts])),
        rows=jnp.arange(largest, dtype=jnp.int32),
    )
