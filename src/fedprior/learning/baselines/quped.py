"""QuPeD in full precision: personal models and a shared one that distill each other.

Ozkara, Singh, Data and Diggavi, "QuPeD: Quantized Personalization via Distillation with
Applications to Federated Learning", NeurIPS 2021; here without quantization.
"""

from dataclasses import replace
from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import CLIENT, alternating
from fedprior.learning.options import passes_on
from fedprior.learning.predictive import require_classifier
from fedprior.models.tempered import Tempered
from fedprior.populations.distillation import Direction, Distillation


@passes_on(alternating, *CLIENT)
def quped(
    model: Model,
    *,
    penalty: float = 0.25,
    direction: Direction = "forward",
    temperature: float = 1.0,
    **options: Any,
) -> Algorithm:
    """(1 - penalty) f_i(theta_i) + penalty f_KD(theta_i, mean), over theta_i, then over the mean.

    It is a prior on predictions as AdaPeD's, of a spread psi = 1 / (2 penalty) that is not learned,
    with labels that count for 1 - penalty. The mean learns from what thetas predict, not from
    labels. `direction` is that of `Distillation`: KL(mean || theta), or the reverse.
    """
    name = "quped"
    require_classifier(name, model)
    check.within(name, penalty=penalty)
    psi = 1 / (2 * penalty)
    population = Distillation(
        initial_psi=psi,
        psi_floor=psi,
        learn_psi=False,
        direction=direction,
        temperature=temperature,
    )
    plain = alternating(Tempered(model, 1 - penalty), population, name=name, **options)
    return replace(plain, loss=model.loss)
