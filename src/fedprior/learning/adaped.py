"""AdaPeD: adaptive personalization by distillation (paper section 3.4, Algorithms 5 and 6)."""

from dataclasses import replace
from typing import Any, Literal, get_args

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning import paper
from fedprior.learning.alternating import CLIENT, alternating
from fedprior.learning.options import passes_on, settable
from fedprior.learning.predictive import require_classifier
from fedprior.populations.distillation import Direction, Distillation, Normalizer

Form = Literal["corrected", "paper"]


@passes_on(alternating, *CLIENT)
def adaped(
    model: Model,
    *,
    psi_rate: float = 0.03,
    initial_psi: float = 4.0,
    psi_floor: float = 0.5,
    psi_scale: float = 1.0,
    direction: Direction = "forward",
    temperature: float = 1.0,
    degrees: float = 1.0,
    normalizer: Normalizer = "paper",
    method: Form = "corrected",
    **options: Any,
) -> Algorithm:
    """theta_i on its own loss + f_KD / (2 psi); the mean model and psi on what thetas predict.

    Sound where the printed Algorithm 5 is not: the newest gamma is sent (ERRATA 39;
    `method="paper"` sends the one before it, as printed) and psi's floor is part of the algorithm
    (ERRATA 41). `psi_scale` is s_psi of the upload [mu ; psi / s_psi], which a private channel
    clips and noises as one vector (ERRATA D7).
    """
    name = "adaped"
    check.nonnegative(name, psi_rate=psi_rate)
    check.choice(name, "method", method, get_args(Form))
    require_classifier(name, model)
    population = Distillation(
        initial_psi=initial_psi,
        psi_floor=psi_floor,
        direction=direction,
        temperature=temperature,
        degrees=degrees,
        normalizer=normalizer,
    )
    return alternating(
        model,
        population,
        name=name,
        block_rates={"psi": psi_rate},
        block_scales={"psi": psi_scale},
        functions=paper.StaleUpload if method == "paper" else None,
        **options,
    )


# Who trains on between rounds begins at the initial model: there is no `start` to choose.
@passes_on(adaped, *settable(adaped, without=("start", "catch_up")), "steps")
def adaped_fine_tuning(model: Model, *, catch_up: int = 100, **options: Any) -> Algorithm:
    """AdaPeD whose unsampled clients keep training alone, at most `catch_up` steps at a time.

    They train against the gamma that they received last, the initial one if none (ERRATA 44), and
    catch up lazily: when they are next sampled or personalized.
    """
    name = "adaped-fine-tuning"
    require_classifier(name, model)
    return replace(adaped(model, catch_up=catch_up, **options), name=name)
