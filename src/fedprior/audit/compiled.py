"""A channel as the engines call it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import Channel


class Compiled:
    """A channel inside a compiled program: float32, keyed draws, one key per message.

    It takes NumPy arrays and a stream and returns NumPy arrays, so that every check of a channel
    can also be applied to it.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.private = channel.private

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)

    def encode(self, message: Array, key: np.random.Generator) -> Array:
        rows = jnp.asarray(message, jnp.float32).reshape(-1, message.shape[-1])
        keys = jax.random.split(_key(key), len(rows))
        return _plain(jax.jit(jax.vmap(self.channel.encode))(rows, keys), message.shape[:-1])

    def decode(self, total: Array, key: np.random.Generator) -> Array:
        """Decode all totals as one vector from a cohort of one; the noise does not depend on it."""
        flat = jnp.asarray(total, jnp.float32).ravel()

        @jax.jit
        def act(flat: Array, key: Key) -> Array:
            return self.channel.decode(self.channel.add(flat[None]), key)

        return _plain(act(flat, _key(key)).reshape(-1, total.shape[-1]), total.shape[:-1])


def _key(stream: np.random.Generator) -> Any:
    return jax.random.key(int(stream.integers(2**31)))


def _plain(rows: Array, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rows, np.float64).reshape(*shape, -1)
