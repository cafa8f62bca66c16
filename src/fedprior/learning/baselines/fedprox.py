"""FedProx: federated averaging that stays near the model received (Li et al. 2020)."""

from dataclasses import replace
from typing import Any

import optax

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, PyTree
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.options import passes_on
from fedprior.learning.steps import Steps
from fedprior.populations.point import PointMass


@passes_on(alternating, "gamma_rate", "weight")
def fedprox(
    model: Model, *, steps: Steps = Steps(), penalty: float = 0.1, **options: Any
) -> Algorithm:
    """One model for all: a client's steps are on f_i(w) + penalty / 2 ||w - mean received||^2.

    `clip` bounds the gradient of f_i alone.
    """
    name = "fedprox"
    check.nonnegative(name, penalty=penalty)
    steps.check_supported(name, epochs=True)
    steps = replace(steps, rule=_proximal(penalty))
    return alternating(model, PointMass(), name=name, steps=steps, **options)


def _proximal(penalty: float) -> optax.GradientTransformation:
    """Adds penalty * (w - first w); a client's rule begins anew in every round."""

    def init(parameters: PyTree) -> PyTree:
        return parameters

    def update(
        gradient: PyTree, first: PyTree, parameters: PyTree | None = None
    ) -> tuple[PyTree, PyTree]:
        pulled = tree.combine(
            lambda slope, now, then: slope + penalty * (now - then), gradient, parameters, first
        )
        return pulled, first

    return optax.GradientTransformation(init, update)
