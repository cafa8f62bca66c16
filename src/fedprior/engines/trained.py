"""Personal models and scores of batched trainings, for the clients of several seeds at once."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import tree
from fedprior.core.algorithm import Array, PyTree, Theta
from fedprior.core.programs import brief
from fedprior.core.protocols import Channel
from fedprior.core.scores import Metric
from fedprior.data.federation import ClientData
from fedprior.engines import room
from fedprior.engines.device import Models
from fedprior.engines.evaluate import (
    clients_at_once,
    outputs,
    personalize,
    score,
    scores_of,
    unpadded,
)
from fedprior.engines.grid import Family
from fedprior.engines.seeds import Numbers, Seeds
from fedprior.engines.trainings import BY_SEED
from fedprior.exchange.agreement import Rules


def personal(family: Family, point: Numbers, models: Models, seeds: Seeds) -> Theta:
    """Return every client's theta at one point, with leading axes of seeds and clients.

    `models` holds the models of that point, with a leading axis of seeds.
    """

    def work(clients: np.ndarray) -> Theta:
        given = (_arrays(point), models, seeds.train, clients, seeds.roots)
        return room.call(_personalize, *given, family=family, channel=seeds.channel)

    parts = [
        tree.combine(lambda leaf: leaf[:, : len(clients)], part)  # noqa: B023
        for clients, part in _in_chunks(seeds, seeds.train.most, work)
    ]
    return tree.combine(lambda *each: jnp.concatenate(each, axis=1), *parts)


def scores(
    family: Family, point: Numbers, thetas: Theta, seeds: Seeds, part: str, metric: Metric
) -> np.ndarray:
    """Return the score of every client's theta on its `valid` or `test` samples, (seeds, clients).

    A metric that is no mean over samples is computed from outputs on the host, chunk by chunk.
    """
    held_out = seeds.valid if part == "valid" else seeds.held_out(part)

    def work(clients: np.ndarray) -> np.ndarray:
        given = (_arrays(point), thetas, held_out, clients)
        if metric.per_sample:
            return np.asarray(room.call(_score, *given, family=family, metric=metric))
        found = np.asarray(room.call(_outputs, *given, family=family))
        every = zip(found, seeds.federations, strict=True)
        rows = [unpadded(own, getattr(each, part), clients) for own, each in every]
        return np.stack([scores_of(each, len(clients), metric) for each in rows])

    chunks = _in_chunks(seeds, held_out.most, work)
    return np.concatenate([found[:, : len(own)] for own, found in chunks], axis=1)


def _in_chunks(
    seeds: Seeds, rows: int, work: Callable[[np.ndarray], PyTree]
) -> Iterator[tuple[np.ndarray, PyTree]]:
    """`work` on all clients of every seed, of at most `rows` rows each."""
    length = clients_at_once(rows * len(seeds.numbers))
    return room.in_chunks(seeds.num_clients, length, work)


def _arrays(point: Numbers) -> dict[str, Array]:
    return {name: jnp.asarray(value) for name, value in point.items()}


@partial(brief, static_argnames=("family", "channel"))
def _personalize(
    numbers: PyTree,
    models: Models,
    data: ClientData,
    clients: Array,
    roots: Array,
    *,
    family: Family,
    channel: Channel,
) -> Theta:
    rules = Rules(family.at(numbers), channel, 0.0)

    def one(models: Models, own: ClientData, root: Array) -> Theta:
        return personalize(
            models.state,
            tree.combine(lambda rows: rows[clients], models.memories),
            models.enrolled[clients],
            own._replace(start=own.start[clients], size=own.size[clients]),
            clients,
            root,
            rules=rules,
            pooled=True,
        )

    return jax.vmap(one, in_axes=(0, BY_SEED, 0))(models, data, roots)


@partial(brief, static_argnames=("family", "metric"))
def _score(*given: Any, family: Family, metric: Metric) -> Array:
    return _held_out(partial(score, metric=metric), family, *given)


@partial(brief, static_argnames=("family",))
def _outputs(*given: Any, family: Family) -> Array:
    return _held_out(outputs, family, *given)


def _held_out(
    find: Callable[..., Array],
    family: Family,
    numbers: PyTree,
    thetas: Theta,
    data: ClientData,
    clients: Array,
) -> Array:
    """`find` for the given clients of every seed."""
    rules = Rules(family.at(numbers), Identity(), 0.0)

    def one(thetas: Theta, own: ClientData) -> Array:
        thetas = tree.combine(lambda rows: rows[clients], thetas)
        part = own._replace(start=own.start[clients], size=own.size[clients])
        return find(thetas, part, rules=rules, pooled=True)

    return jax.vmap(one, in_axes=(0, BY_SEED))(thetas, data)
