"""The nodes as the server sees them: who is where, what they are asked, whose answer it is."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedprior.core.algorithm import PyTree
from fedprior.deploy import wire
from fedprior.sites.answers import Answer, Nodes, shown
from fedprior.sites.document import Document
from fedprior.sites.roster import Roster

_POLL = 0.2  # seconds; Flower's own `send_and_receive` sleeps for 3
_HELLO = 60.0  # seconds for a node to say who it is, and before it is asked again
_SMALL = 2**20  # bytes of an answer without arrays


class FlowerNodes(Nodes):
    """Clients by the node that holds them; `simulated` ones have no keys and live in a folder."""

    def __init__(
        self, grid: Grid, document: Document, roster: Roster, *, simulated: Path | None = None
    ) -> None:
        self.roster, self.masks = roster, dict[int, bytes]()
        self._grid, self._document = grid, document
        self._where: dict[str, int] = {}
        self._greeted: dict[int, float] = {}
        self._simulated = simulated

    @property
    def present(self) -> Collection[str]:
        online = set(self._grid.get_node_ids())
        return {name for name in self.roster.active if self._where.get(name) in online}

    def greet(self) -> list[str]:
        now, known = time.monotonic(), set(self._where.values())
        new = [
            node
            for node in self._grid.get_node_ids()
            if node not in known and now - self._greeted.get(node, -_HELLO) >= _HELLO
        ]
        if not new:
            return []
        self._greeted |= dict.fromkeys(new, now)
        seconds, failed, active = min(_HELLO, self._document.deadline), [], set(self.roster.active)
        for node, answer in self._exchange("hello", dict.fromkeys(new, ()), seconds, _SMALL):
            if answer.failed:
                failed.append(answer.failed)
            strangers = []
            for name in answer.present:
                if name in active and self._is_its_own(answer, name):
                    self._where[name] = node
                    mask = answer.mask(name)
                    if mask is not None:
                        self.masks[self.roster.numbers[name]] = mask
                else:
                    strangers.append(name)
            if strangers:
                others = f" (and {len(strangers) - 1} others)" if strangers[1:] else ""
                who = f"client {shown(strangers[0])!r}{others}"
                failed.append(f"{who} is not on the roster with that key")
        return failed

    def ask(
        self,
        do: str,
        clients: Mapping[str, Mapping[str, Any]],
        arrays: PyTree | Callable[[tuple[str, ...]], PyTree],
        *,
        most: int,
        **facts: Any,
    ) -> Iterator[Answer]:
        nodes: dict[int, tuple[str, ...]] = {}
        for name in clients:
            node = self._where[name]
            nodes[node] = (*nodes.get(node, ()), name)
        told = {name: dict(about) for name, about in clients.items()}
        seconds = self._document.deadline
        exchanged = self._exchange(do, nodes, seconds, most, arrays=arrays, told=told, **facts)
        for node, answer in exchanged:
            forged = [name for name in nodes[node] if not self._is_its_own(answer, name)]
            if answer.failed is None and forged:
                yield Answer(tuple(forged), "NotSigned")
            else:
                yield answer

    def _exchange(
        self,
        do: str,
        nodes: Mapping[int, tuple[str, ...]],
        seconds: float,
        most: int,
        *,
        arrays: Any = None,
        told: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Iterator[tuple[int, Answer]]:
        end = time.monotonic() + seconds
        waiting: dict[str, tuple[int, str]] = {}
        for node, names in nodes.items():
            nonce = secrets.token_hex(16)
            about = {name: (told or {})[name] for name in names}
            own = {"do": do, "nonce": nonce, "clients": about, "deadline": seconds, **facts}
            own["token"] = self._document.token
            if self._simulated is not None:
                own |= {"simulation": str(self._simulated), "document": self._document.to_json()}
            carried = arrays(names) if callable(arrays) else arrays
            payload = wire.content({} if carried is None else carried, own)
            sent = list(self._grid.push_messages([wire.request(node, payload, seconds=seconds)]))
            if not any(sent):  # a node that is being removed, or more than Flower carries
                yield node, Answer(names, "the request was not taken")
                continue
            waiting[sent[0]] = (node, nonce)
        while waiting and time.monotonic() < end:
            for message in self._pull(list(waiting)):
                found = waiting.pop(message.metadata.reply_to_message_id, None)
                if found is not None:
                    node, nonce = found
                    yield node, self._read(message, nodes[node], nonce, most)
            if waiting:
                time.sleep(_POLL)
        for node, _ in waiting.values():
            yield node, Answer(nodes[node], "no answer before the deadline")

    def _pull(self, sent: list[str]) -> Iterable[Message]:
        """What has been answered, one by one where Flower cannot put together all that was sent."""
        try:
            return list(self._grid.pull_messages(sent))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return [] if len(sent) == 1 else [m for each in sent for m in self._pull([each])]

    def _read(self, message: Message, names: tuple[str, ...], nonce: str, most: int) -> Answer:
        """An answer, if it is one to the request with this nonce."""
        if message.has_error():
            return Answer(names, f"Flower's error {message.error.code}")
        try:
            packed, payload, signature = wire.read(message, most=most * max(1, len(names)))
        except wire.BadMessage:
            return Answer(names, "BadMessage")
        facts = packed.facts
        if facts.get("nonce") != nonce:
            return Answer(names, "an answer to another request")
        signed = {"payload": payload, "signature": signature}
        if "failed" in facts:
            return Answer(names, shown(facts["failed"]), signed)
        return Answer(names, None, {**facts, **signed}, packed.arrays)

    def _is_its_own(self, answer: Answer, name: str) -> bool:
        """Whether the site of a client signed the answer; simulated clients have no key."""
        from fedprior.sites import keys

        key = self.roster.keys[name]
        if self._simulated is not None:
            return True
        if key is None or "payload" not in answer.facts:
            return False
        return keys.is_signed(key, answer.facts["payload"], answer.facts["signature"])
