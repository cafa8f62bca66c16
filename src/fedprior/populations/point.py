"""One theta for all clients."""

from dataclasses import dataclass

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True)
class PointMass(Population):
    """theta_i = mean for every client: gradient steps on the mean are plain FedAvg."""

    personal = False

    def center(self, gamma: Gamma) -> PyTree:
        return {}

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        return gamma["mean"]

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        return 0.0
