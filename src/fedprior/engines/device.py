"""The engine with memories on the device: many rounds in one compiled loop."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import tree
from fedprior.core.algorithm import Array, Memory, PyTree, State
from fedprior.core.programs import lasting
from fedprior.data.federation import POOLED_AXES, ClientData
from fedprior.engines import room
from fedprior.engines.mesh import AXIS, ONE, ROWS, SAME, SLOTS, Mesh, added
from fedprior.engines.pools import SPLIT, Source
from fedprior.engines.round import COUNTS, play, scalars
from fedprior.engines.run import History, Run
from fedprior.engines.store import DeviceStore
from fedprior.exchange.agreement import Keys, Rules

LONGEST = 256  # maximum number of rounds per call; the compiled loop takes any smaller number


class Models(NamedTuple):
    """The variables of a training: the server's state, the memories of enrolled clients, and what
    the channel keeps secret at the server.
    """

    state: State
    memories: Memory
    enrolled: Array
    secrets: PyTree = ()


class DeviceEngine:
    """State, memories and data stay on the device; a call runs up to `LONGEST` rounds."""

    pooled = True

    def __init__(self, run: Run) -> None:
        self.run, self.rules = run, run.agreement.rules
        self.train = Source(run.federation.train, pooled=True, mesh=run.mesh)
        self._saved = run.saving is not None and run.saving.resume
        self.history: History = self._begin(run)

    def _begin(self, run: Run) -> History:
        """Take up the last checkpoint, or begin; return the history of what was taken up."""
        state, memory = run.agreement.shapes
        empty = jax.eval_shape(lambda: _bundle(DeviceStore.empty(memory, run.num_clients)))
        self.secrets = run.agreement.secrets()
        history: History = []
        saved = run.resume({"state": state, **empty}, self.secrets)
        if saved is None:
            self.state = run.agreement.initial_state()
            self.store = DeviceStore.empty(memory, run.num_clients, mesh=run.mesh)
        else:
            arrays, history, _ = saved
            self.state, self.secrets = arrays["state"], arrays["secrets"]
            self.store = DeviceStore(arrays["memories"], arrays["enrolled"]).spread(run.mesh)
        self.state, self.secrets = run.mesh.everywhere((self.state, self.secrets))
        return history

    def advance(self, count: int) -> None:
        """Run `count` more rounds, at most `LONGEST`."""
        log = self._played(len(self.history), count)
        columns = {name: jax.device_get(values) for name, values in log.items()}
        self.history += [{name: float(v[r]) for name, v in columns.items()} for r in range(count)]

    def _played(self, first: int, count: int) -> dict[str, Array]:
        """Run `count` rounds from `first` on, and return their log.

        If memory runs out in the middle of a round, the program has taken the models over: the
        rounds up to here are computed again from the last checkpoint, with fewer clients at once.
        """
        while True:
            try:
                return self._called(first, count)
            except room.OUT as error:
                if self.run.agreement.channel.private:  # whose rounds have to have the same bits
                    raise
                most = self.rules.at_once or self.run.width
                self.rules = replace(self.rules, at_once=room.smaller(most, error))
            run = self.run
            if run.saving is not None:
                run = replace(run, saving=replace(run.saving, resume=self._saved))
            for start in range(len(self._begin(run)), first, LONGEST):
                self._played(start, min(LONGEST, first - start))

    def _called(self, first: int, count: int) -> dict[str, Array]:
        clients, present = self.run.cohorts(first, count, LONGEST)
        (models, log), self.rules = room.call_rounds(
            _compiled,
            Models(self.state, self.store.memories, self.store.enrolled, self.secrets),
            self.rules.open(self.train.pool()),
            clients,
            present,
            first,
            count,
            self.run.agreement.keys(),
            rules=self.rules,
            capacity=self.run.width,
            mesh=self.run.mesh,
        )
        self.state, self.secrets = models.state, models.secrets
        self.store = self.store.after(models.memories, models.enrolled)
        return log

    def whole(self) -> DeviceStore:
        """The memories of all clients, for this process alone."""
        return self.store.whole()

    def save(self) -> None:
        arrays = jax.device_get({"state": self.state, **_bundle(self.store.whole())})
        self.run.save(self.history, arrays, jax.device_get(self.secrets))
        self._saved = True


def _bundle(store: DeviceStore) -> dict[str, Memory]:
    return {"memories": store.memories, "enrolled": store.enrolled}


def play_rounds(
    models: Models,
    data: ClientData,
    clients: Array,  # (LONGEST, capacity)
    present: Array,
    first: Array,
    count: Array,
    keys: Keys,
    *,
    rules: Rules,
    shards: int = 1,
) -> tuple[Models, dict[str, Array]]:
    """Run `count` rounds starting with round `first`, and return their history.

    The number of rounds is an argument of the loop, so that one program serves every chunk and a
    resumed run repeats the same arithmetic bit for bit. On one of several shards, memories and
    samples are those of its clients.
    """
    num_rows = models.enrolled.shape[0]
    axis = AXIS if shards > 1 else None
    names = (*scalars(models.state), *COUNTS)
    log = {name: jnp.zeros(clients.shape[0]) for name in names}

    def body(place: Array, carry: tuple) -> tuple:
        (state, memories, enrolled, secrets), log = carry
        ids = clients[place]
        rows = ids // shards
        outcome = play(
            rules,
            state=state,
            secrets=secrets,
            memories=tree.combine(lambda leaf: leaf[rows], memories),
            enrolled=enrolled[rows],
            data=data._replace(start=data.start[rows], size=data.size[rows]),
            axes=POOLED_AXES,
            clients=ids,
            present=present[place],
            round=first + place,
            keys=keys,
            axis=axis,
        )
        kept = jnp.where(outcome.accepted, rows, num_rows)  # out of range: not written
        memories = tree.combine(
            lambda leaf, new: leaf.at[kept].set(new, mode="drop"), memories, outcome.memories
        )
        enrolled = enrolled.at[kept].set(True, mode="drop")
        entry = outcome.entry()
        log = {name: log[name].at[place].set(entry[name]) for name in log}
        return Models(outcome.state, memories, enrolled, outcome.secrets), log

    models, log = jax.lax.fori_loop(0, count, body, (models, log))
    return models, log | added({name: log[name] for name in COUNTS}, axis)


_MODELS = Models(state=SAME, memories=ROWS, enrolled=ROWS, secrets=SAME)


@partial(lasting, static_argnames=("rules", "mesh"), donate_argnames="models")
def _compiled(
    models: Models, *given: Any, rules: Rules, mesh: Mesh = ONE
) -> tuple[Models, dict[str, Array]]:
    """`play_rounds` on every shard, with the clients that live there."""
    play_there = mesh.split(
        partial(play_rounds, rules=rules, shards=mesh.shards),
        (_MODELS, SPLIT, SLOTS, SLOTS, SAME, SAME, SAME),
        (_MODELS, SAME),
    )
    return play_there(models, *given)
