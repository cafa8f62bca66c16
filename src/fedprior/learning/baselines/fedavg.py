"""Federated averaging (McMahan et al. 2017), and with fine-tuning (Jiang et al. 2019)."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Key, Memory, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.descent import batch_key, descend, mean_loss
from fedprior.learning.options import passes_on
from fedprior.learning.steps import Steps
from fedprior.populations.point import PointMass

# One model for all, which everybody gets as it is: there is no theta to move or to begin.
SHARED = ("steps", "gamma_rate", "weight")


@passes_on(alternating, *SHARED)
def fedavg(model: Model, **options: Any) -> Algorithm:
    """One model for all: clients take steps on their loss, the server averages the increments.

    All clients count the same by default, as in the other methods here; `weight="samples"` weighs a
    client by its number of samples, as McMahan et al. do.
    """
    return alternating(model, PointMass(), name="fedavg", **options)


@passes_on(alternating, *SHARED[1:])
def fedavg_fine_tuning(
    model: Model,
    *,
    steps: Steps = Steps(),
    fine_tuning_steps: int = 100,
    fine_tuning_rate: float = 0.05,
    **options: Any,
) -> Algorithm:
    """FedAvg, then `fine_tuning_steps` steps of each client on its own loss from the average."""
    name = "fedavg-fine-tuning"
    plain = alternating(model, PointMass(), name=name, steps=steps, **options)
    return fine_tuned(plain, model, steps=steps, number=fine_tuning_steps, rate=fine_tuning_rate)


def fine_tuned(
    shared: Algorithm, model: Model, *, steps: Steps, number: int, rate: float
) -> Algorithm:
    """The same rounds; then every client takes `number` steps of its own from the shared model."""
    check.count(shared.name, least=0, fine_tuning_steps=number)
    check.nonnegative(shared.name, fine_tuning_rate=rate)
    descent = steps.constant(rate)

    def personalize(state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        start = shared.personalize(state, memory, data, key)
        theta, _ = descend(
            mean_loss(model),
            start,
            descent.init(start),
            descent=descent,
            data=data,
            batches=steps.batches,
            words=batch_key(key)["words"],
            first_step=jnp.zeros((), jnp.int32),
            num_steps=jnp.where(data.size > 0, number, 0),
            time=jnp.zeros((), jnp.int32),
        )
        return theta

    return replace(shared, personalize=personalize)
