"""Several networks trained side by side, whose predictions are averaged."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import (
    Algorithm,
    Array,
    Key,
    Memory,
    Message,
    PyTree,
    State,
    Theta,
)
from fedprior.data.federation import ClientData
from fedprior.learning.predictive import averaged

_COMMON = ("round",)  # entries of a state that networks share


def ensemble(algorithm: Algorithm, networks: int) -> Algorithm:
    """p(y | x) = mean of p(y | x, theta_i^k) over k = 1, ..., `networks`.

    The same method `networks` times, each with an initial draw of its own: clients train all of
    them in a round, and personalize all of them. Networks that fit the data equally well disagree
    where the data say little, so that their mean is less wrong and less sure of itself there.
    Messages and personal models are `networks` times as large, and clients take `networks` times as
    many steps. A quantity is predicted by the mean of their outputs.
    """
    owner = algorithm.name
    check.count(owner, networks=networks)
    if networks == 1:
        return algorithm
    adds = algorithm.pools == "sum" and algorithm.num_clients is None and algorithm.bound is None
    rule = "1, because the server needs more than the sum of messages"
    check.require(adds, owner, "networks", rule, networks)
    rule = "1, because all draws of this model's initial parameters are alike"
    check.require(_start_apart(algorithm), owner, "networks", rule, networks)
    functions = _Ensemble(method=algorithm, networks=networks)
    names = ("init", "enroll", "local", "update", "personalize", "predict")
    return replace(algorithm, moved=None, **{name: getattr(functions, name) for name in names})


def _start_apart(algorithm: Algorithm) -> bool:
    """Whether two initial models differ: a linear one starts at zero."""
    if algorithm.model is None:
        return True
    with jax.ensure_compile_time_eval():
        first, second = (tree.flatten(algorithm.model.init(random.root(seed))) for seed in (0, 1))
        return bool(jnp.any(first != second))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ensemble:
    """The functions of `ensemble`.

    State, memory, message and theta: the method's own, with a leading axis for the networks.
    """

    method: Algorithm
    networks: int

    def init(self, key: Key) -> State:
        return _joined(jax.vmap(self.method.init)(jax.random.split(key, self.networks)))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        def one(state: State) -> Memory:
            return self.method.enroll(state, client, key)

        return jax.vmap(one, in_axes=(_axes(state),))(state)

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        messages, after = self._each(self.method.local, state, memory, data, key)
        return Message(messages.value, messages.weight[0]), after

    def update(self, state: State, total: Message) -> State:
        def one(state: State, value: PyTree) -> State:
            return self.method.update(state, Message(value, total.weight))

        return _joined(jax.vmap(one, in_axes=(_axes(state), 0))(state, total.value))

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        return self._each(self.method.personalize, state, memory, data, key)

    def predict(self, theta: Theta, x: Array) -> Array:
        outputs = jax.vmap(self.method.predict, in_axes=(0, None))(theta, x)
        return averaged(outputs, jnp.full(self.networks, 1 / self.networks), self.method.model)

    def _each(
        self, function: Callable[..., Any], state: State, memory: Memory, data: ClientData, key: Key
    ) -> Any:
        """What a function of a client gives for each network."""

        def one(state: State, memory: Memory, key: Key) -> Any:
            return function(state, memory, data, key)

        keys = jax.random.split(key, self.networks)
        return jax.vmap(one, in_axes=(_axes(state), 0, 0))(state, memory, keys)


def _axes(state: State) -> dict[str, int | None]:
    return {name: None if name in _COMMON else 0 for name in state}


def _joined(states: State) -> State:
    """Stacked states of the networks as one: its common entries are those of any of them."""
    return {name: part[0] if name in _COMMON else part for name, part in states.items()}
