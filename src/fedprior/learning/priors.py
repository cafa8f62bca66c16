"""The l2 and l1 members of the family: a prior on the parameters themselves."""

from typing import Any

from fedprior.core.algorithm import Algorithm
from fedprior.core.protocols import Model
from fedprior.learning.alternating import alternating
from fedprior.populations.gaussian import Gaussian
from fedprior.populations.laplace import Laplace


def gaussian_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ N(mean, scale^2 I): an l2 penalty towards a learned mean."""
    return alternating(model, Gaussian(scale=scale), name="gaussian-prior", **options)


def laplace_prior(model: Model, *, scale: float = 1.0, **options: Any) -> Algorithm:
    """theta_i ~ Laplace(mean, scale): an l1 penalty towards a learned mean."""
    return alternating(model, Laplace(scale=scale), name="laplace-prior", **options)
