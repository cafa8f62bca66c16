"""What nodes answer, and what a run needs of whoever carries requests to them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedprior.core.algorithm import PyTree
from fedprior.sites.roster import Roster


@dataclass(frozen=True)
class Answer:
    """A node's answer for the clients that it was asked for, or why there is none (`failed`)."""

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
        return {str(name): str(why)[:80] for name, why in known if name in self.clients}

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
        """What was sent in the name of clients that this node was not asked for."""
        own = {str(numbers[name]) for name in self.clients}
        return sorted({place.split("/")[0] for place in self.arrays} - own)


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
