"""How often, and how far apart, a client may take part: a rule, and who enforces it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.check import PrivacyError

_NEVER = -(2**30)  # the last round of a client that has not taken part


@dataclass(frozen=True, kw_only=True)
class Participation:
    """A client takes part in at most `most` of `rounds` rounds, at least `apart` rounds apart.

    Two participations in rounds i < j are j - i apart, so `apart=1` allows consecutive rounds.
    `most` defaults to as many participations as fit.
    """

    rounds: int
    apart: int = 1
    most: int = 0

    def __post_init__(self) -> None:
        owner = "Participation"
        check.count(owner, rounds=self.rounds, apart=self.apart)
        check.count(owner, least=0, most=self.most)
        fitting = math.ceil(self.rounds / self.apart)
        object.__setattr__(self, "most", min(self.most, fitting) or fitting)


@dataclass
class Attendance:
    """Who took part when; `admit` refuses a cohort that breaks the rule (None: no rule).

    `paid` says whether the rounds that are left have been charged.
    """

    rule: Participation | None
    num_clients: int
    paid: bool = False
    taken: np.ndarray = field(init=False)
    last: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        num = self.num_clients if self.rule else 0
        self.taken, self.last = np.zeros(num, np.int32), np.full(num, _NEVER, np.int32)

    def admit(self, round: int, clients: np.ndarray) -> np.ndarray:
        """Note and return the clients of a round; those of a repeated round are noted once."""
        rule = self.rule
        if rule is None:
            return clients
        if round >= rule.rounds:
            raise PrivacyError(
                f"participation: a round must be one of the {rule.rounds} that were paid for, got "
                f"round {round + 1}. Noise that is correlated over rounds cannot be extended."
            )
        new = clients[self.last[clients] != round]
        early = new[round - self.last[new] < rule.apart]
        if len(early):
            raise PrivacyError(
                f"participation: a client must wait {rule.apart} rounds between its turns, got "
                f"rounds {self.last[early[0]]} and {round} for client {early[0]}. Use a cyclic "
                "cohort, or plan for a smaller separation."
            )
        full = new[self.taken[new] >= rule.most]
        if len(full):
            raise PrivacyError(
                f"participation: a client must take part at most {rule.most} times, got client "
                f"{full[0]} once more in round {round}. Plan for more participations."
            )
        self.taken[new] += 1
        self.last[new] = round
        return clients

    def checked(self, draw: Callable[[int], np.ndarray]) -> Callable[[int], np.ndarray]:
        """Return a function that draws the clients of a round and admits them."""
        return lambda round: self.admit(round, draw(round))

    def arrays(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; nothing without a rule."""
        return {"taken": self.taken, "last": self.last} if self.rule else {}

    def restore(self, arrays: dict[str, Any]) -> None:
        """Continue with what `arrays` returned before."""
        if self.rule:
            self.taken, self.last = (np.array(arrays[name]) for name in ("taken", "last"))
