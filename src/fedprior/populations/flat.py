"""A flat prior: no population."""

from dataclasses import dataclass

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True)
class Flat(Population):
    """p(theta) = const: clients share an initial value and learn alone; nothing is sent."""

    blocks = ()

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        return 0.0
