"""The devices of a run: each has some of the clients, with their memories and their samples."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from fedprior.core import check
from fedprior.core.algorithm import PyTree

AXIS = "clients"
_part: Any = PartitionSpec  # without types in JAX
SAME, ROWS = _part(), _part(AXIS)  # on every shard; a part on each, by first axis
SLOTS = _part(None, AXIS)  # by second axis
Devices = int | Literal["all"] | None
_HASH = 2654435761  # 2**32 divided by the golden ratio (Knuth, section 6.4)


@dataclass(frozen=True)
class Mesh:
    """Devices side by side, the shards of a run; client i is row i // shards of one of them.

    Where a client lives is fixed, and its rounds are computed there: the only thing that shards
    exchange in a round is the sum of what their clients send. Without `devices`, all is on one
    device, wherever JAX puts it.

    In arrays over clients (`ROWS`), and over the slots of a cohort, the part of shard 0 comes
    first. All processes call the same functions in the same order.
    """

    devices: tuple[Any, ...] = ()  # of all processes, in their order

    @property
    def shards(self) -> int:
        return max(1, len(self.devices))

    @property
    def axis(self) -> str | None:
        """The name over which shards add up; None where there is one shard."""
        return AXIS if self.devices else None

    @cached_property
    def processes(self) -> int:
        return len({device.process_index for device in self.devices}) or 1

    @property
    def process(self) -> int:
        """The number of this process; 0 is the one that writes, prints and charges."""
        return jax.process_index() if self.processes > 1 else 0

    @property
    def lead(self) -> bool:
        return self.process == 0

    @cached_property
    def _mesh(self) -> jax.sharding.Mesh:
        return jax.sharding.Mesh(np.array(self.devices), (AXIS,))

    @cached_property
    def _own(self) -> list[int]:
        """The shards of this process, one after the other."""
        return [
            place
            for place, device in enumerate(self.devices)
            if device.process_index == jax.process_index()
        ]

    # Who lives where

    def owners(self, clients: np.ndarray) -> np.ndarray:
        """The shard of each client.

        Every `shards` clients in a row live on all shards, in an order that differs from row to
        row: a cohort of every second client is spread like any other.
        """
        return (clients + _shift(clients // self.shards)) % self.shards

    def processes_of(self, clients: np.ndarray) -> np.ndarray:
        """The process of each client."""
        return np.array([device.process_index for device in self.devices])[self.owners(clients)]

    def members(self, rows: np.ndarray, num_clients: int) -> np.ndarray:
        """The clients of the given rows, those of shard 0 first; the last one where there is none.

        The inverse of `owners`.
        """
        return np.minimum(self._members(rows).ravel(), num_clients - 1)

    def _members(self, rows: np.ndarray) -> np.ndarray:
        shards = np.arange(self.shards)[:, None]
        return rows * self.shards + (shards - _shift(rows)) % self.shards

    def places(self, rows: np.ndarray, chunk: PyTree, num_clients: int) -> np.ndarray:
        """Where the clients of the given rows are in a chunk that begins with them on each shard.

        They are in the order of clients, which follow each other; padding has no place.
        """
        length = jax.tree.leaves(chunk)[0].shape[0] // self.shards
        found = length * np.arange(self.shards)[:, None] + np.arange(len(rows))
        clients = self._members(rows).ravel()
        order = np.argsort(clients)
        return found.ravel()[order[clients[order] < num_clients]]

    def num_rows(self, num_clients: int) -> int:
        """Rows of each shard; the last one may be of no client."""
        return -(-num_clients // self.shards)

    def everyone(self, num_clients: int) -> np.ndarray:
        """The clients of all rows, as `members` has them."""
        return self.members(np.arange(self.num_rows(num_clients)), num_clients)

    def slots(self, clients: np.ndarray, width: int = 0) -> np.ndarray:
        """Where the clients of a cohort sit if each shard has `width` slots."""
        if not self.devices:
            return np.arange(len(clients))
        owners = self.owners(clients)
        order = np.argsort(owners, kind="stable")
        first = np.searchsorted(owners[order], np.arange(self.shards))
        places = np.empty(len(clients), np.intp)
        places[order] = np.arange(len(clients)) - first[owners[order]]
        if len(places) and places.max() >= width:
            raise ValueError(f"mesh: a shard must have at most {width} clients of a cohort.")
        return owners * width + places

    def most(self, clients: np.ndarray) -> int:
        """The most clients of a cohort that live on one shard."""
        return int(np.bincount(self.owners(clients), minlength=self.shards).max())

    # Arrays on shards

    def split(self, function: Callable[..., Any], given: Any, returned: Any) -> Callable[..., Any]:
        """`function` on all shards, each with its part of what `given` and `returned` split."""
        if not self.devices:
            return function
        return jax.shard_map(
            function, mesh=self._mesh, in_specs=given, out_specs=returned, check_vma=False
        )

    def everywhere(self, tree: PyTree) -> PyTree:
        """Host arrays, the same in all processes, on every shard."""
        if not self.devices:
            return jax.device_put(tree)
        return jax.device_put(tree, NamedSharding(self._mesh, SAME))

    def put(self, tree: PyTree) -> PyTree:
        """Host arrays with the rows of this process's shards, as parts of arrays on all shards."""
        if not self.devices:
            return tree
        make = partial(
            jax.make_array_from_process_local_data,
            NamedSharding(self._mesh, ROWS),
        )
        return jax.tree.map(make, tree)

    def own(self, rows: np.ndarray) -> np.ndarray:
        """The part of this process's shards, of host rows for all shards."""
        if self.processes == 1:
            return rows
        return rows.reshape(self.shards, -1, *rows.shape[1:])[self._own].reshape(
            -1, *rows.shape[1:]
        )

    def own_part(self, tree: PyTree) -> PyTree:
        """The rows of this process's shards on the host, in order."""
        if self.processes == 1:
            return jax.device_get(tree)

        def rows(array: Any) -> np.ndarray:
            parts = sorted(array.addressable_shards, key=lambda part: part.index[0].start or 0)
            return np.concatenate([np.asarray(part.data) for part in parts])

        return jax.tree.map(rows, tree)

    def whole(self, tree: PyTree) -> PyTree:
        """The rows of all shards on the host, in every process."""
        if self.processes == 1:
            return jax.device_get(tree)
        return multihost_utils.process_allgather(tree, tiled=True)

    def here(self, tree: PyTree) -> PyTree:
        """What is the same on every shard, on one device of this process."""
        if not self.devices:
            return tree
        return jax.tree.map(lambda array: array.addressable_data(0), tree)

    def rows(self, tree: PyTree, clients: np.ndarray) -> PyTree:
        """The rows of the given clients, as many of each shard, where they are."""
        return _rows(tree, clients, mesh=self)

    def picked(self, chunk: PyTree, places: np.ndarray) -> PyTree:
        """What is at `places` in a chunk, without its padding."""
        if self.devices:
            return jax.tree.map(lambda leaf: leaf[places], self.whole(chunk))
        return jax.tree.map(lambda leaf: leaf[: len(places)], chunk)  # they are the first ones

    # What processes agree on

    def agree(self, value: int) -> int:
        """The value of process 0."""
        if self.processes == 1:
            return value
        return int(multihost_utils.broadcast_one_to_all(np.int32(value)))

    def all_of(self, values: list[int]) -> np.ndarray:
        """The values of every process, one row each; nobody goes on before all have come here."""
        if self.processes == 1:
            return np.array([values])
        # As two words each: without x64, JAX would cut whole numbers of 64 bits.
        words = np.array(values, np.int64).view(np.int32)
        return np.ascontiguousarray(multihost_utils.process_allgather(words)).view(np.int64)


