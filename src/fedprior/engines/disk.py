"""The engine with memories on disk: one compiled round at a time, reading the next cohort."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array, Memory
from fedprior.data.federation import PADDED_AXES, ClientData
from fedprior.engines import room
from fedprior.engines.mesh import ROWS, SAME, Mesh, added
from fedprior.engines.pools import SPLIT, Source
from fedprior.engines.round import COUNTS, Outcome, play
from fedprior.engines.run import History, Run
from fedprior.engines.store import DiskStore, OnShards, Store, Together
from fedprior.exchange.agreement import Rules


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
        self.run, self.rules, self.mesh = run, run.agreement.rules, run.mesh
        self.train = Source(run.federation.train, pooled=False, mesh=self.mesh)
        self.history: History = []
        state, self._memory = run.agreement.shapes
        self.secrets = run.agreement.secrets()
        saved = run.resume({"state": state}, self.secrets)
        folder, number = self._folder(self.mesh.process), run.num_clients
        if saved is None:
            self.state = run.agreement.initial_state()
            if run.saving and self.mesh.lead:
                # The checkpoint of an earlier run would refer to deleted rows.
                run.saving.file.unlink(missing_ok=True)
            self.mesh.all_of([0])
            self.rows = DiskStore.create(folder, self._memory, number)
        else:
            assert folder is not None
            arrays, self.history, facts = saved
            self.state, self.secrets = arrays["state"], arrays["secrets"]
            journals = facts["journals"] if "journals" in facts else [facts["journal"]]
            journal = journals[self.mesh.process]
            self.rows = DiskStore.restore(folder, self._memory, number, **journal)
        self.state, self.secrets = self.mesh.everywhere((self.state, self.secrets))
        self.store: Store = OnShards(self.rows, self.mesh) if self.mesh.devices else self.rows
        self._ahead: _Load | None = None

    def _folder(self, process: int) -> Path | None:
        """Where a process keeps the rows of its clients; None for a temporary place."""
        saving, processes = self.run.saving, self.mesh.processes
        if saving is None:
            rule = "given for a run with store='disk' in several processes"
            check.require(processes == 1, "simulate", "saving", rule, None)
            return None
        folder = Path(saving.folder) / "memory"
        return folder if processes == 1 else folder / f"process-{process}-of-{processes}"

    def advance(self, count: int) -> None:
        """Run `count` more rounds."""
        for _ in range(count):
            number = len(self.history)
            load, self._ahead = self._ahead or self._load(number), None
            (outcome, entry), self.rules = room.call_rounds(
                _round,
                self.state,
                self.secrets,
                *self.mesh.put((load.memories, load.enrolled)),
                load.data,
                *self.mesh.put((load.clients, load.present)),
                number,
                self.run.agreement.keys(),
                rules=self.rules,
                capacity=self.run.width,
                mesh=self.mesh,
                meanwhile=self._read_ahead,
            )
            self.state, self.secrets = outcome.state, outcome.secrets
            self._keep(load, outcome)
            self.history.append({name: float(value) for name, value in entry.items()})

    def save(self) -> None:
        """Save a checkpoint once all processes have sealed their journals; then settle them."""
        sealed = self.rows.seal()
        found = self.mesh.all_of([*sealed.values()]).tolist()
        journals = [dict(zip(sealed, values, strict=True)) for values in found]
        state, secrets = jax.device_get((self.state, self.secrets))
        self.run.save(self.history, {"state": state}, secrets, journals=journals)
        self.mesh.all_of([0])  # named by process 0: no journal may go before
        self.rows.settle()

    def whole(self) -> Store:
        """The rows of all clients, for this process alone; after `save`, if there are several."""
        if self.mesh.processes == 1:
            return self.rows
        self.mesh.all_of([0])  # settled by all
        number, own = self.run.num_clients, self.mesh.process
        return Together(
            [
                self.rows if each == own else DiskStore(self._folder(each), self._memory, number)
                for each in range(self.mesh.processes)
            ],
            self.mesh,
        )

    def _read_ahead(self) -> None:
        """Read the next cohort, once: a cohort is drawn only once."""
        number = len(self.history) + 1
        if self._ahead is None and number < self.run.rounds:
            self._ahead = self._load(number)

    def _load(self, number: int) -> _Load:
        clients, present = (part[0] for part in self.run.cohorts(number, 1, 1))
        data = self.run.agreement.rules.open(self.train.take(clients))
        clients, present = self.mesh.own(clients), self.mesh.own(present)
        memories, enrolled = self.rows.read(clients)
        return _Load(clients, present, memories, enrolled, data)

    def _keep(self, load: _Load, outcome: Outcome) -> None:
        """Write the accepted rows, and update the cohort that has already been read."""
        accepted = np.flatnonzero(self.mesh.own_part(outcome.accepted))
        clients = load.clients[accepted]
        fresh = jax.tree.map(lambda rows: rows[accepted], self.mesh.own_part(outcome.memories))
        if len(accepted):
            self.rows.write(clients, fresh)
        if self._ahead is None:
            return
        seats = np.flatnonzero(self._ahead.present)  # others are of no client
        _, old, new = np.intersect1d(clients, self._ahead.clients[seats], return_indices=True)
        new = seats[new]
        for rows, updated in zip(
            jax.tree.leaves(self._ahead.memories), jax.tree.leaves(fresh), strict=True
        ):
            rows[new] = updated[old]
        self._ahead.enrolled[new] = True


_GIVEN = {  # to a round, and where it is
    "state": SAME,
    "secrets": SAME,
    "memories": ROWS,
    "enrolled": ROWS,
    "data": SPLIT,
    "clients": ROWS,
    "present": ROWS,
    "round": SAME,
    "keys": SAME,
}
_KEPT = Outcome(state=SAME, secrets=SAME, memories=ROWS, accepted=ROWS, left_out=SAME)


@partial(jax.jit, static_argnames=("rules", "mesh"))
def _round(*given: Any, rules: Rules, mesh: Mesh) -> tuple[Outcome, dict[str, Array]]:
    """One round on every shard, with the clients that live there."""

    def there(*own: Any) -> tuple[Outcome, dict[str, Array]]:
        named = dict(zip(_GIVEN, own, strict=True))
        outcome = play(rules, **named, axes=PADDED_AXES, axis=mesh.axis)
        entry = outcome.entry()
        return outcome, entry | added({name: entry[name] for name in COUNTS}, mesh.axis)

    result: tuple[Outcome, dict[str, Array]] = mesh.split(
        there, tuple(_GIVEN.values()), (_KEPT, SAME)
    )(*given)
    return result
