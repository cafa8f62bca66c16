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
from fedprior.learning.alternating import Start
from fedprior.learning.averaging import Weight, increment, weight_of
from fedprior.learning.baselines.quped import quped
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, masked_mean
from fedprior.populations.distillation import divergence


def mutual_learning(
    model: Model,
    *,
    theta_share: float = 0.25,
    gamma_share: float = 0.25,
    local_steps: int = 10,
    batches: Batches | None = None,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    decay: float = 1.0,
    steps_per_epoch: int = 60,
    weight_decay: float = 0.0,
    clip: float | None = None,
    start: Start = "population",
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
    name: str = "mutual-learning",
) -> Algorithm:
    """Theta on a f_i(theta) + (1 - a) KL(p_mean || p_theta), and the mean with the roles swapped.

    The mean (the paper's meme) has b f_i(mean) + (1 - b) KL(p_theta || p_mean). Both move at once
    on each batch, the other's predictions held fixed; a = `theta_share` and b = `gamma_share` are
    what labels count for.

    Theta's loss is that of `quped` at a penalty of 1 - a, and a newcomer descends it at the learned
    mean; `start`, `weight` and `newcomer_steps` are those of `alternating`.
    """
    check.within(name, theta_share=theta_share)
    check.fraction(name, gamma_share=gamma_share)
    batches = Batches(size=20) if batches is None else batches
    shaped: dict[str, Any] = {
        "decay": decay,
        "steps_per_epoch": steps_per_epoch,
        "weight_decay": weight_decay,
        "clip": clip,
    }
    plain = quped(
        model,
        penalty=1 - theta_share,
        name=name,
        local_steps=local_steps,
        batches=batches,
        theta_rate=theta_rate,
        gamma_rate=gamma_rate,
        start=start,
        weight=weight,
        newcomer_steps=newcomer_steps,
        **shaped,
    )
    own, shared = Descent(rate=theta_rate, **shaped), Descent(rate=gamma_rate, **shaped)

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
        numbers = jnp.arange(local_steps)
        batch = batches.read(memory["words"], memory["step"] + numbers, data)
        time = state["round"] * local_steps + numbers
        carry = ((memory["w"], received), (memory["rule"], shared.init(received)))
        ((theta, mean), (rule, _)), _ = jax.lax.scan(step, carry, (*batch, time))
        share = weight_of(weight, data)
        memory = {**memory, "w": theta, "rule": rule, "step": memory["step"] + local_steps}
        return Message({"mean": increment(mean, received, share)}, share), memory

    return replace(plain, local=local)


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
