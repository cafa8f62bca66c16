"""LeNet-5 as the paper uses it."""

import jax
import jax.numpy as jnp

from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.models.network import Network, dense


def lenet5(num_classes: int = 10) -> Network:
    """5x5x6, pool, 5x5x16, pool, 256-120-84-classes, ReLU: 44,426 parameters with 10 classes."""

    def init(key: Key) -> PyTree:
        keys = jax.random.split(key, 5)
        sizes = ((25, 6), (150, 16), (256, 120), (120, 84), (84, num_classes))
        return [dense(k, *size) for k, size in zip(keys, sizes, strict=True)]

    def apply(parameters: PyTree, x: Array) -> Array:
        for layer in parameters[:2]:
            x = _pool(jax.nn.relu(_conv(x, layer)))
        x = x.reshape(x.shape[0], -1)
        for layer in parameters[2:4]:
            x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
        return x @ parameters[4]["weight"] + parameters[4]["bias"]

    return Network(name="lenet5", init=init, apply=apply)


def _conv(x: Array, layer: PyTree) -> Array:
    h, w = x.shape[1] - 4, x.shape[2] - 4
    patches = jnp.concatenate([x[:, i : i + h, j : j + w] for i in range(5) for j in range(5)], -1)
    return patches @ layer["weight"] + layer["bias"]


def _pool(x: Array) -> Array:
    rows = jnp.maximum(x[:, ::2], x[:, 1::2])
    return jnp.maximum(rows[:, :, ::2], rows[:, :, 1::2])
