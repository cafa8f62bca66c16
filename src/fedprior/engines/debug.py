"""One client at a time in plain Python: the slow, readable twin of `simulate`."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import random, tree
from fedprior.core.algorithm import Algorithm, Message
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.engines.result import Result
from fedprior.engines.round import receive, scalars
from fedprior.engines.run import History, Run
from fedprior.engines.store import DeviceStore
from fedprior.privacy.cohort import Everyone


class ClientError(RuntimeError):
    """A client failed in `round`; `inputs` are the arguments of the call that failed."""

    def __init__(self, client: str, round: int, inputs: dict[str, Any], reason: str) -> None:
        super().__init__(f"client {client} failed in round {round}: {reason}")
        self.client, self.round, self.inputs = client, round, inputs


def debug(
    algorithm: Algorithm,
    federation: Federation,
    *,
    rounds: int,
    cohort: Cohort | None = None,
    channel: Channel | None = None,
    seed: int = 0,
    test: bool = True,
    compiled: bool = True,
) -> Result:
    """`simulate` in a plain loop over rounds and clients; stops at the first fault.

    A client that raises, or whose update is not finite, ends the run with a `ClientError` that
    names it and carries its inputs. Draws are those of `simulate`; results agree to rounding.
    `compiled=False` runs the algorithm's functions operation by operation, so that breakpoints and
    prints inside them work. (The noise of a private run is also keyed by its `Saving.identity`,
    which a run in `debug` has not.)
    """
    if compiled:
        names = ("init", "enroll", "local", "update", "personalize", "predict")
        functions: dict[str, Any] = {name: jax.jit(getattr(algorithm, name)) for name in names}
        algorithm = replace(algorithm, **functions)
    run = Run(
        algorithm=algorithm,
        federation=federation,
        rounds=rounds,
        seed=seed,
        cohort=Everyone() if cohort is None else cohort,
        channel=Identity() if channel is None else channel,
    )
    state, root = run.initial_state(), run.root()
    memories: dict[int, Any] = {}
    history: History = []
    for number in range(rounds):
        drawn = run.draw(number)
        messages = [_one(run, state, memories, int(client), number) for client in drawn]
        state = _settle(run, state, messages, number)
        entry = {name: float(value) for name, value in scalars(state).items()}
        history.append({**entry, "clients": float(len(drawn)), "left_out": 0.0})

    found: dict[str, list[float]] = {"valid": [], "test": []}
    for client in range(run.num_clients):
        memory = memories.get(client)
        if memory is None:
            enroll_key = random.fold(root, "enroll", client)
            memory = algorithm.enroll(state, jnp.int32(client), enroll_key)
        key = random.fold(root, "personalize", client)
        theta = algorithm.personalize(state, memory, _data(federation.train, client), key)
        for name in ("valid", "test") if test else ("valid",):
            found[name].append(_score(algorithm, theta, _data(getattr(federation, name), client)))
    return Result(
        algorithm=algorithm,
        federation=federation,
        state=state,
        store=_store(run, memories),
        seed=seed,
        rounds=rounds,
        history=history,
        scores=np.array(found["test"]),
        valid_scores=np.array(found["valid"]),
    )


def _one(run: Run, state: Any, memories: dict[int, Any], client: int, number: int) -> Any:
    """One client's part of a round: what it sends, encoded; its memory is kept."""
    root = run.root()
    if client not in memories:
        enroll_key = random.fold(root, "enroll", client)
        memories[client] = run.algorithm.enroll(state, jnp.int32(client), enroll_key)
    inputs = {
        "state": state,
        "memory": memories[client],
        "data": _data(run.federation.train, client),
        "key": random.fold(root, "local", number, client),
    }
    name = str(run.federation.clients[client])
    try:
        message, memory = run.algorithm.local(*inputs.values())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ClientError(name, number, inputs, reason) from error
    if not bool(tree.is_finite((message, memory))):
        raise ClientError(name, number, inputs, "its update is not finite")
    memories[client] = memory
    key = random.fold(run.channel_root(), "encode", number, client)
    vector = tree.flatten(message.value if run.channel.private else message)
    return run.channel.encode(vector, key), message


def _settle(run: Run, state: Any, sent: list[Any], number: int) -> Any:
    """The server's update from what the clients sent, one (vector, message) each."""
    if run.algorithm.pools == "gather":
        like = sent[0][1] if sent else _nothing(run, state)
        absent = jax.tree.map(jnp.zeros_like, like)
        missing = run.cohort.capacity(run.num_clients) - len(sent)
        parts = [tree.unflatten(vector, like) for vector, _ in sent] + [absent] * missing
        return run.algorithm.update(state, jax.tree.map(lambda *rows: jnp.stack(rows), *parts))
    like = sent[0][1] if sent else _nothing(run, state)
    zero = jnp.zeros_like(tree.flatten(like.value if run.channel.private else like))
    total = sum((vector for vector, _ in sent), start=zero)
    total = receive(run.channel, run.expected_size, total, like, number, run.channel_root())
    return run.algorithm.update(state, total)


def _nothing(run: Run, state: Any) -> Message:
    """A message of zeros: nobody came, and noise is added to the empty total all the same."""
    memory = run.algorithm.enroll(state, jnp.int32(0), run.root())
    inputs = (state, memory, _data(run.federation.train, 0), run.root())
    like, _ = jax.eval_shape(run.algorithm.local, *inputs)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)


def _data(split: Split, client: int) -> ClientData:
    """One client's rows, padded to the largest client so that all have one shape."""
    padded = split.padded(np.array([client]))
    own = padded._replace(x=padded.x[0], y=padded.y[0], start=padded.start[0], size=padded.size[0])
    return jax.tree.map(jnp.asarray, own)


def _score(algorithm: Algorithm, theta: Any, data: Any) -> float:
    values = algorithm.score(algorithm.predict(theta, data.x), data.y)
    return float(jnp.mean(values[: int(data.size)])) if data.size else float("nan")


def _store(run: Run, memories: dict[int, Any]) -> DeviceStore:
    store = DeviceStore.empty(run.shapes()[1], run.num_clients)
    for client, memory in memories.items():
        rows = jax.tree.map(lambda rows, row: rows.at[client].set(row), store.memories, memory)  # noqa: B023
        store = DeviceStore(rows, store.enrolled.at[client].set(True))
    return store
