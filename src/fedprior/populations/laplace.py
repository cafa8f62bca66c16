"""theta_i ~ Laplace(mean, scale) in each coordinate: the l1 penalty."""

from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True, kw_only=True)
class Laplace(Population):
    """-log p = ||theta - mean||_1 / scale + d log(2 scale), `scale` fixed (ERRATA 25: d times).

    `scale` is the parameter b of the Laplace law; a coordinate's standard deviation is sqrt(2) b.
    """

    scale: float

    def __post_init__(self) -> None:
        check.positive("Laplace", scale=self.scale)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        distance = tree.absolute_norm(tree.combine(lambda own, mean: own - mean, w, gamma["mean"]))
        xp = distance.__array_namespace__()
        return distance / self.scale + tree.size(w) * xp.log(2 * xp.asarray(self.scale))
