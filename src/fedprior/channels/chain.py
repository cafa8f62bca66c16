"""Composition of channels."""

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
    """Encodes with each member in order; decodes in reverse order.

    At most one member is private. Members before it are part of the computation of the message;
    members after a local one are post-processing. A member after a central one acts between its
    clip and its noise and may lengthen a message beyond the clip (stochastic rounding does). It
    must therefore implement `sensitivity(clip, dimension)`, and the event uses the noise divided by
    that norm. Such a member acts only at the client: its `decode` would change the sum before the
    noise in an unknown way, and is skipped. Members without `sensitivity` are refused in that
    position, and so are nested chains.

    Protects: what its private member protects. Trusts: whom its private member trusts.
    """

    members: tuple[Channel, ...]

    def __post_init__(self) -> None:
        check.require(len(self.members) > 0, "Chain", "members", "at least one channel", ())
        flat = not any(isinstance(member, Chain) for member in self.members)
        check.require(flat, "Chain", "members", "channels, not chains", self.members)
        private = [member for member in self.members if member.private]
        rule = "channels of which at most one is private"
        remedy = "Every private member spends budget; use them in separate rounds."
        check.require(len(private) <= 1, "Chain", "members", rule, self.members, remedy)
        if self._member is not None and self._member.rule is not None:
            raise PrivacyError(
                f"Chain: members must release rounds independently, got {self._member!r}. Use it "
                "by itself."
            )
        if self.view == "masked":
            raise PrivacyError(
                f"Chain: members must not need masks, got {self._member!r}, whose uploads are "
                "whole units of a grid. Use it by itself."
            )
        for member in self._between():
            if not hasattr(member, "sensitivity"):
                raise PrivacyError(
                    f"Chain: a member between clip and noise must state its sensitivity, got "
                    f"{member!r}. Move it before the clip."
                )

    def _place(self) -> int:
        """The index of the private member, or the length of the chain if there is none."""
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
        """The view of the private member."""
        return self._member.view if self._member else None

    @property
    def noise(self) -> Any:
        """The noise of the private member."""
        return self._member.noise if self._member else "simulated"

    @property
    def weighted(self) -> bool:
        """Whether a weight passes through; always true if private, when no weight is sent."""
        return self.private or all(member.weighted for member in self.members)

    def encode(self, message: Array, key: Key) -> Array:
        for place, member in enumerate(self.members):
            message = member.encode(message, _member_key(key, "encode", place))
        return message

    def add(self, rows: Array) -> Array:
        """Sum the messages as the private member does."""
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
            total = self.members[place].decode(total, _member_key(key, "decode", place))
        return total

    def event(self, dimension: int) -> Event:
        """Return the event of one round, before sampling."""
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


def _member_key(key: Key, purpose: str, place: int) -> Key:
    """The key of the member at `place`; all members share a stream."""
    if isinstance(key, np.random.Generator | random.Secure):
        return key
    return random.fold(key, purpose, place)
