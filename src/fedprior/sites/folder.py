"""A site: the folder of a node, with the samples, memories and models of the clients it holds.

    node.key, node.pub       the node's key
    site.toml                the site's own settings
    card.json                what the coordinator needs to know of it
    agreement.json           what the site has accepted
    data/NUMBER.safetensors  samples, one file per client
    memory/TOKEN/            what clients keep between rounds
    model/                   personal models after the last round; scores.json beside them
    errors.log               why an answer was refused; the server learns the error's type alone

Nothing but what the agreement says leaves the folder.
"""

import contextlib
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check, formats, lock
from fedprior.core.files import make_folder, read_json, write_atomically, write_json
from fedprior.data.federation import Federation
from fedprior.exchange import trees
from fedprior.sites.document import Document

_KIND, FORMAT = "samples", formats.NUMBERS["samples"]
_PARTS = ("train", "valid", "test")
_PATIENCE = 30.0  # seconds to wait for a request that the node is answering
_SETTINGS = """# The settings of this site. They are its own: nothing here comes from the server.

# Send each client's test score to the server after the last round. Nothing protects it.
share_scores = {share_scores}
"""
_OF_RUN = ("agreement.json", "data", "memory", "model", "scores.json", "errors.log", "card.json")

Samples = Mapping[str, tuple[np.ndarray, np.ndarray]]  # x and y of train, valid and test


class NotAccepted(check.PrivacyError):
    """The server runs an agreement that this site has not accepted."""


