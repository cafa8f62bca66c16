"""The roster: the clients of a run, their numbers and the public keys of their sites."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprior.core import check, formats
from fedprior.core.files import read_json, write_json
from fedprior.exchange.facts import Facts

_OWNER = "roster"
_ALIKE = ("shape", "target_shape", "inputs", "targets", "classes", "encoder")


@dataclass(frozen=True)
class Roster:
    """Name -> number, and name -> public key of the client's site.

    Without a key nobody can tell who answers, as in simulations. A client that was forgotten keeps
    its number, which nobody else gets, and is not asked again.
    """

    numbers: Mapping[str, int]
    keys: Mapping[str, str | None]
    forgotten: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str], keys: Mapping[str, str | None] | None = None) -> "Roster":
        """Clients in the order of their numbers."""
        numbers = {name: number for number, name in enumerate(names)}
        return cls(numbers, {name: (keys or {}).get(name) for name in numbers})

    @classmethod
    def read(cls, path: Path) -> "Roster":
        document = read_json(path)
        formats.check("roster", document.get("format"), source=path)
        forgotten = frozenset(document["forgotten"])
        return cls(document["numbers"], document["keys"], forgotten)

    def write(self, path: Path) -> None:
        parts = {"numbers": dict(self.numbers), "keys": dict(self.keys)}
        write_json(
            path,
            {"format": formats.NUMBERS["roster"], **parts, "forgotten": sorted(self.forgotten)},
            indent=1,
        )

    def forget(self, name: str) -> "Roster":
        """The roster without a client's key; its number stays empty."""
        check.choice(_OWNER, "client", name, self.numbers)
        keys = {**self.keys, name: None}
        return Roster(self.numbers, keys, self.forgotten | {name})

    @property
    def active(self) -> list[str]:
        """Clients that may be asked."""
        return [name for name in self.numbers if name not in self.forgotten]


def enrolled(cards: Mapping[str, Mapping[str, Any]], most_samples: int) -> tuple[Roster, Facts]:
    """The roster and the facts of the sites with these cards, by the names of their files.

    `most_samples` is the public bound of a private run; 0 takes what the cards say.
    """
    names: dict[str, str] = {}
    first_file, first = next(iter(cards.items()))
    for file, card in cards.items():
        for field in _ALIKE:
            sentence = f"{file} has another {field} than {first_file}. Make both from one app."
            check.expect(card[field] == first[field], _OWNER, sentence)
        for name in card["clients"]:
            sentence = f"two sites have a client {name!r}: {file} is the second. Rename one."
            check.expect(name not in names, _OWNER, sentence)
            names[name] = card["key"]
    sizes = [card["largest"] for card in cards.values()]
    largest = most_samples or (None if None in sizes else max(sizes))
    classes = first["classes"]
    facts = Facts(
        num_clients=len(names),
        shape=first["shape"],
        num_classes=None if classes is None else len(classes),
        most_samples=largest,
        target_shape=first["target_shape"],
        inputs=first["inputs"],
        targets=first["targets"],
        name="sites",
    )
    return Roster.of(names, names), facts
