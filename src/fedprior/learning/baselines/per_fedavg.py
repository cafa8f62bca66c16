"""Per-FedAvg: a shared model from which one gradient step of a client's own leads far.

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach", NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import AveragedModel, Weight
from fedprior.learning.descent import Descent, mean_loss, take_steps
from fedprior.learning.steps import Steps

Order = Literal["first", "exact"]


def per_fedavg(
    model: Model,
    *,
    order: Order = "first",
    steps: Steps = Steps(),
    theta_rate: float = 0.01,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
) -> Algorithm:
    """Minimizes the mean over clients of f_i(w - theta_rate * grad f_i(w)) over w.

    A client's step is w <- w - gamma_rate (I - theta_rate H) grad f_i(adapted), the adapted w, the
    gradient there and the Hessian H at w each on a batch of its own. `order="first"` leaves out H
    (and its batch); `"exact"` takes the product by differentiating the gradient along it. A step
    costs 2 or 4 gradients.

    The personal model of everybody, newcomer or not, is w after one step on all of its training
    samples. `theta_rate` is part of what is minimized and does not decay.
    """
    name = "per-fedavg"
    steps.check_supported(name, rule=True)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    check.choice(name, "order", order, get_args(Order))
    return _Adapted(
        model=model,
        order=order,
        steps=steps,
        theta_rate=theta_rate,
        descent=steps.descent(gamma_rate),
        weight=weight,
    ).algorithm(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Adapted(AveragedModel):
    """The functions of `per_fedavg`; gamma is w."""

    order: Order
    theta_rate: float
    descent: Descent

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]
        time = self.steps.times(state["round"])
        number = 2 if self.order == "first" else 3  # batches of a step, one after the other
        numbers = number * time[:, None] + jnp.arange(number)
        batch = self.steps.batches.read(memory["words"], numbers, data)
        w = take_steps(self._meta_gradient, received, *batch, descent=self.descent, time=time)
        return self.message(w, received, data), memory

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        w = state["gamma"]
        if data.rows is None:
            adapted = self._toward(w, self._whole_slope(w, data))
        else:
            adapted = self._adapt(w, *data.all())
        return tree.where(data.size > 0, adapted, w)

    def _whole_slope(self, w: PyTree, data: ClientData) -> PyTree:
        """The slope on all samples of a client whose number has no public bound."""

        def block(x: Array, y: Array, mask: Array) -> PyTree:
            def loss(w: PyTree) -> Array:
                return jnp.sum(self.model.loss(self.model.apply(w, x), y) * mask)

            return jax.grad(loss)(w)

        size = jnp.maximum(data.size, 1)
        return tree.combine(lambda leaf: leaf / size, data.sum_in_turn(block))

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
        return self._toward(w, self._slope(w, x, y, mask))

    def _toward(self, w: PyTree, slope: PyTree) -> PyTree:
        return tree.combine(lambda p, g: p - self.theta_rate * g, w, slope)

    def _slope(self, w: PyTree, x: Array, y: Array, mask: Array) -> PyTree:
        return jax.grad(mean_loss(self.model))(w, x, y, mask)
