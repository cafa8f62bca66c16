"""theta_i ~ N(mean, scale**2): the l2 penalty."""

import math
from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import ClientPosterior, Gamma, Maximizable, Predict, PriorParts


@dataclass(frozen=True, kw_only=True)
class Gaussian(Maximizable):
    """-log p = ||theta - mean||_2^2 / (2 scale^2) + d log(scale) + d/2 log(2 pi).

    `alternating` learns the mean and keeps the initial scale, because the joint mode over (theta,
    mean, scale) is unbounded (ERRATA 31). `em` learns both: scale^2 is the mean of
    (theta - mean)^2 + posterior variance (D5), over all coordinates or `per_coordinate`. The scale
    is at least `scale_floor`, or the initial scale if that is smaller.
    """

    scale: float
    scale_floor: float = 1e-3
    per_coordinate: bool = False

    def __post_init__(self) -> None:
        check.positive("Gaussian", scale=self.scale, scale_floor=self.scale_floor)

    def start(self, parameters: PyTree) -> Gamma:
        import jax.numpy as jnp

        scale: PyTree = jnp.asarray(self.scale, jnp.float32)
        if self.per_coordinate:
            scale = like(scale, parameters)
        return self.project({"mean": parameters, "scale": scale})

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        scale = self._scale(gamma, w)
        standard = tree.combine(lambda own, mean, sd: (own - mean) / sd, w, gamma["mean"], scale)
        squared = tree.squared_norm(standard)
        xp = squared.__array_namespace__()
        logs = sum_entries(tree.combine(xp.log, scale))
        return squared / 2 + logs + tree.size(w) * math.log(2 * math.pi) / 2

    def project(self, gamma: Gamma) -> Gamma:
        return {**gamma, "scale": floored(gamma["scale"], self.scale, self.scale_floor)}

    def prior(self, gamma: Gamma) -> ClientPosterior:
        import jax.numpy as jnp

        spread = tree.combine(jnp.square, self._scale(gamma, gamma["mean"]))
        return ClientPosterior(jnp.ones(1), first_axis(gamma["mean"]), first_axis(spread))

    def parts(self, gamma: Gamma, posterior: ClientPosterior) -> PriorParts:
        import jax.numpy as jnp

        share, center, variance = self.prior(gamma)
        precision = tree.combine(lambda one: 1 / one, variance)
        return PriorParts(jnp.log(share), center, precision, precision)

    def statistics(self, gamma: Gamma, posterior: ClientPosterior) -> dict[str, PyTree]:
        import jax.numpy as jnp

        w, spread = tree.combine(lambda leaf: leaf[0], (posterior.w, posterior.spread))
        away = tree.combine(jnp.subtract, w, gamma["mean"])
        square = tree.combine(lambda a, s: a**2 + s, away, spread)
        if self.per_coordinate:
            square = tree.combine(lambda q, s: q - s**2, square, gamma["scale"])
        else:
            square = sum_entries(square) / tree.size(w) - gamma["scale"] ** 2
        return {"mean": away, "square": square}

    def maximize(self, gamma: Gamma, average: dict[str, PyTree], rate: Array) -> Gamma:
        import jax.numpy as jnp

        shift = tree.combine(lambda one: rate * one, average["mean"])
        if self.per_coordinate:
            moved = tree.combine(jnp.square, shift)
        else:
            moved = tree.squared_norm(shift) / tree.size(shift)

        def widen(scale: Array, square: Array, moved: Array) -> Array:
            return jnp.sqrt(jnp.maximum(scale**2 + rate * square - moved, 0))

        mean = tree.combine(jnp.add, gamma["mean"], shift)
        scale = tree.combine(widen, gamma["scale"], average["square"], moved)
        return self.project({**gamma, "mean": mean, "scale": scale})

    def _scale(self, gamma: Gamma, w: PyTree) -> PyTree:
        """A scale for each coordinate of w; the initial one if gamma has none."""
        if self.per_coordinate and "scale" in gamma:
            return gamma["scale"]
        return like(gamma.get("scale", self.scale), w)


def like(value: Array, w: PyTree) -> PyTree:
    """The number `value` at every coordinate of w."""
    return tree.combine(lambda leaf: leaf.__array_namespace__().zeros_like(leaf) + value, w)


def sum_entries(w: PyTree) -> Array:
    """Sum of all entries."""
    return tree.flatten(w).sum()


def first_axis(w: PyTree) -> PyTree:
    """The tree with a leading axis of length 1."""
    return tree.combine(lambda leaf: leaf[None], w)


def floored(scale: PyTree, start: float, floor: float) -> PyTree:
    """Scales of at least `floor`, or of at least `start` if that is smaller."""
    import jax.numpy as jnp

    least = jnp.minimum(start, floor)
    return tree.combine(lambda one: jnp.maximum(one, least), scale)
