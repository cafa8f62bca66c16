"""Per-FedAvg: a shared model from which one gradient step of a client's own leads far.

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import Weight, added, begun, increment, weight_of
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, masked_mean

Order = Literal["first", "exact"]


def per_fedavg(
    model: Model,
    *,
    order: Order = "first",
    local_steps: int = 10,
    batches: Batches | None = None,
    theta_rate: float = 0.01,
    gamma_rate: float = 0.1,
    decay: float = 1.0,
    steps_per_epoch: int = 60,
    weight_decay: float = 0.0,
    clip: float | None = None,
    weight: Weight = "uniform",
    name: str = "per-fedavg",
) -> Algorithm:
    """Minimizes the mean over clients of f_i(w - theta_rate * grad f_i(w)) over w.

    A client's step is w <- w - gamma_rate (I - theta_rate H) grad f_i(adapted), the adapted w, the
    gradient there and the Hessian H at w each on a batch of its own. `order="first"` leaves out H
    (and its batch); `"exact"` takes the product by differentiating the gradient along it. A step
    costs 2 or 4 gradients.

    The personal model of everybody, newcomer or not, is w after one step on all of its training
    samples, so `newcomer_steps` has no meaning here. `theta_rate` is part of what is minimized and
    does not decay.
    """
    check.count(name, local_steps=local_steps)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    check.choice(name, "order", order, get_args(Order))
    check.choice(name, "weight", weight, get_args(Weight))
    method = _Adapted(
        model=model,
        order=order,
        local_steps=local_steps,
        batches=Batches(size=20) if batches is None else batches,
        theta_rate=theta_rate,
        descent=Descent(
            rate=gamma_rate,
            decay=decay,
            steps_per_epoch=steps_per_epoch,
            weight_decay=weight_decay,
            clip=clip,
        ),
        weight=weight,
    )
    return Algorithm.of(method, model, name=name, unit_weight=weight == "uniform", memoryless=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Adapted:
    """The functions of `per_fedavg`. State: w, the rounds done. Memory: the key of the batches."""

    model: Model
    order: Order
    local_steps: int
    batches: Batches
    theta_rate: float
    descent: Descent
    weight: Weight

    def init(self, key: Key) -> State:
        return begun(self.model.init(key))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {"words": random.words(random.fold(key, "batches"))}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]
        time = state["round"] * self.local_steps + jnp.arange(self.local_steps)
        number = 2 if self.order == "first" else 3  # batches of a step, one after the other
        steps = number * time[:, None] + jnp.arange(number)
        batch = self.batches.read(memory["words"], steps, data)

        def step(carry: tuple[PyTree, Any], batch: Any) -> tuple[tuple[PyTree, Any], None]:
            *samples, time = batch
            gradient = self._meta_gradient(carry[0], *samples)
            return self.descent.step(gradient, carry[1], carry[0], time), None

        start = (received, self.descent.init(received))
        (w, _), _ = jax.lax.scan(step, start, (*batch, time))
        share = weight_of(self.weight, data)
        return Message(increment(w, received, share), share), memory

    def update(self, state: State, total: Message) -> State:
        return added(state, total)

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        adapted = self._adapt(state["gamma"], *data.all())
        return tree.where(data.size > 0, adapted, state["gamma"])

    def _meta_gradient(self, w: PyTree, x: Array, y: Array, mask: Array) -> PyTree:
        """(I - theta_rate H) grad f(adapted), from two or three batches along the first axis."""
        adapted = self._adapt(w, x[0], y[0], mask[0])
        gradient = self._slope(adapted, x[1], y[1], mask[1])
        if self.order == "first":
            return gradient

        def slope(w: PyTree) -> PyTree:
            return self._slope(w, x[2], y[2], mask[2])

        _, curved = jax.jvp(slope, (w,), (gradient,))
        return tree.combine(lambda g, c: g - self.theta_rate * c, gradient, curved)

    def _adapt(self, w: PyTree, x: Array, y: Array, mask: Array) -> PyTree:
        slope = self._slope(w, x, y, mask)
        return tree.combine(lambda p, g: p - self.theta_rate * g, w, slope)

    def _slope(self, w: PyTree, x: Array, y: Array, mask: Array) -> PyTree:
        def loss(w: PyTree) -> Array:
            return masked_mean(self.model.loss(self.model.apply(w, x), y), mask)

        return jax.grad(loss)(w)
