"""Models from (init, apply) and a likelihood: any JAX network can be used unchanged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.core.protocols import Predict
from fedprior.models.rewriting import fast_convolutions


@dataclass(frozen=True, kw_only=True)
class Network:
    """y ~ p(. | apply(theta, x)): categorical on logits, or normal around a single output.

    `init(key)` returns the parameters, a pytree of arrays; `apply(parameters, x)` the outputs for a
    batch. `loss` and `score` return one value per sample: the loss is -log p up to a constant, the
    score is 1 if the most probable class is right and 0 otherwise, or minus the squared error.
    `scale` is the standard deviation of that normal, `shape` the shape of one input, where it is
    known.
    """

    name: str
    init: Callable[[Key], PyTree]
    apply: Predict
    regression: bool = False
    scale: float = 1.0
    shape: tuple[int, ...] | None = None

    def loss(self, outputs: Array, y: Array) -> Array:
        if self.regression:
            return 0.5 * ((outputs - y) / self.scale) ** 2
        logits = outputs - jax.lax.stop_gradient(outputs.max(axis=-1, keepdims=True))
        # A product with the one-hot label: its gradient needs no scatter.
        own = jnp.sum(logits * jax.nn.one_hot(y, logits.shape[-1], dtype=logits.dtype), axis=-1)
        return jnp.log(jnp.sum(jnp.exp(logits), axis=-1)) - own

    def score(self, outputs: Array, y: Array) -> Array:
        if self.regression:
            return -((outputs - y) ** 2)
        known = jnp.isfinite(outputs).all(axis=-1)  # a diverged model predicts nothing
        return ((jnp.argmax(outputs, axis=-1) == y) & known).astype(jnp.float32)


def network(
    init: Callable[[Key], PyTree],
    apply: Predict,
    *,
    regression: bool = False,
    name: str = "network",
    shape: Sequence[int] | None = None,
    fast: bool = True,
) -> Network:
    """A model from any JAX network: init(key) -> parameters, apply(parameters, x) -> outputs.

    `shape` is that of one input; methods that make inputs (`fedmd`) ask for it. Convolutions and
    pools are computed as in `fedprior.models.layers`, whatever library wrote them (see
    `fedprior.models.fast_convolutions`), unless `fast` is False.
    """
    apply = fast_convolutions(apply) if fast else apply
    known = None if shape is None else tuple(shape)
    return Network(name=name, init=init, apply=apply, regression=regression, shape=known)


def linear(num_features: int) -> Network:
    """Y ~ N(<theta, x> + intercept, 1): squared loss (paper section 3.1)."""
    check.count("linear", num_features=num_features)

    def init(key: Key) -> PyTree:
        return {"intercept": jnp.zeros(()), "weight": jnp.zeros(num_features)}

    def apply(parameters: PyTree, x: Array) -> Array:
        return x.reshape(x.shape[0], -1) @ parameters["weight"] + parameters["intercept"]

    shape = (num_features,)
    return Network(name="linear", init=init, apply=apply, regression=True, shape=shape)


def logistic(num_features: int, num_classes: int = 2) -> Network:
    """P(y = c) = softmax(<theta_c, x> + intercept_c).

    With two classes the first logit is 0, which leaves the single vector of the paper's logistic
    regression (section 3.2).
    """
    check.count("logistic", num_features=num_features)
    check.count("logistic", least=2, num_classes=num_classes)
    free = 1 if num_classes == 2 else num_classes

    def init(key: Key) -> PyTree:
        return {"intercept": jnp.zeros(free), "weight": jnp.zeros((num_features, free))}

    def apply(parameters: PyTree, x: Array) -> Array:
        logits = x.reshape(x.shape[0], -1) @ parameters["weight"] + parameters["intercept"]
        return jnp.pad(logits, ((0, 0), (1, 0))) if free == 1 else logits

    return Network(name="logistic", init=init, apply=apply, shape=(num_features,))


def mlp(
    shape: Sequence[int],
    num_outputs: int,
    *,
    hidden: Sequence[int] = (64,),
    regression: bool = False,
) -> Network:
    """Dense layers with ReLU between them, on the flattened input."""
    owner = "mlp"
    check.count(owner, num_outputs=num_outputs)
    for width in hidden:
        check.count(owner, hidden=width)
    if regression:
        check.require(num_outputs == 1, owner, "num_outputs", "1 for regression", num_outputs)
    widths = (prod(shape), *hidden, num_outputs)

    def init(key: Key) -> PyTree:
        keys = jax.random.split(key, len(widths) - 1)
        return [dense(k, a, b) for k, a, b in zip(keys, widths[:-1], widths[1:], strict=True)]

    def apply(parameters: PyTree, x: Array) -> Array:
        x = x.reshape(x.shape[0], -1)
        for layer in parameters[:-1]:
            x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
        x = x @ parameters[-1]["weight"] + parameters[-1]["bias"]
        return x[:, 0] if regression else x

    known = tuple(shape)
    return Network(name="mlp", init=init, apply=apply, regression=regression, shape=known)


def dense(key: Key, num_inputs: int, num_outputs: int) -> dict[str, Any]:
    """A dense layer before a ReLU: weights N(0, 2 / num_inputs) preserve the signal's scale."""
    scale = sqrt(2 / num_inputs)
    return {
        "bias": jnp.zeros(num_outputs),
        "weight": scale * jax.random.normal(key, (num_inputs, num_outputs)),
    }
