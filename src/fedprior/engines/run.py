"""What the engines share: checked arguments, cohorts, the history and its checkpoints."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Key, Memory, PyTree, State
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import Federation
from fedprior.engines import checkpoint
from fedprior.privacy.cohort import Everyone

History = list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Where and how often (in rounds) a run is saved, and whether it goes on from there.

    `identity` is any JSON value that names what decides the run's bits and its arguments do not
    show, such as an algorithm's rates; resuming with another one is refused.
    """

    folder: Path
    every: int = 100
    resume: bool = False
    identity: Any = ""

    def __post_init__(self) -> None:
        check.count("Saving", every=self.every)

    @property
    def file(self) -> Path:
        return Path(self.folder) / "checkpoint.safetensors"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A simulation's arguments, checked once."""

    algorithm: Algorithm
    federation: Federation
    rounds: int
    seed: int = 0
    cohort: Cohort = field(default_factory=Everyone)
    channel: Channel = field(default_factory=Identity)
    saving: Saving | None = None

    def __post_init__(self) -> None:
        owner = "simulate"
        check.count(owner, least=0, rounds=self.rounds)
        check.seed(owner, self.seed)
        self.cohort.capacity(self.num_clients)  # refuses a cohort larger than the federation
        if self.channel.private and not self.algorithm.unit_weight:
            raise check.PrivacyError(
                f"{owner}: weight must be 'uniform' under a private channel, got 'samples'. "
                "A weight that depends on the data would pass the clip."
            )
        if self.channel.private and self.algorithm.pools == "gather":
            raise check.PrivacyError(
                f"{owner}: channel must be clear for {self.algorithm.name}, got {self.channel!r}. "
                "The method needs every message by itself."
            )

    @property
    def num_clients(self) -> int:
        return self.federation.num_clients

    @property
    def expected_size(self) -> float:
        return self.cohort.expected_size(self.num_clients)

    def root(self) -> Key:
        return random.root(self.seed)

    def initial_state(self) -> State:
        return jax.jit(self.algorithm.init)(random.fold(self.root(), "init"))

    def shapes(self) -> tuple[State, Memory]:
        """Shapes of the state and of one client's memory."""
        state = jax.eval_shape(lambda: self.algorithm.init(random.root(0)))
        client = jnp.zeros((), jnp.int32)
        memory = jax.eval_shape(lambda s: self.algorithm.enroll(s, client, random.root(0)), state)
        return state, memory

    def cohorts(self, first: int, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (length, capacity) and presence of the cohorts of `count` rounds from `first`."""
        capacity = self.cohort.capacity(self.num_clients)
        clients = np.zeros((length, capacity), np.int32)
        present = np.zeros((length, capacity), bool)
        for place in range(count):
            drawn = self.cohort.draw(self.seed, first + place, self.num_clients)
            clients[place, : len(drawn)] = drawn
            present[place, : len(drawn)] = True
        return clients, present

    def identity(self, store: str) -> str:
        """Names what decides the bits of this run, for its checkpoints."""
        assert self.saving is not None
        federation = [self.federation.name, self.num_clients, list(self.federation.train.x.shape)]
        parts = [self.algorithm.name, self.cohort, self.channel, self.seed, store, federation]
        return checkpoint.fingerprint([self.saving.identity, *parts])

    def save(self, store: str, history: History, arrays: PyTree, **facts: Any) -> None:
        """A checkpoint after len(history) rounds."""
        assert self.saving is not None
        names = sorted({name for entry in history for name in entry})
        columns = {name: np.array([entry.get(name, np.nan) for entry in history]) for name in names}
        checkpoint.save_checkpoint(
            self.saving.file,
            {**arrays, "history": columns},
            identity=self.identity(store),
            round=len(history),
            columns=names,
            **facts,
        )

    def resume(self, store: str, like: PyTree) -> tuple[PyTree, History, dict[str, Any]] | None:
        """(arrays, history, facts) of the last checkpoint, or None where the run begins."""
        if self.saving is None or not self.saving.resume or not self.saving.file.exists():
            return None
        facts = checkpoint.read_header(self.saving.file, identity=self.identity(store))
        columns = dict.fromkeys(facts["columns"], np.empty(facts["round"]))
        arrays = checkpoint.load_arrays(self.saving.file, {**like, "history": columns})
        found = arrays.pop("history")
        history = [
            {name: float(found[name][r]) for name in found if not np.isnan(found[name][r])}
            for r in range(facts["round"])
        ]
        return arrays, history, facts
