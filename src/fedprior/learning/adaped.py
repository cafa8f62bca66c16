"""AdaPeD: adaptive personalization by distillation (paper section 3.4, Algorithms 5 and 6)."""

from typing import Any

import jax

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.predictive import require_classifier
from fedprior.populations.distillation import Direction, Distillation, Normalizer
from fedprior.privacy.planning import noise_to_signal


def adaped(
    model: Model,
    *,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    psi_rate: float = 0.03,
    initial_psi: float = 4.0,
    psi_floor: float = 0.5,
    psi_scale: float = 1.0,
    direction: Direction = "forward",
    temperature: float = 1.0,
    degrees: float = 1.0,
    normalizer: Normalizer = "paper",
    name: str = "adaped",
    **options: Any,
) -> Algorithm:
    """theta_i on its own loss + f_KD / (2 psi); the mean model and psi on what thetas predict.

    Sound where the printed Algorithm 5 is not: the newest gamma is sent (ERRATA 39) and psi's floor
    is part of the algorithm (ERRATA 41). `psi_scale` is s_psi of the upload [mu ; psi / s_psi],
    which a private channel clips and noises as one vector (ERRATA D7). `options` go to
    `alternating`.
    """
    check.nonnegative(name, psi_rate=psi_rate)
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
        theta_rate=theta_rate,
        gamma_rate=gamma_rate,
        block_rates={"psi": psi_rate},
        block_scales={"psi": psi_scale},
        **options,
    )


def trust(noise_to_signal: float, *, psi_floor: float, initial_psi: float) -> dict[str, Any]:
    """Options for a mean model that carries noise: psi_floor at least the noise-to-signal ratio.

    Where the mean is noise, clients agree on its soft predictions all the same, psi falls, and
    every client is pulled toward noise. With a floor at the public ratio of noise to one clipped
    update (`privacy.planning.noise_to_signal`) they stop collaborating instead. psi begins at twice
    the floor or above. Where the noise is larger than an update, clients begin at the initial model
    and not at the noised one.
    """
    check.nonnegative("trust", noise_to_signal=noise_to_signal)
    floor = max(psi_floor, noise_to_signal)
    options: dict[str, Any] = {"psi_floor": floor, "initial_psi": max(initial_psi, 2 * floor)}
    return {**options, "start": "initial"} if noise_to_signal > 1 else options


def trust_under_noise(
    model: Model,
    *,
    noise_multiplier: float,
    rate: float,
    num_clients: int,
    psi_floor: float = 0.5,
    initial_psi: float = 4.0,
) -> dict[str, Any]:
    """`trust` at the noise-to-signal ratio of AdaPeD's upload, the model and psi."""
    size = tree.size(jax.eval_shape(model.init, random.root(0))) + 1
    ratio = noise_to_signal(
        noise=noise_multiplier, num_parameters=size, rate=rate, num_clients=num_clients
    )
    return trust(ratio, psi_floor=psi_floor, initial_psi=initial_psi)


def adaped_fine_tuning(model: Model, *, catch_up: int = 100, **options: Any) -> Algorithm:
    """AdaPeD whose unsampled clients go on alone, at most `catch_up` steps at a time.

    They train against the gamma that they received last, the initial one if none (ERRATA 44), and
    catch up lazily: when they are next sampled or personalized.
    """
    return adaped(model, name="adaped-fine-tuning", catch_up=catch_up, **options)
