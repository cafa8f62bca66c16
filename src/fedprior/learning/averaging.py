"""What clients send and servers do in federated averaging: increments, and their mean."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import (
    Algorithm,
    Array,
    Key,
    Memory,
    Message,
    Moved,
    PyTree,
    State,
)
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.descent import batch_key
from fedprior.learning.steps import Steps

Weight = Literal["uniform", "samples"]


def weight_of(weight: Weight, data: ClientData) -> Array:
    """What a client counts: 1, or its number of samples."""
    return jnp.ones(()) if weight == "uniform" else data.size.astype(jnp.float32)


def increment(new: PyTree, old: PyTree, share: Array) -> PyTree:
    """Share * (new - old)."""
    return tree.combine(lambda after, before: share * (after - before), new, old)


def moved(old: PyTree, total: PyTree, share: Array) -> PyTree:
    """Old + share * total."""
    return tree.combine(lambda before, sum_: before + share * sum_, old, total)


def toward(old: PyTree, new: PyTree, rate: Array) -> PyTree:
    """Old + rate (new - old), a step of a running mean."""
    return tree.combine(lambda before, after: before + rate * (after - before), old, new)


def mean_share(total: Message) -> Array:
    """What makes the total a mean: 1 / weight, and 1 where nobody took part."""
    return 1 / jnp.where(total.weight > 0, total.weight, 1)


def begun(gamma: PyTree) -> State:
    """The state before the first round of a server that knows gamma and the time."""
    return {"gamma": gamma, "round": jnp.zeros((), jnp.int32)}


def added(state: State, total: Message, *, rate: float = 1.0) -> State:
    """Gamma plus `rate` times the mean increment; one round more."""
    gamma = moved(state["gamma"], total.value, rate * mean_share(total))
    return {**state, "gamma": gamma, "round": state["round"] + 1}


@dataclass(frozen=True, kw_only=True, eq=False)
class AveragedModel:
    """Functions of methods whose server averages increments of what it sends to clients.

    State: gamma, the number of rounds done. Memory: the key of the client's batches, which follow
    the rounds and not the client's own past.
    """

    model: Model
    steps: Steps
    weight: Weight

    def init(self, key: Key) -> State:
        return begun(self.model.init(key))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return batch_key(key)

    def update(self, state: State, total: Message) -> State:
        return added(state, total)

    def message(self, new: PyTree, received: PyTree, data: ClientData) -> Message:
        """The weighted increment of the client's copy."""
        weight = weight_of(self.weight, data)
        return Message(increment(new, received, weight), weight)

    def algorithm(self, name: str, **more: Any) -> Algorithm:
        """The functions as an Algorithm."""
        check.choice(name, "weight", self.weight, get_args(Weight))
        flags = {"unit_weight": self.weight == "uniform", "memoryless": True, "moved": Moved()}
        return Algorithm.of(self, self.model, name=name, **{**flags, **more})


def mean_of_thetas(algorithm: Algorithm, weight: Weight) -> Algorithm:
    """The same clients, whose mean is the average of the cohort's thetas, and is learned so.

    For an `alternating` algorithm whose population has no block to learn. With everyone in every
    round it is the mean of all thetas.
    """

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        _, memory = algorithm.local(state, memory, data, key)
        count = weight_of(weight, data)
        return Message(increment(memory["w"], state["gamma"]["mean"], count), count), memory

    def update(state: State, total: Message) -> State:
        mean = moved(state["gamma"]["mean"], total.value, mean_share(total))
        after = algorithm.update(state, Message({}, total.weight))
        return {**after, "gamma": {**after["gamma"], "mean": mean}}

    return replace(algorithm, local=local, update=update)
