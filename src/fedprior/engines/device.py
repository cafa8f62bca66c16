"""The engine with memories on the device: many rounds in one compiled loop."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import tree
from fedprior.core.algorithm import Array, Memory, PyTree, State
from fedprior.data.federation import POOLED_AXES, ClientData
from fedprior.engines import room
from fedprior.engines.evaluate import Source
from fedprior.engines.round import play, scalars
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
        self.train = Source(run.federation.train, pooled=True)
        self.history: History = []
        state, memory = run.agreement.shapes
        empty = jax.eval_shape(lambda: _bundle(DeviceStore.empty(memory, run.num_clients)))
        self.secrets = run.agreement.secrets()
        saved = run.resume({"state": state, **empty}, self.secrets)
        if saved is None:
            self.state = run.agreement.initial_state()
            self.store = DeviceStore.empty(memory, run.num_clients)
        else:
            arrays, self.history, _ = saved
            self.state = jax.device_put(arrays["state"])
            self.store = DeviceStore(*jax.device_put((arrays["memories"], arrays["enrolled"])))
            self.secrets = jax.device_put(arrays["secrets"])

    def advance(self, count: int) -> None:
        """Run `count` more rounds, at most `LONGEST`."""
        first = len(self.history)
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
            capacity=self.run.agreement.capacity,
        )
        self.state, self.store = models.state, DeviceStore(models.memories, models.enrolled)
        self.secrets = models.secrets
        columns = {name: jax.device_get(values) for name, values in log.items()}
        self.history += [{name: float(v[r]) for name, v in columns.items()} for r in range(count)]

    def save(self) -> None:
        arrays = jax.device_get({"state": self.state, **_bundle(self.store)})
        self.run.save(self.history, arrays, jax.device_get(self.secrets))


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
) -> tuple[Models, dict[str, Array]]:
    """Run `count` rounds starting with round `first`, and return their history.

    The number of rounds is an argument of the loop, so that one program serves every chunk and a
    resumed run repeats the same arithmetic bit for bit.
    """
    num_clients = models.enrolled.shape[0]
    names = (*scalars(models.state), "clients", "left_out")
    log = {name: jnp.zeros(clients.shape[0]) for name in names}

    def body(place: Array, carry: tuple) -> tuple:
        (state, memories, enrolled, secrets), log = carry
        ids = clients[place]
        outcome = play(
            rules,
            state=state,
            secrets=secrets,
            memories=tree.combine(lambda rows: rows[ids], memories),
            enrolled=enrolled[ids],
            data=data._replace(start=data.start[ids], size=data.size[ids]),
            axes=POOLED_AXES,
            clients=ids,
            present=present[place],
            round=first + place,
            keys=keys,
        )
        kept = jnp.where(outcome.accepted, ids, num_clients)  # out of range: not written
        memories = tree.combine(
            lambda rows, new: rows.at[kept].set(new, mode="drop"), memories, outcome.memories
        )
        enrolled = enrolled.at[kept].set(True, mode="drop")
        entry = outcome.entry()
        log = {name: log[name].at[place].set(entry[name]) for name in log}
        return Models(outcome.state, memories, enrolled, outcome.secrets), log

    return jax.lax.fori_loop(0, count, body, (models, log))


_compiled = jax.jit(play_rounds, static_argnames="rules", donate_argnames="models")