ONE = Mesh()


def mesh_of(devices: Devices = None, *, alone: bool = False) -> Mesh:
    """The mesh of a run on `devices` of this process's devices, and as many of every other's.

    By default all GPUs are used, and one CPU device. `alone` runs cannot be spread: they have one
    device unless more were asked for.
    """
    local = jax.local_device_count()
    if devices == "all":
        count = local
    elif devices is None:
        count = 1 if alone or jax.default_backend() == "cpu" else local
    else:
        check.count("simulate", devices=devices)
        count = devices
    remedy = "A CPU is one device."
    check.require(count <= local, "simulate", "devices", f"at most {local}", devices, remedy)
    if count == 1 and jax.process_count() == 1:
        return ONE
    by_process: dict[int, list[Any]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    return Mesh(tuple(each for _, own in sorted(by_process.items()) for each in own[:count]))


def added(tree: PyTree, axis: str | None) -> PyTree:
    """The sum over shards, within a function that was `split`."""
    add: Any = jax.lax.psum  # without types in JAX
    return tree if axis is None else add(tree, axis)


def _shift(rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.uint64) * np.uint64(_HASH) % np.uint64(2**32) >> np.uint64(16)).astype(
        np.int64
    )


@partial(jax.jit, static_argnames="mesh")
def _rows(tree: PyTree, clients: Any, *, mesh: Mesh) -> PyTree:
    def take(part: PyTree, ids: Any) -> PyTree:
        return jax.tree.map(lambda array: array[ids // mesh.shards], part)

    return mesh.split(take, (ROWS, ROWS), ROWS)(tree, clients)
