"""The parametric members of the family: priors on the parameters themselves."""

from typing import Any

from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import CLIENT, alternating
from fedprior.learning.em import em
from fedprior.learning.method import ChannelNoise
from fedprior.learning.options import passes_on
from fedprior.populations.discrete import Discrete
from fedprior.populations.gaussian import Gaussian
from fedprior.populations.laplace import Laplace
from fedprior.populations.mixture import SHARE_FLOOR, GaussianMixture

_DEVIATIONS = 3.0  # of the noise on a share: a sum is divided by what the noise hardly reaches
_MOST = 0.6  # of the components' masses, all together, that floors may take up
# Options of `em`: of clients that have a theta of their own, and of those that have none.
_KINDS = ("num_components", "share_floor", "jitter")
_SHARED = ("steps", "gamma_rate", "curvature", "noise_variance")
_FITTED = (*_SHARED, "theta_rate", "curvature_samples", "newcomer_steps", "personal_steps")


@passes_on(alternating, *CLIENT)
def gaussian_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ N(mean, scale^2 I): an l2 penalty towards a learned mean."""
    return alternating(model, Gaussian(scale=scale), name="gaussian-prior", **options)


@passes_on(alternating, *CLIENT)
def laplace_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ Laplace(mean, scale): an l1 penalty towards a learned mean."""
    return alternating(model, Laplace(scale=scale), name="laplace-prior", **options)


@passes_on(em, *_FITTED)
def gaussian_em(
    model: Model,
    *,
    scale: float = 1.0,
    scale_floor: float = 1e-3,
    per_coordinate: bool = False,
    **options: Any,
) -> Algorithm:
    """theta_i ~ N(mean, scale^2): mean and scale by EM (D5), the scale beginning at `scale`."""
    name = "gaussian-em"
    check.flag(name, per_coordinate=per_coordinate)
    population = Gaussian(scale=scale, scale_floor=scale_floor, per_coordinate=per_coordinate)
    return em(model, population, name=name, **options)


@passes_on(em, *_FITTED)
def laplace_em(
    model: Model, *, scale: float = 1.0, scale_floor: float = 1e-3, **options: Any
) -> Algorithm:
    """theta_i ~ Laplace(mean, scale): both by variational EM, the scale beginning at `scale`."""
    population = Laplace(scale=scale, scale_floor=scale_floor)
    return em(model, population, name="laplace-em", **options)


@passes_on(em, *_FITTED)
def mixture_em(
    model: Model,
    *,
    num_components: int = 2,
    scale: float = 1.0,
    scale_floor: float = 1e-3,
    share_floor: float = SHARE_FLOOR,
    jitter: float = 0.01,
    **options: Any,
) -> Algorithm:
    """theta_i ~ sum_l share_l N(center_l, scale_l^2 I): all of it by EM (ERRATA 26, 27).

    Under a private channel raise `share_floor` (`shares_under_noise`).
    """
    population = GaussianMixture(
        num_components=num_components,
        scale=scale,
        scale_floor=scale_floor,
        share_floor=share_floor,
        jitter=jitter,
    )
    return em(model, population, name="mixture-em", **options)


@passes_on(em, *_SHARED)
def _discrete(
    model: Model,
    name: str,
    hard: bool,
    *,
    num_components: int = 2,
    share_floor: float = SHARE_FLOOR,
    jitter: float = 0.01,
    **options: Any,
) -> Algorithm:
    population = Discrete(
        num_components=num_components, hard=hard, share_floor=share_floor, jitter=jitter
    )
    return em(model, population, name=name, **options)


@passes_on(_discrete, *_KINDS, *_SHARED)
def discrete_mixture(model: Model, **options: Any) -> Algorithm:
    """theta_i is one of a few shared models, by EM (D4); a client predicts with all, weighted.

    Under a private channel raise `share_floor` (`shares_under_noise`).
    """
    return _discrete(model, "discrete-mixture", False, **options)


@passes_on(_discrete, *_KINDS, *_SHARED)
def clustered(model: Model, **options: Any) -> Algorithm:
    """Every client trains, and predicts with, the likeliest of a few shared models.

    Under a private channel raise `share_floor` (`shares_under_noise`).
    """
    return _discrete(model, "clustered", True, **options)


def shares_under_noise(
    model: Model,
    noise: ChannelNoise,
    *,
    num_components: int = 2,
    share_floor: float = SHARE_FLOOR,
) -> dict[str, float]:
    """Options for shares that carry noise: share_floor at least 3 deviations of it, z clip / (q m).

    What a component learns is divided by its share of the clients. A share that noise brought down
    to nothing would make that noise divided by nothing, and send the center away for good. The
    floor leaves 0.4 of the mass to the data, however large the noise. It is the same for any model.
    """
    check.positive("shares_under_noise", share_floor=share_floor)
    check.count("shares_under_noise", num_components=num_components)
    deviation = noise.noise_multiplier * noise.clip / (noise.rate * noise.num_clients)
    floor = min(_MOST / num_components, _DEVIATIONS * deviation)
    return {"share_floor": max(share_floor, floor)}
