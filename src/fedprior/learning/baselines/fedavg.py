"""Federated averaging (McMahan et al. 2017), and with fine-tuning (Jiang et al. 2019)."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.batches import Batches
from fedprior.learning.descent import Descent, descend, masked_mean
from fedprior.populations.point import PointMass


def fedavg(model: Model, **options: Any) -> Algorithm:
    """One model for all: clients take steps on their loss, the server averages the increments.

    Clients count alike, as in the other methods here; `weight="samples"` weighs a client by its
    number of samples, as McMahan et al. do. `options` go to `alternating`.
    """
    return alternating(model, PointMass(), name="fedavg", **options)


def fedavg_fine_tuning(
    model: Model,
    *,
    batches: Batches | None = None,
    fine_tuning_steps: int = 100,
    fine_tuning_rate: float = 0.05,
    weight_decay: float = 0.0,
    clip: float | None = None,
    **options: Any,
) -> Algorithm:
    """FedAvg, then `fine_tuning_steps` steps of each client on its own loss from the average."""
    name = "fedavg-fine-tuning"
    check.count(name, least=0, fine_tuning_steps=fine_tuning_steps)
    check.nonnegative(name, fine_tuning_rate=fine_tuning_rate)
    batches = Batches(size=20) if batches is None else batches
    shaped: dict[str, Any] = {"weight_decay": weight_decay, "clip": clip}
    descent = Descent(rate=fine_tuning_rate, **shaped)
    plain = alternating(model, PointMass(), name=name, batches=batches, **shaped, **options)

    def objective(theta: PyTree, x: Array, y: Array, mask: Array) -> Array:
        return masked_mean(model.loss(model.apply(theta, x), y), mask)

    def personalize(state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        mean = plain.personalize(state, memory, data, key)
        theta, _ = descend(
            objective,
            mean,
            descent.init(mean),
            descent=descent,
            data=data,
            batches=batches,
            words=random.words(random.fold(key, "batches")),
            first_step=jnp.zeros((), jnp.int32),
            num_steps=jnp.where(data.size > 0, fine_tuning_steps, 0),
            time=jnp.zeros((), jnp.int32),
        )
        return theta

    return replace(plain, personalize=personalize)
