"""Federated mutual learning: a private and a shared model teach each other at every client.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu and Wu, "Federated Mutual Learning", 2020.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import Weight, increment, weight_of
from fedprior.learning.baselines.quped import quped
from fedprior.learning.descent import masked_mean
from fedprior.learning.options import passes_on
from fedprior.learning.predictive import require_classifier
from fedprior.learning.steps import Steps
from fedprior.populations.distillation import divergence


@passes_on(quped, "start", "newcomer_steps")
def mutual_learning(
    model: Model,
    *,
    steps: Steps = Steps(),
    theta_share: float = 0.25,
    gamma_share: float = 0.25,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    **options: Any,
) -> Algorithm:
    """Theta on a f_i(theta) + (1 - a) KL(p_mean || p_theta), and the mean with the roles swapped.

    The mean (the paper's meme) has b f_i(mean) + (1 - b) KL(p_theta || p_mean). Both move at once
    on each batch, the other's predictions held fixed; a = `theta_share` and b = `gamma_share` are
    what labels count for. Theta's loss is that of `quped` at a penalty of 1 - a, and a newcomer
    descends it at the learned mean.
    """
    name = "mutual-learning"
    steps.check_supported(name)
    require_classifier(name, model)
    check.within(name, theta_share=theta_share)
    check.fraction(name, gamma_share=gamma_share)
    common: dict[str, Any] = {"theta_rate": theta_rate, "gamma_rate": gamma_rate, "weight": weight}
    plain = quped(model, penalty=1 - theta_share, steps=steps, **common, **options)
    own, shared = steps.descent(theta_rate), steps.descent(gamma_rate)

    def losses(pair: tuple[PyTree, PyTree], x: Array, y: Array, mask: Array) -> Array:
        return masked_mean(mutual_loss(model, *pair, x, y, theta_share, gamma_share), mask)

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        (theta, mean), (rule, mean_rule) = carry
        *samples, time = batch
        theta_slope, mean_slope = jax.grad(losses)((theta, mean), *samples)
        theta, rule = own.step(theta_slope, rule, theta, time)
        mean, mean_rule = shared.step(mean_slope, mean_rule, mean, time)
        return ((theta, mean), (rule, mean_rule)), None

    def local(state: State, memory: Memory, data: ClientData, key: Key) -> tuple[Message, Memory]:
        received = state["gamma"]["mean"]
        numbers = memory["step"] + jnp.arange(steps.local_steps)
        batch = steps.batches.read(memory["words"], numbers, data)
        time = steps.times(state["round"])
        carry = ((memory["w"], received), (memory["rule"], shared.init(received)))
        ((theta, mean), (rule, _)), _ = jax.lax.scan(step, carry, (*batch, time))
        share = weight_of(weight, data)
        memory = {**memory, "w": theta, "rule": rule, "step": memory["step"] + steps.local_steps}
        return Message({"mean": increment(mean, received, share)}, share), memory

    return replace(plain, name=name, local=local)


def mutual_loss(
    model: Model,
    theta: PyTree,
    mean: PyTree,
    x: Array,
    y: Array,
    theta_share: float,
    gamma_share: float,
) -> Array:
    """The losses of both models at each sample, added; neither teacher's gradient is in it."""
    outputs = model.apply(theta, x), model.apply(mean, x)
    own, shared = (jax.nn.log_softmax(each) for each in outputs)
    fixed_own, fixed_shared = jax.lax.stop_gradient((own, shared))
    of_theta = _mixed(theta_share, model.loss(outputs[0], y), divergence(fixed_shared, own))
    of_mean = _mixed(gamma_share, model.loss(outputs[1], y), divergence(fixed_own, shared))
    return of_theta + of_mean


def _mixed(share: float, loss: Array, taught: Array) -> Array:
    return share * loss + (1 - share) * taught
