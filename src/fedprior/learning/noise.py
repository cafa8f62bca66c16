"""The variance of a real-valued target around its prediction, sx2 of D5."""

from dataclasses import dataclass

import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Array, State
from fedprior.core.protocols import Model

_FLOOR = 1e-6  # of a learned variance: where a model can interpolate, the data set no other
_LEAST = 0.5  # of the number of samples before: noise in it may not lengthen a step more than twice


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Y ~ N(output, variance): learned from `start`, known, or 1 where targets are classes.

    A model's loss is -log p at variance 1, so that loss / variance is -log p up to a constant.
    The state holds the mean number of a client's samples beside a learned variance; messages are
    relative to it, so that neither is long under a clip, and it is found from 1 on by doubling.
    """

    learned: bool
    start: float

    @classmethod
    def of(cls, model: Model, variance: float | None, owner: str) -> "Noise":
        """Learned for a regression model unless `variance` is given."""
        regression = bool(getattr(model, "regression", False))
        if variance is not None:
            check.positive(owner, noise_variance=variance)
            rule = "None for a classifier"
            check.require(regression, owner, "noise_variance", rule, variance)
        return cls(learned=regression and variance is None, start=variance or 1.0)

    def init(self) -> State:
        """What the server's state holds of it."""
        if not self.learned:
            return {}
        variance = jnp.asarray(self.start, jnp.float32)
        return {"noise_variance": variance, "num_samples": jnp.ones((), jnp.float32)}

    def at(self, state: State) -> Array:
        """The variance in this round."""
        return state["noise_variance"] if self.learned else jnp.asarray(self.start, jnp.float32)

    def statistics(self, state: State, squares: Array, size: Array) -> dict[str, Array]:
        """Of a client of `size` samples with expected sum of squared residuals `squares`."""
        if not self.learned:
            return {}
        number = state["num_samples"]
        residual = squares - size * state["noise_variance"]
        return {"residual": residual / number, "samples": size / number - 1}

    def maximize(self, state: State, average: dict[str, Array], rate: Array) -> State:
        """The variance <- expected squared residuals / samples, each (1 - rate) what it was."""
        if not self.learned:
            return {}
        grown = jnp.maximum(1 + rate * average["samples"], _LEAST)
        variance = state["noise_variance"] + rate * average["residual"] / grown
        return {
            "noise_variance": jnp.maximum(variance, _FLOOR),
            "num_samples": jnp.maximum(state["num_samples"] * grown, 1),
        }
