"""APFL: a mixture of a personal and a shared model (Deng, Kamani and Mahdavi 2020, Algorithm 1)."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.averaging import Weight, increment, weight_of
from fedprior.learning.descent import Descent, mean_loss, reading
from fedprior.learning.steps import Steps, go_on, newcomer
from fedprior.populations.point import PointMass


def apfl(
    model: Model,
    *,
    mixing: float = 0.5,
    mixing_rate: float = 0.0,
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
) -> Algorithm:
    """theta_i = mixing_i v_i + (1 - mixing_i) mean: v_i on f_i(theta_i), the mean by FedAvg.

    In each of `local_steps` steps a client moves, on one batch, v_i along the gradient of
    f_i(mixing_i v_i + (1 - mixing_i) copy) by v_i (which has the factor mixing_i), and its copy of
    the mean along that of f_i(copy), which is what it sends. `mixing` is where mixing_i begins; at
    the start of each round it takes a step of `mixing_rate` down f_i(theta_i) and stays in [0, 1];
    with a rate of 0, the default, it is fixed.

    A client that never took part begins with v_i = mean and takes `newcomer_steps` steps of v_i.
    """
    name = "apfl"
    steps.check_supported(name)
    check.unit(name, mixing=mixing)
    check.nonnegative(name, mixing_rate=mixing_rate, theta_rate=theta_rate, gamma_rate=gamma_rate)
    method = _Mixed(
        model=model,
        mixing=mixing,
        steps=steps,
        own=steps.descent(theta_rate),
        shared=steps.descent(gamma_rate),
        share=steps.bare(mixing_rate),
        weight=weight,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    )
    average = alternating(model, PointMass(), name=name, steps=steps, weight=weight)
    return replace(
        average, enroll=method.enroll, local=method.local, personalize=method.personalize
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixed:
    """The clients' functions of `apfl`; the server's are those of FedAvg.

    Memory: v as `w`, its rule's state, the mixing, the key of the client's batches, its steps.
    """

    model: Model
    mixing: float
    steps: Steps
    own: Descent
    shared: Descent
    share: Descent
    weight: Weight
    newcomer_steps: int

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {
            "w": state["gamma"]["mean"],
            "rule": self.own.init(state["gamma"]["mean"]),
            "mixing": jnp.asarray(self.mixing, jnp.float32),
            **reading(key),
        }

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]["mean"]
        # One batch for both models; it follows the rounds, so that the message tells of no others.
        time = self.steps.times(state["round"])
        x, y, mask = self.steps.batches.read(memory["words"], time, data)
        first = jax.tree.map(lambda leaf: leaf[0], (x, y, mask))
        mixing = self._remix(memory["mixing"], memory["w"], received, first, time[0])

        def step(carry: tuple[PyTree, PyTree], batch: Any) -> tuple[tuple[PyTree, PyTree], None]:
            own, copy = carry
            *samples, time = batch
            by_own = jax.grad(self._mixed_loss, argnums=1)(mixing, own, copy, *samples)
            by_copy = jax.grad(mean_loss(self.model))(copy, *samples)
            return (
                _after(self.own, by_own, own, time),
                _after(self.shared, by_copy, copy, time),
            ), None

        (own, copy), _ = jax.lax.scan(step, (memory["w"], received), (x, y, mask, time))
        weight = weight_of(self.weight, data)
        value = {"mean": increment(copy, received, weight)}
        steps = memory["step"] + self.steps.local_steps
        return Message(value, weight), {**memory, "w": own, "mixing": mixing, "step": steps}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        mean = state["gamma"]["mean"]
        fresh = memory["step"] == 0

        def objective(own: PyTree, x: Array, y: Array, mask: Array) -> Array:
            return self._mixed_loss(memory["mixing"], own, mean, x, y, mask)

        after = go_on(
            self.steps,
            objective,
            {**memory, "w": tree.where(fresh, mean, memory["w"])},
            data,
            self.own,
            number=jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0),
            round=state["round"],
        )
        return _mix(memory["mixing"], after["w"], mean)

    def _remix(
        self, mixing: Array, own: PyTree, shared: PyTree, batch: tuple[Array, ...], time: Array
    ) -> Array:
        """A step of the mixing on the loss of the mixture, back into [0, 1]."""
        slope = jax.grad(self._mixed_loss)(mixing, own, shared, *batch)
        return jnp.clip(_after(self.share, slope, mixing, time), 0, 1)

    def _mixed_loss(
        self, mixing: Array, own: PyTree, shared: PyTree, x: Array, y: Array, mask: Array
    ) -> Array:
        return mean_loss(self.model)(_mix(mixing, own, shared), x, y, mask)


def _mix(mixing: Array, own: PyTree, shared: PyTree) -> PyTree:
    return tree.combine(lambda v, mean: mixing * v + (1 - mixing) * mean, own, shared)


def _after(descent: Descent, gradient: PyTree, parameters: PyTree, time: Array) -> PyTree:
    """The parameters after one step without a rule."""
    return descent.step(gradient, descent.init(parameters), parameters, time)[0]
