"""Personal models and scores of all clients, computed in chunks of clients."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, State, Theta
from fedprior.core.scores import OWN, Metric, chosen, target_of
from fedprior.core.tallies import defined, values_by_client
from fedprior.data.federation import PADDED_AXES, POOLED_AXES, ClientData, Federation, Split
from fedprior.engines import room
from fedprior.engines.batch import over_clients
from fedprior.engines.mesh import ONE, ROWS, SAME, Mesh
from fedprior.engines.pools import SPLIT, Source
from fedprior.engines.round import recall
from fedprior.engines.store import Store
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Rules

# Rows in a chunk of clients, which bound the memory for activations. An accelerator needs more of
# them to be fully used.
_ROWS_ON_CPU, _ROWS_ELSEWHERE = 2**14, 2**18
_ALIKE = 64  # clients whose scores for a release are computed together, however large they are
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # outputs, y, place of the client of each sample


def rows_at_once() -> int:
    """Return the number of rows that are evaluated together."""
    return _ROWS_ON_CPU if jax.default_backend() == "cpu" else _ROWS_ELSEWHERE


def clients_at_once(largest: int) -> int:
    """Return the number of clients in a chunk, if the largest of all has `largest` rows."""
    return max(1, rows_at_once() // largest)


def chunks(num_clients: int, largest: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield client ids in chunks of equal length, the last one padded, with their true lengths."""
    length = min(num_clients, clients_at_once(largest))
    for first in range(0, num_clients, length):
        clients = np.arange(first, first + length)
        yield np.minimum(clients, num_clients - 1), min(length, num_clients - first)


def metric_of(owner: str, name: str | None, algorithm: Algorithm, federation: Federation) -> Metric:
    """The metric that was asked for, or the default: accuracy, or RMSE of a quantity.

    Where nobody knows what the outputs are, the model's own score is the default: an algorithm
    without a model, a model of a quantity that is no regression, several targets.
    """
    model, target = algorithm.model, target_of(federation.classes)
    regression = getattr(model, "regression", False) and federation.train.y.ndim == 1
    if name is None and (model is None or (target == "quantity" and not regression)):
        return OWN
    return chosen(owner, name, target)


def check_defined(
    owner: str, metric: Metric, federation: Federation, judges: int | None = None
) -> None:
    """Raise unless some client's validation samples have a value of the metric.

    With `judges`, one of that many first clients.
    """
    split = federation.valid
    number = len(split.size[:judges])
    if metric.per_sample or not split.size[:judges].any():
        return
    rows, place = rows_of(split, np.arange(number))
    if not defined(split.y[rows], place, number, metric.key).any():
        what = "two targets that differ" if metric.target == "quantity" else "two classes"
        which = "some client" if judges is None else f"one of the first {judges} clients (judges)"
        rule = f"defined for the validation samples of {which} ({what} each)"
        remedy = "Choose another metric, or larger validation samples."
        raise ValueError(check.message(owner, "metric", rule, metric.name, remedy))


def personal_models(
    rules: Rules,
    *,
    state: State,
    store: Store,
    source: Source,
    clients: np.ndarray,
    root: Key,
) -> Theta:
    """Return theta of the given clients, with a leading client axis; enroll them if necessary."""
    memories, enrolled = store.read(clients)
    data, mesh = source.take(clients), source.mesh
    given = (state, memories, enrolled, data, clients, root)
    return room.call(_personalize, *given, rules=rules, pooled=source.pooled, mesh=mesh)


def scores(
    rules: Rules,
    *,
    state: State,
    store: Store,
    train: Source,
    splits: dict[str, Source],
    root: Key,
    keep: Callable[[int, Theta], Any] | None = None,
    metric: Metric = OWN,
) -> dict[str, np.ndarray]:
    """Return each client's score on each split, (num_clients,); NaN where it is not defined.

    A client is personalized once, on its training samples, for all splits; `keep(count, thetas)`
    is given the models of the next `count` clients.
    """
    num_clients, mesh = train.split.num_clients, train.mesh
    values = {name: np.empty(num_clients) for name in splits}
    largest = max(source.split.largest for source in (train, *splits.values()))

    def work(rows: np.ndarray) -> tuple[Theta, dict[str, np.ndarray]]:
        clients = mesh.members(rows, num_clients)
        thetas = personal_models(
            rules, state=state, store=store, source=train, clients=clients, root=root
        )
        found = {
            name: _scored(rules, thetas, source, clients, metric=metric)
            for name, source in splits.items()
        }
        return thetas, found

    done, number = 0, mesh.num_rows(num_clients)
    for rows, (thetas, found) in room.in_chunks(number, clients_at_once(largest), work):
        places = mesh.places(rows, thetas, num_clients)
        if keep:
            keep(len(places), mesh.picked(thetas, places))
        for name, part in found.items():
            values[name][done : done + len(places)] = part[places]
        done += len(places)
    return values


def _scored(
    rules: Rules, thetas: Theta, source: Source, clients: np.ndarray, *, metric: Metric
) -> np.ndarray:
    if metric.per_sample:
        how: dict[str, Any] = {
            "rules": rules,
            "pooled": source.pooled,
            "metric": metric,
            "mesh": source.mesh,
        }
        found: np.ndarray = source.mesh.whole(
            room.call(_score, thetas, source.take(clients), **how)
        )
        return found
    return scores_of(outputs_of(rules, thetas, source, clients), len(clients), metric)


