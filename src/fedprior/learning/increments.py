"""What clients of most methods send, how far they moved their copy of gamma, and its mean."""

from typing import Literal

import jax.numpy as jnp

from fedprior.core import tree
from fedprior.core.algorithm import Array, Message, PyTree, State
from fedprior.data.federation import ClientData

Weight = Literal["uniform", "samples"]


def weight_of(weight: Weight, data: ClientData) -> Array:
    """1, or the client's number of samples."""
    return jnp.ones(()) if weight == "uniform" else data.size.astype(jnp.float32)


def increment(received: PyTree, moved: PyTree, share: Array) -> PyTree:
    """What a client of this share adds to the sum: share * (moved - received)."""
    return tree.combine(lambda new, old: share * (new - old), moved, received)


def add_mean(gamma: PyTree, total: Message, *, rate: float = 1.0) -> PyTree:
    """The next gamma: gamma + rate * total / (sum of weights); gamma where nobody came."""
    share = rate * (1 / jnp.where(total.weight > 0, total.weight, 1))
    return tree.combine(lambda old, sum_: old + share * sum_, gamma, total.value)


def begun(gamma: PyTree) -> State:
    """The state before the first round of a server that knows gamma and the time."""
    return {"gamma": gamma, "round": jnp.zeros((), jnp.int32)}


def added(state: State, total: Message, *, rate: float = 1.0) -> State:
    """`add_mean`, and a round more."""
    gamma = add_mean(state["gamma"], total, rate=rate)
    return {**state, "gamma": gamma, "round": state["round"] + 1}
