"""The parametric members of the family: priors on the parameters themselves."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.learning.em import em
from fedprior.populations.discrete import Discrete
from fedprior.populations.gaussian import Gaussian
from fedprior.populations.laplace import Laplace
from fedprior.populations.mixture import GaussianMixture


def gaussian_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ N(mean, scale^2 I): an l2 penalty towards a learned mean."""
    return alternating(model, Gaussian(scale=scale), name="gaussian-prior", **options)


def laplace_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ Laplace(mean, scale): an l1 penalty towards a learned mean."""
    return alternating(model, Laplace(scale=scale), name="laplace-prior", **options)


def gaussian_em(
    model: Model,
    *,
    scale: float = 1.0,
    scale_floor: float = 1e-3,
    per_coordinate: bool = False,
    **options: Any,
) -> Algorithm:
    """theta_i ~ N(mean, scale^2): mean and scale by EM (D5), the scale beginning at `scale`."""
    population = Gaussian(scale=scale, scale_floor=scale_floor, per_coordinate=per_coordinate)
    return em(model, population, name="gaussian-em", **options)


def laplace_em(
    model: Model, *, scale: float = 1.0, scale_floor: float = 1e-3, **options: Any
) -> Algorithm:
    """theta_i ~ Laplace(mean, scale): both by variational EM, the scale beginning at `scale`."""
    population = Laplace(scale=scale, scale_floor=scale_floor)
    return em(model, population, name="laplace-em", **options)


def mixture_em(
    model: Model,
    *,
    num_components: int = 2,
    scale: float = 1.0,
    scale_floor: float = 1e-3,
    jitter: float = 0.01,
    **options: Any,
) -> Algorithm:
    """theta_i ~ sum_l share_l N(center_l, scale_l^2 I): all of it by EM (ERRATA 26, 27)."""
    population = GaussianMixture(
        num_components=num_components, scale=scale, scale_floor=scale_floor, jitter=jitter
    )
    return em(model, population, name="mixture-em", **options)


def discrete_mixture(
    model: Model, *, num_components: int = 2, jitter: float = 0.01, **options: Any
) -> Algorithm:
    """theta_i is one of a few shared models, by EM (D4); a client predicts with all, weighted."""
    population = Discrete(num_components=num_components, jitter=jitter)
    return em(model, population, name="discrete-mixture", **options)


def clustered(
    model: Model, *, num_components: int = 2, jitter: float = 0.01, **options: Any
) -> Algorithm:
    """Every client trains, and predicts with, the likeliest of a few shared models."""
    population = Discrete(num_components=num_components, hard=True, jitter=jitter)
    return em(model, population, name="clustered", **options)
