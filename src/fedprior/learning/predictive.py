"""Several models at once: where they start, and what a client unsure of its own predicts.

And what a method that compares predicted probabilities asks of a model.
"""

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, Key, PyTree, Theta
from fedprior.core.protocols import Model, Predict
from fedprior.populations.mixture import scattered


def several(model: Model, number: int, jitter: float, key: Key) -> PyTree:
    """`number` initial models, stacked: draws of their own, `jitter` added to every entry.

    Models that start at zero would otherwise start alike, and stay alike.
    """

    def one(key: Key) -> PyTree:
        return tree.combine(lambda leaf: leaf[0], scattered(model.init(key), 1, jitter, key))

    return jax.vmap(one)(jax.random.split(key, number))


def mixture(components: PyTree, shares: Array) -> Theta:
    """The theta of a client that is model l with probability share_l."""
    return {"components": components, "shares": shares}


def mixed(model: Model) -> Predict:
    """p(y | x) = sum_l share_l p(y | x, component_l), for the theta of `mixture`.

    Log p of each class; for a quantity (a model with `regression`) the mean prediction, which for a
    linear model is that of the mean theta.
    """

    def predict(theta: Theta, x: Array) -> Array:
        outputs = jax.vmap(model.apply, in_axes=(0, None))(theta["components"], x)
        return averaged(outputs, theta["shares"], model)

    return predict


def averaged(outputs: Array, shares: Array, model: Model) -> Array:
    """Mean prediction of several models with these shares, from their stacked outputs."""
    if getattr(model, "regression", False):
        return jnp.tensordot(shares, outputs, axes=1)
    classes = outputs.ndim == 3 and outputs.shape[2] > 1
    rule, remedy = "logits, (samples, classes)", "One of a quantity has regression=True."
    check.require(classes, "mixture", "the model's output", rule, outputs.shape[1:], remedy)
    logs = jnp.log(jnp.maximum(shares, 1e-30))[:, None, None]
    return jax.scipy.special.logsumexp(logs + jax.nn.log_softmax(outputs), axis=0)


def require_classifier(name: str, model: Model) -> None:
    """Refuses a model of a quantity, for a method that distills class probabilities."""
    remedy = "Choose gaussian-prior, fedavg-fine-tuning or local for a quantity."
    quantity = getattr(model, "regression", False)
    check.require(not quantity, name, "model", "a classifier", "regression", remedy)
