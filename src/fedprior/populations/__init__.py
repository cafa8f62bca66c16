"""Priors on the clients' parameters: one population per file."""

from fedprior.populations.discrete import Discrete
from fedprior.populations.distillation import Distillation
from fedprior.populations.flat import Flat
from fedprior.populations.gaussian import Gaussian
from fedprior.populations.laplace import Laplace
from fedprior.populations.mixture import GaussianMixture
from fedprior.populations.multitask import Multitask
from fedprior.populations.point import PointMass
from fedprior.populations.shared_body import SharedBody, SharedHead
from fedprior.populations.subspace import Subspace
from fedprior.populations.tether import Tether

__all__ = [
    "Discrete",
    "Distillation",
    "Flat",
    "Gaussian",
    "GaussianMixture",
    "Laplace",
    "Multitask",
    "PointMass",
    "SharedBody",
    "SharedHead",
    "Subspace",
    "Tether",
]
