"""A penalty toward the mean with the same strength for all clients, whatever their size."""

from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True, kw_only=True)
class Tether(Population):
    """strength / 2 ||theta - mean||_2^2 beside the mean loss: N(mean, 1 / (strength n_i)).

    This is the lambda of the literature: the more samples a client has, the narrower its prior,
    whereas a `Gaussian` has one scale for all clients. Clients do not move the mean along the
    penalty; methods that use it learn the mean in their own way.
    """

    strength: float

    per_sample = True
    blocks = ()

    def __post_init__(self) -> None:
        check.nonnegative("Tether", strength=self.strength)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        away = tree.combine(lambda own, mean: own - mean, w, gamma["mean"])
        return self.strength / 2 * tree.squared_norm(away)
