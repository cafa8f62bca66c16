"""A request that a site answers, with what it concerns there: the agreement, seats, files."""

import hashlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import State
from fedprior.core.files import make_folder, read_json, write_json
from fedprior.core.protocols import is_private
from fedprior.data.federation import ClientData
from fedprior.exchange import memory as memories
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.memory import ClientMemory
from fedprior.exchange.trees import Packed
from fedprior.sites.document import Document
from fedprior.sites.folder import Site


class AnotherSeat(ValueError):
    """The server gives a client another number than before."""


@dataclass(frozen=True)
class Asked:
    """What the server asks of a site, under a document that the site has accepted."""

    site: Site
    document: Document
    agreement: Agreement
    request: Packed

    @property
    def facts(self) -> dict[str, Any]:
        return self.request.facts

    @property
    def masked(self) -> bool:
        """Whether uploads are added under masks."""
        channel = self.agreement.channel
        return is_private(channel) and channel.view == "masked"

    @cached_property
    def state(self) -> State:
        """The state in the request; one of other shapes than agreed on is refused."""
        return self.request.tree(self.agreement.shapes[0])

    @cached_property
    def digest(self) -> str:
        """A hash of the state in the request."""
        digest = hashlib.sha256()
        for name, array in sorted(self.request.arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    @property
    def folder(self) -> Path:
        """What the site keeps of this run."""
        folder = self.site.folder / "memory" / self.document.token
        make_folder(folder)
        return folder

    def training(self, name: str) -> ClientData:
        """A client's training samples."""
        return self.document.facts.client_data(*self.site.samples(name)["train"])

    def memory(self, number: int) -> AbstractContextManager[ClientMemory]:
        """The memory of one client, which no other request has meanwhile."""
        return memories.held(self.site.folder / "memory", token=self.document.token, client=number)

    def seat(self, name: Any) -> int:
        """The client's number in the run, which the server gives once and never changes."""
        number = self.facts["clients"][name]["number"]
        check.choice("request", "client", name, self.site.clients)
        check.count("request", least=0, number=number)
        most = self.document.facts.num_clients
        rule = f"below the number of clients ({most})"
        check.require(number < most, "request", "number", rule, number)
        path = self.folder / "seats.json"
        seats = read_json(path) if path.is_file() else {}
        taken = [seat for other, seat in seats.items() if other != name]
        if seats.get(name, number) != number or number in taken:
            raise AnotherSeat(f"client {name} has number {seats.get(name)}, not {number}.")
        if name not in seats:
            write_json(path, {**seats, name: int(number)})
        return int(number)
