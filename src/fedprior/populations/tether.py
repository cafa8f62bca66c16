"""A pull toward the mean of one strength for all clients, whatever their number of samples."""

from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict


@dataclass(frozen=True, kw_only=True)
class Tether(Population):
    """strength / 2 ||theta - mean||_2^2 beside the mean loss: N(mean, 1 / (strength n_i)).

    The lambda of the literature, up to a constant of n_i: the more samples a client has, the
    narrower its prior, where the scale of a `Gaussian` is one for all. Clients do not move the mean
    along the penalty: methods that use it learn the mean in ways of their own.
    """

    strength: float

    per_sample = True
    blocks = ()

    def __post_init__(self) -> None:
        check.nonnegative("Tether", strength=self.strength)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        away = tree.combine(lambda own, mean: own - mean, w, gamma["mean"])
        return self.strength / 2 * tree.squared_norm(away)
