"""What nodes answer, and what a run needs of whoever carries requests to them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedprior.core.algorithm import PyTree
from fedprior.sites.roster import Roster

_LONGEST, _MOST = 80, 3  # letters of a word, and words, that a node may put into a list of faults


@dataclass(frozen=True)
class Answer:
    """A node's answer for the clients that it was asked for, or why there is none (`failed`).

    A node may say anything: facts are read here, and what is not as it should be is left out.
    """

    clients: tuple[str, ...]
    failed: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def who(self) -> str:
        return ", ".join(self.clients) or "a node that has not said who it is"

    @property
    def failed_clients(self) -> dict[str, str]:
        """Clients of the node that failed alone, and answers for clients that were not asked."""
        failed = self.facts.get("failed_clients", {})
        known = failed.items() if isinstance(failed, dict) else ()
        return {str(name): shown(why) for name, why in known if name in self.clients}

    @property
    def present(self) -> list[str]:
        """Clients that a node says it holds."""
        given = self.facts.get("clients")
        names = given if isinstance(given, list) else []
        return list(dict.fromkeys(name for name in names if isinstance(name, str)))

    def mask(self, name: str) -> bytes | None:
        """The public key of a client's masks."""
        given = self.facts.get("masks")
        try:
            key = bytes.fromhex(given[name]) if isinstance(given, dict) else b""
        except (KeyError, TypeError, ValueError):
            return None
        return key if len(key) == 32 else None

    def scores(self, method: str) -> dict[str, float]:
        """Scores of a method by client, of those that were asked."""
        given = self.facts.get("scores")
        own = given.get(method) if isinstance(given, dict) else None
        known = own.items() if isinstance(own, dict) else ()
        return {
            name: float(score)
            for name, score in known
            if name in self.clients and isinstance(score, float)
        }

    def by_client(self, numbers: Mapping[str, int]) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """(number, arrays) of every client that was asked and answered."""
        for name in self.clients:
            begin = f"{numbers[name]}/"
            own = {
                place.removeprefix(begin): array
                for place, array in self.arrays.items()
                if place.startswith(begin)
            }
            if own:
                yield numbers[name], own

    def strangers(self, numbers: Mapping[str, int]) -> list[str]:
        """Some of what was sent in the name of clients that this node was not asked for."""
        own = {str(numbers[name]) for name in self.clients}
        return [
            shown(name) for name in sorted({k.split("/")[0] for k in self.arrays} - own)[:_MOST]
        ]


def shown(word: Any) -> str:
    """What a node said, fit for a line of a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(word)[:_LONGEST])


class Nodes(Protocol):
    """The nodes that hold the clients; `masks` are public keys of secure sums, by number."""

    roster: Roster
    masks: dict[int, bytes]

    @property
    def present(self) -> Collection[str]:
        """Clients whose node is connected now."""
        ...

    def greet(self) -> list[str]:
        """Ask nodes that are new for their clients; returns why some have none."""
        ...

    def ask(
        self,
        do: str,
        clients: Mapping[str, Mapping[str, Any]],
        arrays: PyTree | Callable[[tuple[str, ...]], PyTree],
        *,
        most: int,
        **facts: Any,
    ) -> Iterator[Answer]:
        """The answers for these clients, as they come, until all are there or time is up.

        `arrays` go to every node, or are made for the clients of each. `most` bounds the bytes of
        one client's answer. A node that says nothing has failed.
        """
        ...
