"""The samples of clients on the device: one pool that all of them share, or rows of their own."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.data.federation import ClientData, Split
from fedprior.engines.mesh import ONE, ROWS, SAME, Mesh

_POOL_ROWS = 512  # pools on the device are padded to a multiple of this
# Each shard has a part of a batch of clients, and of the rows that it holds.
SPLIT = ClientData(x=ROWS, y=ROWS, start=ROWS, size=ROWS, rows=SAME)


class Source:
    """A split as compiled programs read it: the pool on the device, or padded host rows.

    On a mesh of several shards, each has a pool of its own clients.
    """

    def __init__(self, split: Split, *, pooled: bool, mesh: Mesh = ONE) -> None:
        self.split, self.pooled, self.mesh = split, pooled, mesh
        if pooled and mesh.devices:
            self._pool = _pools(split, mesh)
        elif pooled:
            self._pool = jax.tree.map(jnp.asarray, _filled(split).pooled())

    def take(self, clients: np.ndarray) -> ClientData:
        """Return the data of the given clients, where they are."""
        if not self.pooled:
            return on_shards(self.split.padded(self.mesh.own(clients)), self.mesh)
        start, size = self.mesh.rows((self._pool.start, self._pool.size), clients)
        return self._pool._replace(start=start, size=size)

    def pool(self) -> ClientData:
        """Return the data of all clients, which share the pool."""
        return self._pool


def _filled(split: Split) -> Split:
    """Pad the pool to a multiple of `_POOL_ROWS` rows, at least one.

    Splits of other seeds then have the same shape and share compiled programs, and indices are
    valid even if the split has no rows.
    """
    length = _pool_length(len(split.x))
    if length == len(split.x):
        return split
    x, y = (padded_pools([rows], length)[0] for rows in (split.x, split.y))
    return Split(x, y, split.start, split.size)


def _pool_length(rows: int) -> int:
    return -(-max(1, rows) // _POOL_ROWS) * _POOL_ROWS


def _pools(split: Split, mesh: Mesh) -> ClientData:
    """A pool for each shard, all of one length; `start` counts from the beginning of its own."""
    clients = mesh.everyone(split.num_clients).reshape(mesh.shards, -1)
    length = _pool_length(int(split.size[clients].sum(axis=1).max()))
    own = mesh.own(clients.ravel()).reshape(-1, clients.shape[1])
    parts = [
        Split.gather(
            split.x,
            split.y,
            [np.arange(split.start[each], split.start[each] + split.size[each]) for each in shard],
        )
        for shard in own
    ]

    data = ClientData(
        x=np.concatenate(padded_pools([part.x for part in parts], length)),
        y=np.concatenate(padded_pools([part.y for part in parts], length)),
        start=np.concatenate([part.start for part in parts]),
        size=np.concatenate([part.size for part in parts]),
        rows=np.arange(split.largest, dtype=np.int32),
    )
    return on_shards(data, mesh)


def padded_pools(pools: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Return the pools, each padded with zeros to `length` rows, along a new first axis."""
    whole = np.zeros((len(pools), length, *pools[0].shape[1:]), pools[0].dtype)
    for rows, pool in zip(whole, pools, strict=True):
        rows[: len(pool)] = pool
    return whole


def on_shards(data: ClientData, mesh: Mesh) -> ClientData:
    """The rows of this process's shards, as parts of arrays on all shards."""
    placed = mesh.put(data._replace(rows=None))
    return ClientData(*placed)._replace(rows=data.rows)
