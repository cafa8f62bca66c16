"""The variance of a real-valued target around its prediction, sx2 of D5."""

from dataclasses import dataclass

import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Array, State
from fedprior.core.protocols import Model

_FLOOR = 1e-6  # of a learned variance: where a model can interpolate, the data set no other


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Y ~ N(output, variance): learned from `start`, known, or 1 where targets are classes.

    A model's loss is -log p at variance 1, so that loss / variance is -log p up to a constant.
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
        return {"noise_variance": jnp.asarray(self.start, jnp.float32)} if self.learned else {}

    def at(self, state: State) -> Array:
        """The variance in this round."""
        return state["noise_variance"] if self.learned else jnp.asarray(self.start, jnp.float32)

    def statistics(self, variance: Array, squares: Array, size: Array) -> dict[str, Array]:
        """Of a client of `size` samples with expected sum of squared residuals `squares`."""
        if not self.learned:
            return {}
        return {"residual": squares - size * variance, "samples": size.astype(jnp.float32)}

    def maximize(self, state: State, average: dict[str, Array], rate: Array) -> State:
        """The variance <- sum of expected squared residuals / number of samples."""
        if not self.learned:
            return {}
        # Every client has a sample: noise may push their mean number below what it can be.
        moved = average["residual"] / jnp.maximum(average["samples"], 1)
        return {"noise_variance": jnp.maximum(self.at(state) + rate * moved, _FLOOR)}
