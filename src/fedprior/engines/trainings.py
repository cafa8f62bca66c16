"""Trainings side by side: points along one batch axis, seeds along another, one program."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, random, tree
from fedprior.core.algorithm import Array, Memory, PyTree, State, Theta
from fedprior.core.protocols import Cohort
from fedprior.data.federation import ClientData, Federation, Split
from fedprior.engines.device import LONGEST, play_rounds
from fedprior.engines.evaluate import chunks, personalize, score
from fedprior.engines.grid import Family, Member
from fedprior.engines.pace import Pace
from fedprior.engines.run import stack

Numbers = Mapping[str, float]  # of one point
_BY_SEED = ClientData(x=0, y=0, start=0, size=0, rows=None)
_CHANNEL = Identity()
# Trying out kernels takes a GPU longer than the trainings that would gain by it; on a CPU a third
# of the compilation is saved where steps become 6% slower.
_ON_GPU = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
_ON_CPU = {"xla_backend_optimization_level": 1}


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` for programs of which many are compiled and each runs for seconds."""
    on_cpu = jax.jit(function, compiler_options=_ON_CPU, **options)
    on_gpu = jax.jit(function, compiler_options=_ON_GPU, **options)

    @wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        return (on_cpu if jax.default_backend() == "cpu" else on_gpu)(*given, **named)

    return run


class Models(NamedTuple):
    """Trained: every array has leading axes of points and of seeds."""

    state: State
    memories: Memory
    enrolled: Array

    def at(self, place: int) -> "Models":
        """Those of one point, still with an axis of points."""
        return jax.tree.map(lambda leaf: leaf[place : place + 1], self)


