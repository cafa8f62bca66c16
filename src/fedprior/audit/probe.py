"""Instruments: a method that sends what it is told and keeps every release, and cohorts by name.

A probe goes through the engine like any other method, so that what it records is what a real run
would have released, in as many dimensions and of whatever values an attack asks for.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedprior.core import tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State, Theta
from fedprior.core.protocols import Channel, Cohort, is_private
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.engines.device import LONGEST, DeviceEngine
from fedprior.engines.run import Run
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.cohort import Everyone
from fedprior.privacy.events import Event, Relation
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms

NOBODY = -1
# Data must be finite; the probe's clients turn these numbers into the values that they stand for.
_CODES = {3.25e38: np.nan, 3.26e38: np.inf, -3.26e38: -np.inf}


def probe(size: int, rounds: int, *, name: str = "probe") -> Algorithm:
    """Return a method whose client sends its only row, in three blocks, and remembers its first
    number; the server keeps each total and its weight.
    """
    cuts = (0, size // 3, size // 2, size)
    like = {f"part-{place}": jnp.zeros(cuts[place + 1] - cuts[place]) for place in range(3)}

    def init(key: Key) -> State:
        kept = {"totals": jnp.zeros((rounds, size)), "weights": jnp.zeros(rounds)}
        return {"gamma": kept, "round": jnp.zeros((), jnp.int32)}

    def enroll(state: State, client: Array, key: Key) -> Memory:
        return {"first": jnp.zeros(())}

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        row = data.take(jnp.zeros((), jnp.int32))[0]
        for code, meaning in _CODES.items():
            row = jnp.where(row == np.float32(code), meaning, row)
        return Message(tree.unflatten(row[1:], like), jnp.ones(())), {"first": row[0]}

    def update(state: State, total: Message) -> State:
        kept, place = state["gamma"], state["round"]
        return {
            "gamma": {
                "totals": kept["totals"].at[place].set(tree.flatten(total.value)),
                "weights": kept["weights"].at[place].set(total.weight),
            },
            "round": place + 1,
        }

    def personalize(state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        return {"nothing": jnp.zeros(2)}

    return Algorithm(
        name=name,
        init=init,
        enroll=enroll,
        local=local,
        update=update,
        personalize=personalize,
        predict=lambda theta, x: jnp.zeros((len(x), 2)) + theta["nothing"],
        loss=lambda outputs, y: jnp.zeros(len(y)),
        score=lambda outputs, y: jnp.zeros(len(y)),
        memoryless=True,
    )


def senders(rows: np.ndarray, memories: np.ndarray | float = 0.0) -> Federation:
    """Return one client per row, which sends the row and remembers its entry of `memories`."""
    number = len(rows)
    first = np.broadcast_to(np.asarray(memories, np.float32), number)
    x = np.concatenate([first[:, None], np.asarray(rows, np.float32)], axis=1)
    for code, meaning in _CODES.items():
        x = np.where(np.isnan(x) if np.isnan(meaning) else x == meaning, np.float32(code), x)
    rows_of = list(np.arange(number)[:, None])
    return federation_of(x, np.zeros(number, np.int32), rows_of, name="senders")


def federation_of(
    x: np.ndarray, y: np.ndarray, rows_of: list[np.ndarray], *, name: str
) -> Federation:
    """Return clients with training rows alone, of two classes; `rows_of` are each client's."""
    train = Split.gather(x, y, rows_of)
    zeros = np.zeros(len(rows_of), np.int32)
    empty = Split(x[:0], train.y[:0], zeros, zeros)
    names = np.array([f"client-{place}" for place in range(len(rows_of))])
    return Federation(
        train=train, valid=empty, test=empty, clients=names, classes=("a", "b"), name=name
    )


def members(draw: Callable[[int], np.ndarray], rounds: int, num_clients: int) -> np.ndarray:
    """Return whom `draw(round)` takes in each round, (rounds, num_clients)."""
    drawn = np.zeros((rounds, num_clients), bool)
    for round in range(rounds):
        drawn[round, draw(round)] = True
    return drawn


@dataclass(frozen=True)
class Named(Cohort):
    """The given client in each round, over and over; `NOBODY` is an empty cohort."""

    clients: tuple[int, ...]

    def expected_size(self, num_clients: int) -> float:
        return 2.0

    def capacity(self, num_clients: int) -> int:
        return 1

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        client = self.clients[round % len(self.clients)]
        return np.array([client] if client >= 0 else [], np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        return event


class Released(NamedTuple):
    """What a run of the probe released: totals (rounds, size) and their weights."""

    totals: np.ndarray
    weights: np.ndarray


def release(
    channel: Channel,
    rows: np.ndarray,
    *,
    rounds: int,
    cohort: Cohort | None = None,
    seed: int = 0,
    identity: Any = "",
    method: Algorithm | None = None,
    memories: np.ndarray | float = 0.0,
) -> Released:
    """Run the probe through the simulator's engine."""
    method = probe(rows.shape[1], rounds) if method is None else method
    federation = senders(rows, memories)
    agreement = Agreement.of(
        method,
        federation,
        channel=channel,
        cohort=Everyone() if cohort is None else cohort,
        seed=seed,
        identity=identity,
    )
    with ledger_of(channel) if agreement.secure else nullcontext() as ledger:
        run = Run(agreement=agreement, federation=federation, rounds=rounds, ledger=ledger)
        engine = DeviceEngine(run)
        for first in range(0, rounds, LONGEST):
            engine.advance(min(LONGEST, rounds - first))
    return kept(engine.state)


@contextmanager
def ledger_of(
    channel: Channel, *, budget: float | None = None, delta: float = 1e-6
) -> Iterator[Ledger]:
    """Open a new ledger for the channel in a temporary folder."""
    assert is_private(channel)
    relation: Relation = "add-remove" if channel.view == "central" else "replace-one"
    terms = Terms(
        delta=delta, relation=relation, view=channel.view, noise=channel.noise, budget=budget
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with Ledger(path, terms) as ledger:
            yield ledger


def kept(state: State) -> Released:
    """Return what the probe's state holds, in double precision."""
    gamma = state["gamma"]
    return Released(
        np.asarray(gamma["totals"], np.float64), np.asarray(gamma["weights"], np.float64)
    )


def in_turn(clients: Sequence[int]) -> Named:
    """Return cohorts of one client each, in this order."""
    return Named(tuple(clients))
