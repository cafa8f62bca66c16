"""Channels one after the other."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Channel, PrivateChannel, is_private
from fedprior.privacy.events import Event


@dataclass(frozen=True)
class Chain(PrivateChannel):
    """Encodes by each member in order; decodes in the opposite order.

    At most one member is private. What comes before it is part of the message; what comes after a
    local one is post-processing. A member after a central one stands between its clip and its
    noise, and may carry a message past the clip (stochastic rounding does): it has to state how far
    (`sensitivity(clip, dimension)`), and the event is that of the noise over that distance. It
    acts at the client alone: what its `decode` might do to the sum before the noise is not stated,
    and is left out. A member that states nothing is refused, and so is a chain inside a chain.

    Protects: what its private member protects. Trusts: whom that member trusts.
    """

    members: tuple[Channel, ...]

    def __post_init__(self) -> None:
        check.require(len(self.members) > 0, "Chain", "members", "at least one channel", ())
        flat = not any(isinstance(member, Chain) for member in self.members)
        check.require(flat, "Chain", "members", "channels, not chains", self.members)
        private = [member for member in self.members if member.private]
        rule = "channels of which at most one is private"
        remedy = "Each private member spends; run them as rounds of their own."
        check.require(len(private) <= 1, "Chain", "members", rule, self.members, remedy)
        for member in self._between():
            if not hasattr(member, "sensitivity"):
                raise PrivacyError(
                    f"Chain: a member between clip and noise must state its sensitivity, got "
                    f"{member!r}. Put it before the clip."
                )

    def _place(self) -> int:
        """The place of the private member, or the chain's length."""
        places = [place for place, member in enumerate(self.members) if member.private]
        return places[0] if places else len(self.members)

    def _between(self) -> tuple[Channel, ...]:
        """Members between the clip and the noise of a central member."""
        return self.members[self._place() + 1 :] if self.private and self.view == "central" else ()

    @property
    def _member(self) -> PrivateChannel | None:
        """The private member, if there is one."""
        return next((member for member in self.members if is_private(member)), None)

    @property
    def private(self) -> bool:
        return self._member is not None

    @property
    def view(self) -> Any:
        """The private member's."""
        return self._member.view if self._member else None

    @property
    def noise(self) -> Any:
        """The private member's."""
        return self._member.noise if self._member else "simulated"

    @property
    def weighted(self) -> bool:
        """Whether a weight passes: always under privacy, where none is sent."""
        return self.private or all(member.weighted for member in self.members)

    def encode(self, message: Array, key: Key) -> Array:
        for place, member in enumerate(self.members):
            message = member.encode(message, _own(key, "encode", place))
        return message

    def add(self, rows: Array) -> Array:
        """The messages' sum, as the private member takes it."""
        return self._member.add(rows) if self._member else super().add(rows)

    def longest(self, dimension: int) -> float | None:
        reach = self._member.longest(dimension) if self._member else None
        for later in self.members[self._place() + 1 :]:
            if reach is None or not hasattr(later, "sensitivity"):
                return None
            reach = later.sensitivity(reach, dimension)
        return reach

    def decode(self, total: Array, key: Key) -> Array:
        last = len(self.members) - len(self._between())
        for place in reversed(range(last)):
            total = self.members[place].decode(total, _own(key, "decode", place))
        return total

    def event(self, dimension: int) -> Event:
        """One round, before any subsampling."""
        member: Any = self._member
        if member is None:
            raise PrivacyError(f"Chain: members must include a private one, got {self.members!r}.")
        event: Event = member.event(dimension)
        if not self._between():
            return event
        reach = member.clip
        for later in self._between():
            reach = later.sensitivity(reach, dimension)  # type: ignore[attr-defined]
        return replace(event, noise=event.noise * member.clip / reach)


def _own(key: Key, purpose: str, place: int) -> Key:
    """A key of each member's own; a stream is simply read on."""
    if isinstance(key, np.random.Generator | random.Secure):
        return key
    return random.fold(key, purpose, place)