@dataclass(frozen=True)
class Site:
    """Clients by name, their samples, where memories are kept, and what was accepted.

    `accepted` is None in a simulation, which takes what it is given and has no `key`.
    """

    folder: Path
    clients: tuple[str, ...]
    samples: Callable[[str], Samples]
    share_scores: bool
    accepted: Document | None = None
    key: Path | None = None

    def agreed(self, token: str, document: str | None) -> Document:
        """The document of the run that a request names."""
        if self.key is None and document is not None:  # a simulation
            return _parsed(document)
        if self.accepted is None or self.accepted.token != token:
            raise NotAccepted("the server's agreement is not the one that was accepted here.")
        self.accepted.check_code()
        return self.accepted

    def sign(self, payload: bytes) -> bytes:
        """The site's signature; empty in a simulation."""
        if self.key is None or not self.key.is_file():
            return b""
        from fedprior.sites import keys

        return keys.sign(self.key, payload)

    def log(self, error: Exception) -> None:
        """Note for the site's own eyes why it refused or failed.

        A disk that is full raises nothing: the words of an error must not reach the server.
        """
        path = self.folder / "errors.log"
        with (
            contextlib.suppress(Exception),
            path.open("a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            line = " ".join(f"{type(error).__name__}: {error}".split())
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}\n")


def open_site(folder: Path) -> Site:
    """The site in a folder that `make_site` made."""
    folder = Path(folder)
    if not (folder / "card.json").is_file():
        raise ValueError(
            f"site: {folder} is no site with data. Make one with fedprior deploy site."
        )
    card, agreement = read_card(folder / "card.json"), folder / "agreement.json"
    settings = tomllib.loads((folder / "site.toml").read_text())
    names = tuple(card["clients"])

    def samples(name: str) -> Samples:
        packed = trees.read(
            folder / "data" / f"{names.index(name)}.safetensors", kind=_KIND, format=FORMAT
        )
        parts = {part: (packed.arrays[f"{part}/x"], packed.arrays[f"{part}/y"]) for part in _PARTS}
        return parts

    return Site(
        folder=folder,
        clients=names,
        samples=samples,
        share_scores=settings.get("share_scores") is True,
        accepted=Document.read(agreement) if agreement.is_file() else None,
        key=folder / "node.key",
    )


def read_card(path: Path) -> dict[str, Any]:
    """What a site tells of itself."""
    card = read_json(path)
    formats.check("card", card.get("format"), source=path)
    return card


@contextlib.contextmanager
def held_site(folder: Path) -> Iterator[Site]:
    """The site in a folder, which nobody else changes, or leaves, in the meantime."""
    open_site(folder)  # raises before a lock is put where no site is
    with lock.owned(folder, patience=_PATIENCE):
        yield open_site(folder)


def simulated_site(folder: Path, clients: Federation, partition: int, partitions: int) -> Site:
    """Every `partitions`-th client of a federation, for a simulation; scores are shared."""
    numbers = {str(name): k for k, name in enumerate(clients.clients)}
    names = [str(name) for name in clients.clients[partition::partitions]]

    def samples(name: str) -> Samples:
        return samples_of(clients, numbers[name])

    make_folder(folder)
    return Site(folder, tuple(names), samples, share_scores=True)


def samples_of(clients: Federation, number: int) -> Samples:
    """One client's rows."""
    parts = {part: getattr(clients, part).client(number) for part in _PARTS}
    return {part: (np.asarray(own.x), np.asarray(own.y)) for part, own in parts.items()}


def make_site(
    folder: Path, clients: Federation, *, private: bool, share_scores: bool = False
) -> dict[str, Any]:
    """Write the samples, the card and, where there are none, key and settings; returns the card.

    The card of a private run says nothing of how many samples there are.
    """
    from fedprior.sites import keys

    folder = Path(folder)
    with lock.owned(folder, patience=_PATIENCE):
        folder.chmod(0o700)  # its owner's alone
        make_folder(folder / "data")
        if not (folder / "node.key").is_file():
            keys.make_node_key(folder / "node.key")
        if not (folder / "site.toml").is_file():
            text = _SETTINGS.format(share_scores=str(share_scores).lower())
            write_atomically(folder / "site.toml", text.encode())
        _write_samples(folder / "data", clients)
        card = _card(clients, keys.public_key(folder / "node.key"), private)
        write_json(folder / "card.json", card, indent=1)
    return card


def _write_samples(folder: Path, clients: Federation) -> None:
    """One file per client; those of clients that were here before are deleted."""
    for path in folder.glob("*.safetensors"):
        path.unlink()
    for number in range(clients.num_clients):
        own = samples_of(clients, number)
        arrays = {part: {"x": x, "y": y} for part, (x, y) in own.items()}
        trees.write(folder / f"{number}.safetensors", arrays, kind=_KIND, format=FORMAT)


def _card(clients: Federation, key: str, private: bool) -> dict[str, Any]:
    return {
        "format": formats.NUMBERS["card"],
        "clients": [str(name) for name in clients.clients],
        "key": key,
        "shape": list(clients.shape),
        "target_shape": list(clients.train.y.shape[1:]),
        "inputs": clients.train.x.dtype.name,
        "targets": clients.train.y.dtype.name,
        "classes": None if clients.classes is None else list(clients.classes),
        "encoder": clients.encoder.to_json() if clients.encoder else None,
        "largest": None if private else clients.train.largest,
    }


def accept(folder: Path, path: Path) -> Document:
    """Accept an agreement, if it fits the site's samples and the code that is installed here."""
    document = Document.read(path)
    document.vet()
    with held_site(folder) as site:
        _check_fits(document, site)
        write_atomically(site.folder / "agreement.json", document.to_json().encode())
    return document


def _check_fits(document: Document, site: Site) -> None:
    card = read_card(site.folder / "card.json")
    facts = document.facts
    agreed = {
        "shape": list(facts.shape),
        "classes": None if document.classes is None else list(document.classes),
        "encoder": document.encoder,
    }
    for name, wanted in agreed.items():
        sentence = f"it differs from the data here in its {name}. Make the site anew from the app."
        check.expect(card[name] == wanted, "agreement", sentence)
    for name in site.clients:
        facts.client_data(*site.samples(name)["train"])  # refuses too many samples, other shapes


def leave(folder: Path) -> list[str]:
    """Delete all that the site holds of its clients and its runs; returns the clients' names.

    The key and the settings stay; without a card, the node answers no request. One that it answers
    now is waited for: it would write again what was deleted.
    """
    with held_site(folder) as site:
        for name in _OF_RUN:
            path = site.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return list(site.clients)


@lru_cache(maxsize=2)
def _parsed(document: str) -> Document:
    return Document.from_json(document)
