"""Common parts of the estimation algorithms for a federation."""

from collections.abc import Callable
from typing import Any

from fedprior.core import tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, State


def as_algorithm(
    name: str,
    init: Callable[[Key], State],
    local: Callable[[State, Memory, Any, Key], tuple[Message, Memory]],
    update: Callable[[State, Message], State],
    personalize: Callable[[State, Memory, Any, Key], Array],
    unit_weight: bool,
) -> Algorithm:
    """An algorithm without memory that predicts theta for every sample, with squared errors."""
    import jax.numpy as jnp

    def predict(theta: Array, x: Array) -> Array:
        return jnp.broadcast_to(theta, (x.shape[0], *theta.shape))

    def loss(outputs: Array, y: Array) -> Array:
        return jnp.sum(((outputs - y) ** 2).reshape(outputs.shape[0], -1), axis=1)

    return Algorithm(
        name=name,
        init=init,
        enroll=lambda state, client, key: {},
        local=local,
        update=update,
        personalize=personalize,
        predict=predict,
        loss=loss,
        score=lambda outputs, y: -loss(outputs, y),
        unit_weight=unit_weight,
        memoryless=True,
    )


def first_state(**gamma: Array) -> State:
    """The state before the first round."""
    import jax.numpy as jnp

    return {"gamma": gamma, "round": jnp.zeros((), jnp.int32)}


def learned(state: State, total: Message, **gamma: Array) -> State:
    """The new population, or the previous one if nobody took part."""
    known = {name: gamma[name].astype(state["gamma"][name].dtype) for name in gamma}
    kept = tree.where(total.weight > 0, known, state["gamma"])
    return {"gamma": kept, "round": state["round"] + 1}


def some(total: Message) -> Array:
    """The total weight, or 1 if it is 0."""
    import jax.numpy as jnp

    return jnp.where(total.weight > 0, total.weight, 1)


def zeros(dimension: int | None) -> Array:
    """A zero scalar or vector."""
    import jax.numpy as jnp

    return jnp.zeros(()) if dimension is None else jnp.zeros(dimension)


def over_samples(mask: Array, like: Array) -> Array:
    """A mask over the first axis of `like`, broadcast over the others."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))


def own_mean(data: Any) -> Array:
    """The client's own mean; 0 without samples. Padding and other clients' rows may be NaN."""
    import jax.numpy as jnp

    def added(x: Array, y: Array, mask: Array) -> Array:
        y = jnp.where(over_samples(mask, y), y, 0).astype(jnp.float32)
        return jnp.sum(y, axis=0)

    total = data.sum_in_turn(added) if data.rows is None else added(*data.all())
    return total / jnp.maximum(data.size, 1)


def shrunk(mean: Array, center: Array, own: Array, data: Any) -> Array:
    """Own * mean + (1 - own) * center; the center for a client without samples."""
    import jax.numpy as jnp

    own = jnp.where(data.size > 0, own, 0)
    return own * mean + (1 - own) * center


def truncated_mean(value: Array, scale: Array, high: Array) -> Array:
    """Mean of N(value, scale^2) truncated to [0, high]."""
    import jax.numpy as jnp

    # By quadrature where the mass is: the closed form loses all digits in float32 far outside.
    first = jnp.clip(jnp.minimum(value, high) - 8 * scale, 0, high)
    last = jnp.clip(jnp.maximum(value, 0) + 8 * scale, 0, high)
    points = first + (jnp.arange(256) + 0.5) / 256 * (last - first)
    exponent = -((points - value) ** 2) / (2 * scale**2)
    density = jnp.exp(exponent - jnp.max(exponent))
    return jnp.sum(density * points) / jnp.sum(density)
