"""theta_i is one of a few models that all clients share."""

import math
from dataclasses import dataclass

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict
from fedprior.populations.mixture import SHARE_FLOOR, check_components, mean_of, scattered


@dataclass(frozen=True, kw_only=True)
class Discrete(Population):
    """P(theta_i = center_l) = share_l: a mixture of zero spread (D4; paper Algorithm 7).

    A client has no w of its own, only the probability alpha_l ~ share_l p(data_i | center_l) of
    belonging to component l; with `hard` the most probable component has probability 1, which is
    clustered learning. Use it with `em`: a discrete distribution has no density and thus no
    penalty. gamma contains `centers`, `log_shares` and their `mean`. Shares are at least
    `share_floor`; centers start `jitter` apart.
    """

    num_components: int
    hard: bool = False
    share_floor: float = SHARE_FLOOR
    jitter: float = 0.01
    seed: int = 0

    personal = False
    blocks = ("centers", "log_shares")

    def __post_init__(self) -> None:
        check_components("Discrete", self.num_components, self.share_floor, self.jitter, self.seed)

    def start(self, parameters: PyTree) -> Gamma:
        import jax

        key = jax.random.key(self.seed)
        return self.start_at(scattered(parameters, self.num_components, self.jitter, key))

    def start_at(self, centers: PyTree) -> Gamma:
        """Gamma with the given centers and equal shares."""
        import jax.numpy as jnp

        equal = jnp.full(self.num_components, -math.log(self.num_components))
        return self.project({"centers": centers, "log_shares": equal})

    def center(self, gamma: Gamma) -> PyTree:
        return {}

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        return gamma["mean"]

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        raise TypeError("Discrete has no density, thus no penalty: use em(model, Discrete(...)).")

    def project(self, gamma: Gamma) -> Gamma:
        return {**gamma, "mean": mean_of(gamma)}

    def belonging(self, gamma: Gamma, losses: Array) -> Array:
        """P(component l | data) from -log p(data | center_l), (components,); 0 or 1 if `hard`."""
        import jax
        import jax.numpy as jnp

        logits = jax.nn.log_softmax(gamma["log_shares"]) - losses
        if self.hard:
            best = jnp.argmax(logits)
            return (jnp.arange(self.num_components) == best).astype(jnp.float32)
        return jax.nn.softmax(logits)
