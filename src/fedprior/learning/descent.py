"""Gradient steps: rate decay, weight decay, clipping, an optax rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Array, Key, Memory, PyTree
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.batches import Batches

Objective = Callable[[PyTree, Array, Array, Array], Array]  # (parameters, x, y, mask) -> scalar


@dataclass(frozen=True, kw_only=True)
class Descent:
    """p <- p - rate * decay^(time // steps_per_epoch) * rule(clip(gradient) + weight_decay * p).

    `time` counts gradient steps from the start of training. `rule` is an optax transformation
    without a rate (`optax.scale_by_adam()`, `optax.trace(0.9)`); None is plain gradient descent.
    """

    rate: float
    decay: float = 1.0
    steps_per_epoch: int = 60
    weight_decay: float = 0.0
    clip: float | None = None
    rule: optax.GradientTransformation | None = None

    def __post_init__(self) -> None:
        owner = "Descent"
        check.nonnegative(owner, rate=self.rate, weight_decay=self.weight_decay)
        check.fraction(owner, decay=self.decay)
        check.count(owner, steps_per_epoch=self.steps_per_epoch)
        if self.clip is not None:
            check.positive(owner, clip=self.clip)

    def init(self, parameters: PyTree) -> Any:
        """The rule's state before the first step."""
        return optax.EmptyState() if self.rule is None else self.rule.init(parameters)

    def step(
        self, gradient: PyTree, rule_state: Any, parameters: PyTree, time: Array
    ) -> tuple[PyTree, Any]:
        """One step at `time`."""
        if self.clip is not None:
            norm = jnp.sqrt(tree.squared_norm(gradient))
            shrink = self.clip / jnp.maximum(norm, self.clip)
            gradient = tree.combine(lambda g: g * shrink, gradient)
        if not _is(self.weight_decay, 0):
            gradient = tree.combine(lambda g, p: g + self.weight_decay * p, gradient, parameters)
        if self.rule is not None:
            gradient, rule_state = self.rule.update(gradient, rule_state, parameters)
        rate = self.rate
        if not _is(self.decay, 1):
            rate = rate * jnp.asarray(self.decay) ** (time // self.steps_per_epoch)
        return tree.combine(lambda p, g: p - rate * g, parameters, gradient), rule_state


def _is(option: Any, number: float) -> bool:
    """Whether an option that a sweep may trace is known to be this number."""
    return isinstance(option, float) and option == number


def descend(
    objective: Objective,
    parameters: PyTree,
    rule_state: Any,
    *,
    descent: Descent,
    data: ClientData,
    batches: Batches,
    words: Array,
    first_step: Array,
    num_steps: Array,
    time: Array,
) -> tuple[PyTree, Any]:
    """`num_steps` steps on the client's batches `first_step`, `first_step` + 1, ..., from `time`.

    `num_steps` may differ between the clients of a batch: the loop runs as long as the longest.
    """

    def body(number: Array, carry: tuple[PyTree, Any]) -> tuple[PyTree, Any]:
        batch = batches.read(words, first_step + number, data)
        gradient = jax.grad(objective)(carry[0], *batch)
        return descent.step(gradient, carry[1], carry[0], time + number)

    return jax.lax.fori_loop(0, num_steps, body, (parameters, rule_state))


def reading(key: Key) -> Memory:
    """What a client's memory holds of its batches: their key, and how many it has read."""
    return {**batch_key(key), "step": jnp.zeros((), jnp.int32)}


def batch_key(key: Key) -> Memory:
    """The memory of a client whose batches follow the rounds and not its own past."""
    return {"words": random.words(random.fold(key, "batches"))}


def take_steps(
    gradient: Callable[..., PyTree],
    parameters: PyTree,
    *samples: Array,
    descent: Descent,
    time: Array,
) -> PyTree:
    """The parameters after a step for each row of `samples`, from the state that a rule begins in.

    `gradient(parameters, *row)` is what a step descends, at the row's `time`.
    """

    def step(carry: tuple[PyTree, Any], row: Any) -> tuple[tuple[PyTree, Any], None]:
        *own, now = row
        return descent.step(gradient(carry[0], *own), carry[1], carry[0], now), None

    start = (parameters, descent.init(parameters))
    return jax.lax.scan(step, start, (*samples, time))[0][0]


def mean_loss(model: Model) -> Objective:
    """The mean loss of a model with these parameters on the samples of a batch."""

    def objective(parameters: PyTree, x: Array, y: Array, mask: Array) -> Array:
        return masked_mean(model.loss(model.apply(parameters, x), y), mask)

    return objective


def masked_mean(values: Array, mask: Array) -> Array:
    """Mean of the values whose mask is 1; 0 where there is none."""
    return jnp.sum(values * mask) / jnp.maximum(jnp.sum(mask), 1)