def scores_of(rows: Rows, num_clients: int, metric: Metric) -> np.ndarray:
    """Return the scores of clients from their outputs, by any metric."""
    assert metric.target is not None
    return np.asarray(
        metric.signed(values_by_client(*rows, num_clients, metric.target)[metric.key])
    )


def outputs_of(rules: Rules, thetas: Theta, source: Source, clients: np.ndarray) -> Rows:
    """Return the outputs for all samples of the given clients, their y, and whose they are."""
    how: dict[str, Any] = {"rules": rules, "pooled": source.pooled, "mesh": source.mesh}
    found = source.mesh.whole(room.call(_outputs, thetas, source.take(clients), **how))
    return unpadded(found, source.split, clients)


def unpadded(outputs: np.ndarray, split: Split, clients: np.ndarray) -> Rows:
    """(outputs, y, place of the client in `clients`) of the samples, without padding."""
    rows, place = rows_of(split, clients)
    inside = np.arange(outputs.shape[1]) < split.size[clients][:, None]
    return outputs[inside], np.asarray(split.y[rows]), place


def rows_of(split: Split, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the given clients in the pool, and the place of each row's client."""
    size = split.size[clients].astype(np.int64)
    place = np.repeat(np.arange(len(clients)), size)
    within = np.arange(len(place)) - np.repeat(np.cumsum(size) - size, size)
    return split.start[clients].astype(np.int64)[place] + within, place


def own_scores(
    rules: Rules, *, state: State, store: Store, federation: Federation, root: Key
) -> np.ndarray:
    """Return each client's test score, (num_clients,), on which no other client has an effect.

    For a score that is released: unlike in `scores`, no shape depends on how large others are.
    """
    pooled = not isinstance(federation.train.x, np.memmap)
    train, test = (Source(each, pooled=pooled) for each in (federation.train, federation.test))
    most, values = federation.most_samples, np.empty(federation.num_clients)
    rows = None if most is None else np.arange(most, dtype=np.int32)
    for first in range(0, federation.num_clients, _ALIKE):
        clients = np.minimum(np.arange(first, first + _ALIKE), federation.num_clients - 1)
        memories, enrolled = store.read(clients)
        own = train.take(clients)._replace(rows=rows)
        thetas = _personalize(
            state, memories, enrolled, own, clients, root, rules=rules, pooled=pooled
        )
        held_out = test.take(clients)._replace(rows=None)
        found = np.asarray(_score(thetas, held_out, rules=rules, pooled=pooled))
        values[first : first + _ALIKE] = found[: federation.num_clients - first]
    return values


def personalize(
    state: State,
    memories: Memory,
    enrolled: Array,
    data: ClientData,
    clients: Array,
    root: Key,
    *,
    rules: Rules,
    pooled: bool,
) -> Theta:
    """Return theta of every client of a batch; clients without a memory are enrolled first."""
    memories = recall(rules, state, memories, enrolled, clients, root)

    def one(memory: Memory, own: ClientData, client: Array) -> Theta:
        return client_side.personalize(rules, state, memory, own, client, root)

    return over_clients(one, memories, data, clients, axes=axes(pooled))


def score(
    thetas: Theta, data: ClientData, *, rules: Rules, pooled: bool, metric: Metric = OWN
) -> Array:
    """Return the score of each client's theta by a metric that is a mean; NaN without samples."""

    def one(theta: Theta, own: ClientData, _: tuple[()]) -> Array:
        return client_side.score_rows(rules, theta, own, metric)

    return over_clients(one, thetas, data, (), axes=axes(pooled))


def outputs(thetas: Theta, data: ClientData, *, rules: Rules, pooled: bool) -> Array:
    """Return the outputs of each client's theta for its samples, (num_clients, most, ...)."""

    def one(theta: Theta, own: ClientData, _: tuple[()]) -> Array:
        return client_side.output_rows(rules, theta, own)

    return over_clients(one, thetas, data, (), axes=axes(pooled))


def axes(pooled: bool) -> ClientData:
    """What `jax.vmap` maps over, for clients that share a pool or bring rows of their own."""
    return POOLED_AXES if pooled else PADDED_AXES


# Each of them on every shard, with the clients that live there.
_GIVEN = (SAME, ROWS, ROWS, SPLIT, ROWS, SAME)  # to `personalize`


@partial(jax.jit, static_argnames=("rules", "pooled", "mesh"))
def _personalize(*given: Any, rules: Rules, pooled: bool, mesh: Mesh = ONE) -> Theta:
    return mesh.split(partial(personalize, rules=rules, pooled=pooled), _GIVEN, ROWS)(*given)


@partial(jax.jit, static_argnames=("rules", "pooled", "metric", "mesh"))
def _score(
    *given: Any, rules: Rules, pooled: bool, metric: Metric = OWN, mesh: Mesh = ONE
) -> Array:
    there = partial(score, rules=rules, pooled=pooled, metric=metric)
    return mesh.split(there, (ROWS, SPLIT), ROWS)(*given)


@partial(jax.jit, static_argnames=("rules", "pooled", "mesh"))
def _outputs(*given: Any, rules: Rules, pooled: bool, mesh: Mesh = ONE) -> Array:
    return mesh.split(partial(outputs, rules=rules, pooled=pooled), (ROWS, SPLIT), ROWS)(*given)
