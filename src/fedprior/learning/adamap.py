"""AdaMAP: one network for all, class frequencies of each client's own, a MAP step at the end."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.averaging import Weight
from fedprior.learning.descent import masked_mean
from fedprior.learning.optimizer import optimized, toward
from fedprior.learning.steps import Steps
from fedprior.populations.point import PointMass

_NORM = 1.0  # what gradients are cut to where neither a norm nor a clip is given


def adamap(
    model: Model,
    *,
    steps: Steps = Steps(),
    theta_rate: float = 0.05,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int = 100,
    gradient_norm: float | None = None,
    momentum: float = 0.95,
    horizon: float = 30.0,
    precision: float = 3.0,
    smoothing: float = 1.0,
    class_frequencies: bool = True,
    average_steps: bool = True,
) -> Algorithm:
    """theta_i ~ N(mean, I / precision), and P_i(y | x) ~ exp(f(theta_i, x)_y) pi_i(y).

    pi_i are the class frequencies of client i's own samples, `smoothing` added to every count:
    what a client knows best with little data. The shared network learns what is left to know, and
    clients of few classes no longer pull it toward theirs. A quantity has no such part.

    In a round clients take steps on the likelihood, gradients cut to `gradient_norm` (where it is
    not given, to `clip`, and to 1 without either); the server adds `momentum` to their mean
    increment, and keeps an average over about `horizon` rounds, at least 1: that is the newest mean
    alone. A round in which nobody took part changes nothing. All of that is FedAvg with an
    optimizer that every method can have (`optimized`).

    From that average every client ends with `newcomer_steps` steps toward its posterior mode, at
    `theta_rate`, and keeps the mean of the second half of them, or the last one without
    `average_steps`. Nothing about a client is kept between rounds; a newcomer is served like
    everybody else.
    """
    name = "adamap"
    steps.check_supported(name)
    check.count(name, least=0, newcomer_steps=newcomer_steps)
    check.nonnegative(name, precision=precision, theta_rate=theta_rate)
    check.flag(name, average_steps=average_steps)
    if gradient_norm is None:
        gradient_norm = _NORM if steps.clip is None else steps.clip
    check.positive(name, gradient_norm=gradient_norm)
    return optimized(
        _fedavg_to_modes,
        model,
        momentum=momentum,
        horizon=horizon,
        class_frequencies=class_frequencies,
        smoothing=smoothing,
        name=name,
        steps=replace(steps, clip=gradient_norm),
        theta_rate=theta_rate,
        newcomer_steps=newcomer_steps,
        precision=precision,
        average_steps=average_steps,
        gamma_rate=gamma_rate,
        weight=weight,
    )


def _fedavg_to_modes(
    model: Model,
    *,
    name: str,
    steps: Steps,
    theta_rate: float,
    newcomer_steps: int,
    precision: float,
    average_steps: bool,
    **options: Any,
) -> Algorithm:
    """FedAvg, then steps of each client toward its posterior mode under N(mean, I / precision)."""
    plain = alternating(model, PointMass(), name=name, steps=steps, **options)
    own = steps.constant(theta_rate)

    def personalize(state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        center, size = state["gamma"]["mean"], jnp.maximum(data.size, 1)

        def objective(theta: PyTree, x: Array, y: Array, mask: Array) -> Array:
            loss = masked_mean(model.loss(model.apply(theta, x), y), mask)
            gap = tree.squared_norm(tree.combine(jnp.subtract, theta, center))
            return loss + precision * gap / (2 * size)

        def body(number: Array, carry: tuple[PyTree, Any, PyTree]) -> tuple[PyTree, Any, PyTree]:
            theta, rule, average = carry
            batch = steps.batches.read(memory["words"], number, data)
            gradient = jax.grad(objective)(theta, *batch)
            theta, rule = own.step(gradient, rule, theta, jnp.zeros((), jnp.int32))
            if not average_steps:
                return theta, rule, theta
            rate = 1 / jnp.maximum(number + 1 - newcomer_steps // 2, 1)
            return theta, rule, toward(average, theta, rate)

        number = jnp.where(data.size > 0, newcomer_steps, 0)
        start = (center, own.init(center), center)
        return jax.lax.fori_loop(0, number, body, start)[2]

    return replace(plain, personalize=personalize)
