"""Private rounds in which the clients are the rows of a batch, in NumPy.

The order is that of a round between a server and its clients: check what was agreed, reserve it on
the ledger, and only then encode, add and decode. All rounds are reserved together: a batch holds
every client's data, so that nobody waits for the next round.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprior.channels.randomized_response import KaryResponse
from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.core.check import PrivacyError
from fedprior.core.protocols import Channel, PrivateChannel, View, is_private
from fedprior.exchange.server import check_terms
from fedprior.privacy import accounting, secure
from fedprior.privacy.events import Event, Relation
from fedprior.privacy.guarantee import Guarantee, Noise, shown
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.plans import check_delta_below

_NEIGHBORS = {"add-remove": "add or remove one", "replace-one": "replace one"}
_TRUSTS = {
    "central": "whoever computes the sum (central model)",
    "local": "nobody (local model)",
}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """`rounds` messages from each of `num_clients` clients, every one at the cost of `event`.

    `owner` names the question in errors and on the ledger. `seed` keys simulated noise; secure
    noise has none. The guarantee is that of all rounds together, at `delta` (0 for randomized
    responses alone); a delta of 1 / clients or more is refused unless `allow_delta`.
    """

    owner: str
    event: Event
    view: View
    noise: Noise
    num_clients: int
    delta: float = 0.0
    rounds: int = 1
    relation: Relation = "replace-one"
    seed: int = 0
    allow_delta: bool = False

    def __post_init__(self) -> None:
        check.count(self.owner, num_clients=self.num_clients, rounds=self.rounds)
        check.seed(self.owner, self.seed)
        check.choice(self.owner, "view", self.view, _TRUSTS)  # a batch has nobody to mask from
        if self.noise == "secure" and self.view == "central":
            secure.check_cohort_size(self.num_clients)

    @classmethod
    def of(cls, owner: str, channel: PrivateChannel, dimension: int, **agreed: Any) -> "Batch":
        """A batch whose messages of `dimension` coordinates all pass through `channel`."""
        event = channel.event(dimension)
        return cls(owner=owner, event=event, view=channel.view, noise=channel.noise, **agreed)

    @property
    def epsilon(self) -> float:
        """Epsilon of all rounds at delta, by the accountant."""
        spent = [(self.event, self.rounds)]
        return accounting.epsilon(spent, delta=self.delta, relation=self.relation)

    def guarantee(self, *, unit: str, mechanism: str, bits: float | None = None) -> Guarantee:
        """What the clients are promised for everything that they send in this batch."""
        return Guarantee(
            epsilon=max(self.epsilon, 1e-12),  # 0 if the noise is so large that delta suffices
            delta=self.delta,
            unit=unit,
            neighbors=_NEIGHBORS[self.relation],
            trust=_TRUSTS[self.view],
            mechanism=mechanism,
            noise=self.noise,
            bits=bits,
        )

    @contextmanager
    def charged(self, ledger: Ledger | None, *, content: Iterable[Any]) -> Iterator["Rounds"]:
        """Reserve all rounds, or none and raise; then the rounds may run.

        With secure noise a ledger is required. `content` is everything that decides the messages
        besides the seed: the same content with the same simulated noise is the same release, which
        costs nothing, and another content with that noise is refused. A process that ends before
        the block does has spent what was reserved.
        """
        check_delta_below(self.delta, self.num_clients, allowed=self.allow_delta)
        check_terms(ledger, view=self.view, noise=self.noise, num_clients=self.num_clients)
        if ledger is None:
            yield Rounds(self)
            return
        keyed = self.noise == "simulated"
        granted = ledger.reserve(
            self.event,
            first=0,
            rounds=self.rounds,
            source=f"{self.owner} {_digest((self.seed, *content))}" if keyed else self.owner,
            draws=f"batch-{self.seed}" if keyed else None,
            count=self.rounds,
        )
        if not granted:
            raise PrivacyError(
                f"{self.owner}: epsilon must fit into what is left of the budget of {ledger.path} "
                f"({shown(ledger.spent, digits=4)} of {ledger.terms.budget:g} are spent), got "
                f"{shown(self.epsilon, digits=4)}. Nothing was drawn or charged."
            )
        yield Rounds(self)
        ledger.commit()


@dataclass(frozen=True)
class Rounds:
    """The rounds of a batch that has been charged, or of a clear one (`batch` None).

    No message leaves a client through a channel that costs more than was charged, with noise from
    elsewhere, or beyond the number of messages that were charged.
    """

    batch: Batch | None
    seed: int = 0
    _sent: list[int] = field(default_factory=list, repr=False, compare=False)

    @property
    def noise(self) -> Noise:
        """Where draws come from."""
        return "simulated" if self.batch is None else self.batch.noise

    def key(self, purpose: str, *path: int) -> Key:
        """The stream of a draw: keyed if it is simulated, else of the operating system."""
        if self.noise == "secure":
            return random.secure()
        return random.stream(self.seed if self.batch is None else self.batch.seed, purpose, *path)

    def gather(self, channel: Channel, rows: np.ndarray, key: Key) -> np.ndarray:
        """What the clients send, one row each."""
        self._check(channel, rows.shape[-1], key, "local")
        self._count(len(rows))
        return np.asarray(channel.encode(rows, key))

    def respond(self, channel: KaryResponse, symbols: np.ndarray, key: Key) -> np.ndarray:
        """The symbols that the clients send in place of their own, one each."""
        self._check(channel, channel.num_symbols, key, "local")
        self._count(len(symbols))
        return np.asarray(channel.respond(symbols, key))

    def add(
        self, channel: Channel, parts: Iterable[np.ndarray], key: Key, *, dimension: int
    ) -> np.ndarray:
        """The decoded sum of what all clients send; `parts` are messages of some of them each."""
        self._check(channel, dimension, key, "central", "local")
        self._count(0 if self.batch is None else self.batch.num_clients)
        total, number = channel.add(np.zeros((1, dimension))), 0
        for rows in parts:
            total = total + channel.add(channel.encode(rows, key))
            number += len(rows)
        if self.batch is not None and number > self.batch.num_clients:
            rule = f"at most {self.batch.num_clients}, one from each client"
            raise PrivacyError(check.message(self.batch.owner, "messages of a round", rule, number))
        return np.asarray(channel.decode(total, key))

    def _count(self, messages: int) -> None:
        """Raise PrivacyError beyond the messages that were charged."""
        batch = self.batch
        self._sent.append(messages)
        if batch is not None and sum(self._sent) > batch.rounds * batch.num_clients:
            rule = f"at most {batch.rounds} per client, which were charged"
            raise PrivacyError(check.message(batch.owner, "messages", rule, sum(self._sent)))

    def _check(self, channel: Channel, dimension: int, key: Key, *views: str) -> None:
        """Raise PrivacyError if a message through this channel is not what was charged."""
        batch = self.batch
        if not is_private(channel) and batch is None:
            return
        if batch is None or not is_private(channel):
            raise PrivacyError(f"rounds: the channel must be the one agreed on, got {channel!r}.")
        event = channel.event(dimension)
        same = (channel.view, channel.noise) == (batch.view, batch.noise)
        drawn = isinstance(key, random.Secure) == (batch.noise == "secure")
        if not (same and drawn and channel.view in views and _covers(batch.event, event)):
            raise PrivacyError(
                f"{batch.owner}: a message must cost what was charged ({batch.event}, {batch.view} "
                f"view, {batch.noise} noise), got {event} of {channel!r}, drawn from {key!r}."
            )


def _covers(charged: Event, event: Event) -> bool:
    """Whether `event` is no more than what was charged: as much noise, or a smaller epsilon."""
    less, more = (event, charged) if event.mechanism == "response" else (charged, event)
    return event == replace(charged, noise=event.noise) and less.noise <= more.noise


def _digest(content: Iterable[Any]) -> str:
    """A name of arrays, by their bytes, and of other values, by their repr."""
    found = hashlib.sha256()
    for part in content:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype.str} {part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(repr(part).encode())
    return found.hexdigest()[:16]
