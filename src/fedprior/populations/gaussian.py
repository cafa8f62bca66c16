"""theta_i ~ N(mean, scale**2 I): the l2 penalty."""

import math
from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True, kw_only=True)
class Gaussian(Population):
    """-log p = ||theta - mean||_2^2 / (2 scale^2) + d log(scale) + d/2 log(2 pi), `scale` fixed.

    The scale is never free here: the joint mode over (theta, mean, scale) is unbounded (ERRATA 31).
    """

    scale: float

    def __post_init__(self) -> None:
        check.positive("Gaussian", scale=self.scale)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        squared = tree.squared_norm(tree.combine(lambda own, mean: own - mean, w, gamma["mean"]))
        xp = squared.__array_namespace__()
        normalizer = xp.log(xp.asarray(self.scale)) + math.log(2 * math.pi) / 2
        return squared / (2 * self.scale**2) + tree.size(w) * normalizer
