"""Batched trainings: grid points along one axis and seeds along another, in one program."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, PyTree, State
from fedprior.core.programs import brief
from fedprior.core.protocols import Channel
from fedprior.data.federation import ClientData
from fedprior.engines import room
from fedprior.engines.device import LONGEST, Models, play_rounds
from fedprior.engines.grid import Family, Member
from fedprior.engines.pace import Pace
from fedprior.engines.run import stack
from fedprior.engines.seeds import Numbers, Seeds
from fedprior.exchange.agreement import Agreement, Keys, Rules
from fedprior.privacy.participation import Attendance

Log = dict[str, np.ndarray]  # the state's scalars and counts of clients, (points, seeds, rounds)
BY_SEED = ClientData(x=0, y=0, start=0, size=0, rows=None)


def _cohorts(
    agreements: Sequence[Agreement], attendances: Sequence[Attendance], first: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (trainings, LONGEST, capacity) and presence for `count` rounds starting with `first`."""
    rounds = range(first, first + count)
    drawn = [
        stack(attendance.checked(each.draw), rounds, capacity=each.capacity, length=LONGEST)
        for each, attendance in zip(agreements, attendances, strict=True)
    ]
    clients, present = zip(*drawn, strict=True)
    return np.stack(clients), np.stack(present)


def together(family: Family, members: Sequence[Member], seeds: Seeds) -> tuple[int, int]:
    """Return how many points, and how many seeds of each, to try to train together.

    On a CPU this is one: a second training would find no idle cores, and one program serves all
    points. Elsewhere a training is assumed to take four times the size of a cohort's models and all
    memories; whether it does is seen once the program is compiled.
    """
    if jax.default_backend() == "cpu" or not members:
        return 1, 1
    num_points, num_seeds = len(members), len(seeds.numbers)
    agreement = seeds.agreement(family, members[0][1], 0)
    state, memory = map(tree.nbytes, agreement.shapes)
    models = agreement.capacity * state + seeds.num_clients * memory
    pool = sum(each.train.x.nbytes for each in seeds.federations)
    fitting = (room.there() - pool) // (4 * max(1, models))
    if fitting < num_seeds:
        return 1, max(1, fitting)
    return min(num_points, fitting // num_seeds), num_seeds


def train(
    family: Family,
    points: Sequence[Numbers],
    seeds: Seeds,
    *,
    rounds: int,
    at_once: int | None = None,
    tell: Callable[[float], Any] | None = None,
) -> tuple[Models, Log]:
    """Run `rounds` rounds of every point with every seed; `tell` receives the finished share.

    `at_once` clients of a cohort train together. The arrays of the models have leading axes of
    points and seeds.
    """
    places = range(len(seeds.numbers))
    agreements = [[seeds.agreement(family, point, place) for place in places] for point in points]
    # Without privacy, all points of a seed share its cohorts and keys, which have no point axis.
    apart = seeds.channel.private
    rows = agreements if apart else agreements[:1]
    keys = _shaped([each.keys() for row in rows for each in row], len(rows), apart)
    attendances = [[each.attendance() for each in row] for row in rows]
    models = _begin(agreements, family, points, seeds)
    pace, done = Pace(), 0
    logs: list[Log] = []
    while done < rounds:
        count = min(pace.rounds(), rounds - done)
        cohorts = [
            _cohorts(row, known, done, count) for row, known in zip(rows, attendances, strict=True)
        ]
        clients, present = (np.stack(parts) for parts in zip(*cohorts, strict=True))
        if not apart:
            clients, present = clients[0], present[0]
        with pace.timed(count):
            models, log = room.call(
                _advance,
                models,
                _columns(points),
                agreements[0][0].rules.open(seeds.train),
                clients,
                present,
                done,
                count,
                keys,
                family=family,
                channel=seeds.channel,
                expected_size=agreements[0][0].rules.expected_size,
                most_samples=seeds.federations[0].most_samples,
                at_once=at_once,
            )
            logs.append({name: np.asarray(each)[..., :count] for name, each in log.items()})
        done += count
        if tell:
            tell(done / rounds)
    return models, {name: np.concatenate([log[name] for log in logs], -1) for name in logs[0]}


def _shaped(keys: Sequence[Keys], num_points: int, apart: bool) -> Keys:
    """The keys of many trainings as arrays (points, seeds), or (seeds,) if points share them."""
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *keys)
    if not apart:
        return stacked
    return jax.tree.map(lambda each: each.reshape(num_points, -1), stacked)


def _columns(points: Sequence[Numbers]) -> dict[str, Array]:
    """One array per option; if nothing varies, a dummy array with an axis of points."""
    columns = {name: jnp.asarray([point[name] for point in points]) for name in points[0]}
    return columns or {"": jnp.zeros(len(points))}


def _named(numbers: Mapping[str, Array]) -> dict[str, Array]:
    return {name: value for name, value in numbers.items() if name}


def _begin(
    agreements: Sequence[Sequence[Agreement]],
    family: Family,
    points: Sequence[Numbers],
    seeds: Seeds,
) -> Models:
    """The initial states, uncompiled: compiling them for each method would take longer.

    Options are arrays here as they are in the rounds, so that states have the same parts.
    """

    def begin(numbers: PyTree, root: Key) -> State:
        return family.at(_named(numbers)).init(random.fold(root, "init"))

    by_seed = jax.vmap(begin, in_axes=(None, 0))
    state = jax.vmap(by_seed, in_axes=(0, None))(_columns(points), seeds.roots)
    axes = (len(agreements), len(seeds.numbers), seeds.num_clients)
    memory = agreements[0][0].shapes[1]
    memories = jax.tree.map(lambda a: jnp.zeros((*axes, *a.shape), a.dtype), memory)
    secrets = jax.tree.map(
        lambda a: jnp.zeros((*axes[:2], *a.shape), a.dtype), agreements[0][0].secrets()
    )
    return Models(state, memories, jnp.zeros(axes, bool), secrets)


@partial(
    brief,
    static_argnames=("family", "channel", "expected_size", "most_samples", "at_once"),
    donate_argnames=("models",),
)
def _advance(
    models: Models,
    numbers: PyTree,
    data: ClientData,
    clients: Array,  # (points if private, seeds, LONGEST, capacity)
    present: Array,
    first: Array,
    count: Array,
    keys: Keys,
    *,
    family: Family,
    channel: Channel,
    expected_size: float,
    most_samples: int | None,
    at_once: int | None,
) -> tuple[Models, dict[str, Array]]:
    """Run `count` rounds of every training: the loop of the device engine, batched twice."""

    def one(
        models: Models, numbers: PyTree, own: ClientData, ids: Array, here: Array, keys: Keys
    ) -> tuple[Models, dict[str, Array]]:
        algorithm = family.at(_named(numbers))
        rules = Rules(algorithm, channel, expected_size, most_samples, at_once)
        return play_rounds(models, own, ids, here, first, count, keys, rules=rules)

    by_seed = jax.vmap(one, in_axes=(0, None, BY_SEED, 0, 0, 0))
    drawn = 0 if channel.private else None
    by_point = jax.vmap(by_seed, in_axes=(0, 0, None, drawn, drawn, drawn))
    return by_point(models, numbers, data, clients, present, keys)
