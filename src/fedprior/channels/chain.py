"""Channels one after the other."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprior.core import check, random
from fedprior.core.algorithm import Array, Key
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Channel
from fedprior.privacy.events import Event


@dataclass(frozen=True)
class Chain:
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
    def private(self) -> bool:
        return any(member.private for member in self.members)

    @property
    def view(self) -> Any:
        """The private member's."""
        return getattr(self.members[self._place()], "view", None) if self.private else None

    @property
    def noise(self) -> str:
        """The private member's."""
        place = self._place()
        return getattr(self.members[place], "noise", "simulated") if self.private else "simulated"

    @property
    def weighted(self) -> bool:
        """Whether a weight passes: always under privacy, where none is sent."""
        return self.private or all(getattr(member, "weighted", True) for member in self.members)

    def encode(self, message: Array, key: Key) -> Array:
        for place, member in enumerate(self.members):
            message = member.encode(message, _own(key, "encode", place))
        return message

    def add(self, rows: Array) -> Array:
        """The messages' sum, as the private member takes it."""
        own = getattr(self.members[self._place()], "add", None) if self.private else None
        return own(rows) if own else rows.__array_namespace__().sum(rows, axis=0)

    def decode(self, total: Array, key: Key) -> Array:
        last = len(self.members) - len(self._between())
        for place in reversed(range(last)):
            total = self.members[place].decode(total, _own(key, "decode", place))
        return total

    def event(self, dimension: int) -> Event:
        """One round, before any subsampling."""
        if not self.private:
            raise PrivacyError(f"Chain: members must include a private one, got {self.members!r}.")
        member: Any = self.members[self._place()]
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
