"""No population at all."""

from dataclasses import dataclass

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True)
class Flat(Population):
    """p(theta) = const: clients share a starting point and learn alone; nothing is sent."""

    blocks = ()

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        return 0.0
