"""theta_i ~ Laplace(mean, scale) in each coordinate: the l1 penalty."""

import math
from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import ClientPosterior, Gamma, Maximizable, Predict, PriorParts
from fedprior.populations.gaussian import first_axis, floored, like, sum_entries

_LEAST_CERTAINTY = 0.01  # in units of 1 / scale^2: a standard deviation of at most 10 scales


@dataclass(frozen=True, kw_only=True)
class Laplace(Maximizable):
    """-log p = ||theta - mean||_1 / scale + d log(2 scale) (ERRATA 25: d times).

    `scale` is the parameter b of the Laplace distribution; the standard deviation of a coordinate
    is sqrt(2) b. `alternating` keeps the initial scale. `em` learns it by variational EM with a
    normal posterior of theta: with t = theta - mean, the scale is the mean of E|t|, and the mean
    has weights (d E|t| / d E t) / E t. A client computes its posterior by fixed-point steps on the
    same bound. The scale is at least `scale_floor`, or the initial scale if that is smaller.

    gamma contains `mean`, `scale` and, for `em`, the clients' mean `weight` in each coordinate.
    Clients send the difference to it, because weights are positive and would fill a clipped
    message.
    """

    scale: float
    scale_floor: float = 1e-3

    def __post_init__(self) -> None:
        check.positive("Laplace", scale=self.scale, scale_floor=self.scale_floor)

    def start(self, parameters: PyTree) -> Gamma:
        import jax.numpy as jnp

        scale = jnp.asarray(self.scale, jnp.float32)
        weight = like(1.0, parameters)  # that of clients at a known distance of one scale
        return self.project({"mean": parameters, "scale": scale, "weight": weight})

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        scale = gamma.get("scale", self.scale)
        distance = tree.absolute_norm(tree.combine(lambda own, mean: own - mean, w, gamma["mean"]))
        xp = distance.__array_namespace__()
        return distance / scale + tree.size(w) * xp.log(2 * xp.asarray(scale))

    def project(self, gamma: Gamma) -> Gamma:
        return {**gamma, "scale": floored(gamma["scale"], self.scale, self.scale_floor)}

    def prior(self, gamma: Gamma) -> ClientPosterior:
        import jax.numpy as jnp

        variance = like(2 * gamma["scale"] ** 2, gamma["mean"])
        return ClientPosterior(jnp.ones(1), first_axis(gamma["mean"]), first_axis(variance))

    def parts(self, gamma: Gamma, posterior: ClientPosterior) -> PriorParts:
        import jax.numpy as jnp

        scale, away = gamma["scale"], _away(gamma, posterior)
        precision = tree.combine(lambda t, v: _weight(t, v) / scale, away, posterior.spread)
        # Far from the kink the prior is flat and adds no certainty; a minimum keeps spread finite.
        least = _LEAST_CERTAINTY / scale**2
        certainty = tree.combine(
            lambda t, v: jnp.maximum(_bend(t, v) / scale, least), away, posterior.spread
        )
        return PriorParts(jnp.zeros(1), first_axis(gamma["mean"]), precision, certainty)

    def statistics(self, gamma: Gamma, posterior: ClientPosterior) -> dict[str, PyTree]:
        scale, away = gamma["scale"], _away(gamma, posterior)
        weight = tree.combine(lambda t, v: scale * _weight(t, v), away, posterior.spread)
        distance = tree.combine(_distance, away, posterior.spread)
        return {
            "mean": tree.combine(lambda one, t: (one * t)[0], weight, away),
            "weight": tree.combine(lambda one, old: one[0] - old, weight, gamma["weight"]),
            "scale": sum_entries(distance) / tree.size(distance) - scale,
        }

    def maximize(self, gamma: Gamma, average: dict[str, PyTree], rate: Array) -> Gamma:
        import jax.numpy as jnp

        least = jnp.minimum(self.scale, self.scale_floor)
        target = jnp.maximum(gamma["scale"] + average["scale"], least)
        # weight * E|t| is at least 2 / pi without noise, which bounds the divisor with noise; a
        # coordinate with a larger spread than the others moves slightly less.
        low = 2 / math.pi * gamma["scale"] / target
        weight = tree.combine(
            lambda old, more: jnp.maximum(old + rate * more, low),
            gamma["weight"],
            average["weight"],
        )
        mean = tree.combine(
            lambda old, top, one: old + rate * top / one, gamma["mean"], average["mean"], weight
        )
        scale = gamma["scale"] + rate * (target - gamma["scale"])
        return self.project({**gamma, "mean": mean, "scale": scale, "weight": weight})


def _away(gamma: Gamma, posterior: ClientPosterior) -> PyTree:
    """E t with t = theta - mean, along the axis of parts."""
    return tree.combine(lambda w, mean: w - mean, posterior.w, gamma["mean"])


def _slope(away: Array, spread: Array) -> Array:
    """Absolute derivative of E|t| by E t for t ~ N(away, spread)."""
    from jax.scipy.special import erf

    return erf(abs(away) / (2 * spread) ** 0.5)


def _weight(away: Array, spread: Array) -> Array:
    """That derivative divided by E t, which has a limit at 0."""
    xp = away.__array_namespace__()
    away = xp.maximum(abs(away), 1e-3 * spread**0.5)
    return _slope(away, spread) / away


def _bend(away: Array, spread: Array) -> Array:
    """Twice the derivative of E|t| by Var t."""
    xp = away.__array_namespace__()
    return (2 / (math.pi * spread)) ** 0.5 * xp.exp(-(away**2) / (2 * spread))


def _distance(away: Array, spread: Array) -> Array:
    """E|t|."""
    return spread * _bend(away, spread) + abs(away) * _slope(away, spread)