@dataclass(frozen=True, eq=False)
class Seeds:
    """The clients as drawn for some seeds, all of one shape, and who takes part in which round."""

    numbers: tuple[int, ...]
    federations: tuple[Federation, ...]
    cohort: Cohort

    def __post_init__(self) -> None:
        counts = sorted({each.num_clients for each in self.federations})
        rule = "of as many clients for every seed"
        check.require(len(counts) == 1, "sweep", "federation", rule, counts)
        self.cohort.capacity(counts[0])  # refuses a cohort larger than the federation

    @property
    def num_clients(self) -> int:
        return self.federations[0].num_clients

    @property
    def expected_size(self) -> float:
        return self.cohort.expected_size(self.num_clients)

    @cached_property
    def roots(self) -> Array:
        return jnp.stack([random.root(number) for number in self.numbers])

    @cached_property
    def train(self) -> ClientData:
        """The training samples on the device, with a leading axis of seeds on all but `rows`."""
        return _stack([each.train for each in self.federations])

    @cached_property
    def valid(self) -> ClientData:
        """The validation samples, like `train`."""
        return self.held_out("valid")

    def held_out(self, part: str) -> ClientData:
        """Validation or test samples, like `train`; both have one shape, so that a program serves
        both (the shape of the test samples is known before they are read).
        """
        both = [getattr(each, name) for name in ("valid", "test") for each in self.federations]
        largest = max(split.largest for split in both)
        length = max(len(split.x) for split in both)
        parts = [getattr(each, part) for each in self.federations]
        return _stack(parts, length=length, largest=largest)

    def groups(self, size: int) -> list["Seeds"]:
        """The same seeds, at most `size` together."""
        if size >= len(self.numbers):
            return [self]
        return [
            Seeds(self.numbers[k : k + size], self.federations[k : k + size], self.cohort)
            for k in range(0, len(self.numbers), size)
        ]

    def cohorts(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (seeds, LONGEST, capacity) and presence in `count` rounds from `first`."""

        def of(seed: int) -> tuple[np.ndarray, np.ndarray]:
            total = self.num_clients
            return stack(
                lambda round: np.asarray(self.cohort.draw(seed, round, total)),
                range(first, first + count),
                capacity=self.cohort.capacity(total),
                length=LONGEST,
            )

        drawn = [of(seed) for seed in self.numbers]
        clients, present = zip(*drawn, strict=True)
        return np.stack(clients), np.stack(present)


def _stack(parts: Sequence[Split], *, length: int = 0, largest: int = 1) -> ClientData:
    length = max([length, 1, *(len(part.x) for part in parts)])
    largest = max([largest, *(part.largest for part in parts)])

    def filled(pools: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.zeros((len(pools), length, *pools[0].shape[1:]), pools[0].dtype)
        for own, pool in zip(whole, pools, strict=True):
            own[: len(pool)] = pool
        return whole

    return ClientData(
        x=jnp.asarray(filled([part.x for part in parts])),
        y=jnp.asarray(filled([part.y for part in parts])),
        start=jnp.asarray(np.stack([part.start for part in parts])),
        size=jnp.asarray(np.stack([part.size for part in parts])),
        rows=jnp.arange(largest, dtype=jnp.int32),
    )


def at_once(family: Family, members: Sequence[Member], seeds: Seeds) -> tuple[int, int]:
    """How many points, and how many seeds of each, to train together.

    On a CPU one: it has nothing idle that a second one would use, and one program serves all
    points. Elsewhere as many as take half the memory, counting four times what a cohort's models
    and all memories take, for what a round makes of them.
    """
    if jax.default_backend() == "cpu" or not members:
        return 1, 1
    num_points, num_seeds = len(members), len(seeds.numbers)
    state, memory = map(tree.nbytes, _shapes(family, members[0][1], seeds))
    models = seeds.cohort.capacity(seeds.num_clients) * state + seeds.num_clients * memory
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 2**33)
    pool = sum(each.train.x.nbytes for each in seeds.federations)
    fitting = (limit // 2 - pool) // (4 * max(1, models))
    if fitting < num_seeds:
        return 1, max(1, fitting)
    return min(num_points, fitting // num_seeds), num_seeds


def train(
    family: Family,
    points: Sequence[Numbers],
    seeds: Seeds,
    *,
    rounds: int,
    tell: Callable[[float], Any] | None = None,
) -> Models:
    """`rounds` rounds of every point with every seed; `tell` hears the share that is done."""
    numbers = _columns(points)
    roots = seeds.roots
    models = _begin(family, points, seeds)
    pace, done = Pace(), 0
    while done < rounds:
        count = min(pace.rounds(), rounds - done)
        clients, present = seeds.cohorts(done, count)
        with pace.timed(count):
            models = _advance(
                models,
                numbers,
                seeds.train,
                clients,
                present,
                done,
                count,
                roots,
                family=family,
                expected_size=seeds.expected_size,
            )
            models.enrolled.block_until_ready()
        done += count
        if tell:
            tell(done / rounds)
    return models


def personal(family: Family, point: Numbers, models: Models, seeds: Seeds) -> Theta:
    """Every client's theta at one point, with leading axes of seeds and of clients.

    `models` are those of that point alone.
    """
    own = jax.tree.map(lambda leaf: leaf[0], models)
    found = []
    for clients, real in _chunks(seeds, seeds.train.rows.shape[0]):
        part = _personalize(_arrays(point), own, seeds.train, clients, seeds.roots, family=family)
        found.append(jax.tree.map(lambda leaf, real=real: leaf[:, :real], part))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *found)


def scores(
    family: Family, point: Numbers, thetas: Theta, seeds: Seeds, held_out: ClientData
) -> np.ndarray:
    """Mean score of every client's theta on `held_out`, (seeds, clients)."""
    found = []
    for clients, real in _chunks(seeds, held_out.rows.shape[0]):
        part = _score(_arrays(point), thetas, held_out, clients, family=family)
        found.append(np.asarray(part)[:, :real])
    return np.concatenate(found, axis=1)


def _chunks(seeds: Seeds, rows: int) -> Iterator[tuple[np.ndarray, int]]:
    """Client ids in chunks of one shape, each with its number of real ones."""
    return chunks(seeds.num_clients, rows * len(seeds.numbers))


def _arrays(point: Numbers) -> dict[str, Array]:
    return {name: jnp.asarray(value) for name, value in point.items()}


def _columns(points: Sequence[Numbers]) -> dict[str, Array]:
    """One array an option; where nothing varies, an axis of the points all the same."""
    columns = {name: jnp.asarray([point[name] for point in points]) for name in points[0]}
    return columns or {"": jnp.zeros(len(points))}


def _named(numbers: Mapping[str, Array]) -> dict[str, Array]:
    return {name: value for name, value in numbers.items() if name}


def _begin(family: Family, points: Sequence[Numbers], seeds: Seeds) -> Models:
    """Initial states, operation by operation: compiled for each method they would take longer."""

    def begun(point: Numbers) -> State:
        init = family.at(point).init
        return jax.vmap(lambda root: init(random.fold(root, "init")))(seeds.roots)

    states = [begun(point) for point in points]
    state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    _, shape = _shapes(family, points[0], seeds)
    axes = (len(points), len(seeds.numbers), seeds.num_clients)
    memories = jax.tree.map(lambda a: jnp.zeros((*axes, *a.shape), a.dtype), shape)
    return Models(state, memories, jnp.zeros(axes, bool))


def _shapes(family: Family, point: Numbers, seeds: Seeds) -> tuple[State, Memory]:
    """Shapes of the state and of one client's memory."""
    algorithm, client = family.at(point), jnp.zeros((), jnp.int32)

    def begun(key: Array) -> tuple[State, Memory]:
        state = algorithm.init(key)
        return state, algorithm.enroll(state, client, key)

    return jax.eval_shape(begun, seeds.roots[0])


@partial(_compiled, static_argnames=("family", "expected_size"), donate_argnames=("models",))
def _advance(
    models: Models,
    numbers: PyTree,
    data: ClientData,
    clients: Array,  # (seeds, LONGEST, capacity)
    present: Array,
    first: Array,
    count: Array,
    roots: Array,
    *,
    family: Family,
    expected_size: float,
) -> Models:
    """`count` rounds of every training; only the data and the cohorts lack the axis of points."""

    def one(
        models: Models, numbers: PyTree, own: ClientData, ids: Array, here: Array, root: Array
    ) -> Models:
        *kept, _ = play_rounds(
            *models,
            own,
            ids,
            here,
            first,
            count,
            root,
            root,
            algorithm=family.at(_named(numbers)),
            channel=_CHANNEL,
            expected_size=expected_size,
        )
        return Models(*kept)

    by_seed = jax.vmap(one, in_axes=(0, None, _BY_SEED, 0, 0, 0))
    by_point = jax.vmap(by_seed, in_axes=(0, 0, None, None, None, None))
    return by_point(models, numbers, data, clients, present, roots)


@partial(_compiled, static_argnames=("family",))
def _personalize(
    numbers: PyTree,
    models: Models,
    data: ClientData,
    clients: Array,
    roots: Array,
    *,
    family: Family,
) -> Theta:
    algorithm = family.at(numbers)

    def one(models: Models, own: ClientData, root: Array) -> Theta:
        return personalize(
            models.state,
            tree.combine(lambda rows: rows[clients], models.memories),
            models.enrolled[clients],
            own._replace(start=own.start[clients], size=own.size[clients]),
            clients,
            root,
            algorithm=algorithm,
            pooled=True,
        )

    return jax.vmap(one, in_axes=(0, _BY_SEED, 0))(models, data, roots)


@partial(_compiled, static_argnames=("family",))
def _score(
    numbers: PyTree, thetas: Theta, data: ClientData, clients: Array, *, family: Family
) -> Array:
    algorithm = family.at(numbers)

    def one(thetas: Theta, own: ClientData) -> Array:
        thetas = tree.combine(lambda rows: rows[clients], thetas)
        part = own._replace(start=own.start[clients], size=own.size[clients])
        return score(thetas, part, algorithm=algorithm, pooled=True)

    return jax.vmap(one, in_axes=(0, _BY_SEED))(thetas, data)
