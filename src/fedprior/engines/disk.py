"""The engine with memories on disk: one compiled round at a time, reading the next cohort."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fedprior.core.algorithm import Array, Memory, PyTree, State
from fedprior.data.federation import PADDED_AXES, ClientData
from fedprior.engines import room
from fedprior.engines.evaluate import Source
from fedprior.engines.round import Outcome, play
from fedprior.engines.run import History, Run
from fedprior.engines.store import DiskStore
from fedprior.exchange.agreement import Keys, Rules


class _Load(NamedTuple):
    """A cohort with its memories and data, in host memory."""

    clients: np.ndarray
    present: np.ndarray
    memories: Memory
    enrolled: np.ndarray
    data: ClientData


class DiskEngine:
    """Reads a cohort's rows, runs the round and writes them; holds one cohort in memory."""

    pooled = False

    def __init__(self, run: Run) -> None:
        self.run, self.rules = run, run.agreement.rules
        self.train = Source(run.federation.train, pooled=False)
        self.history: History = []
        state, memory = run.agreement.shapes
        folder = Path(run.saving.folder) / "memory" if run.saving else None
        self.secrets = run.agreement.secrets()
        saved = run.resume({"state": state}, self.secrets)
        if saved is None:
            self.state = run.agreement.initial_state()
            if run.saving:  # the checkpoint of an earlier run would refer to deleted rows
                run.saving.file.unlink(missing_ok=True)
            self.store = DiskStore.create(folder, memory, run.num_clients)
        else:
            assert folder is not None
            arrays, self.history, facts = saved
            self.state, self.secrets = jax.device_put((arrays["state"], arrays["secrets"]))
            self.store = DiskStore.restore(folder, memory, run.num_clients, **facts["journal"])
        self._ahead: _Load | None = None

    def advance(self, count: int) -> None:
        """Run `count` more rounds."""
        for _ in range(count):
            number = len(self.history)
            load, self._ahead = self._ahead or self._load(number), None
            (outcome, entry), self.rules = room.call_rounds(
                _round,
                self.state,
                self.secrets,
                load.memories,
                load.enrolled,
                load.data,
                load.clients,
                load.present,
                number,
                self.run.agreement.keys(),
                rules=self.rules,
                capacity=self.run.agreement.capacity,
                meanwhile=self._read_ahead,
            )
            self.state, self.secrets = outcome.state, outcome.secrets
            self._keep(load, outcome)
            self.history.append({name: float(value) for name, value in entry.items()})

    def save(self) -> None:
        journal = self.store.seal()
        state, secrets = jax.device_get((self.state, self.secrets))
        self.run.save(self.history, {"state": state}, secrets, journal=journal)
        self.store.settle()

    def _read_ahead(self) -> None:
        """Read the next cohort, once: a cohort is drawn only once."""
        number = len(self.history) + 1
        if self._ahead is None and number < self.run.rounds:
            self._ahead = self._load(number)

    def _load(self, number: int) -> _Load:
        clients, present = (part[0] for part in self.run.cohorts(number, 1, 1))
        memories, enrolled = self.store.read(clients)
        data = self.run.agreement.rules.open(self.train.take(clients))
        return _Load(clients, present, memories, enrolled, data)

    def _keep(self, load: _Load, outcome: Outcome) -> None:
        """Write the accepted rows, and update the cohort that has already been read."""
        accepted = np.flatnonzero(np.asarray(outcome.accepted))
        clients = load.clients[accepted]
        fresh = jax.tree.map(lambda rows: np.asarray(rows)[accepted], outcome.memories)
        if len(accepted):
            self.store.write(clients, fresh)
        if self._ahead is None:
            return
        _, old, new = np.intersect1d(clients, self._ahead.clients, return_indices=True)
        for rows, updated in zip(
            jax.tree.leaves(self._ahead.memories), jax.tree.leaves(fresh), strict=True
        ):
            rows[new] = updated[old]
        self._ahead.enrolled[new] = True


@partial(jax.jit, static_argnames="rules")
def _round(
    state: State,
    secrets: PyTree,
    memories: Memory,
    enrolled: Array,
    data: ClientData,
    clients: Array,
    present: Array,
    round: Array,
    keys: Keys,
    *,
    rules: Rules,
) -> tuple[Outcome, dict[str, Array]]:
    outcome = play(
        rules,
        state=state,
        secrets=secrets,
        memories=memories,
        enrolled=enrolled,
        data=data,
        axes=PADDED_AXES,
        clients=clients,
        present=present,
        round=round,
        keys=keys,
    )
    return outcome, outcome.entry()
