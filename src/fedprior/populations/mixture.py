"""theta_i ~ sum_l share_l N(center_l, scale_l**2 I): the clustering penalty."""

import math
from dataclasses import dataclass

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.core.protocols import ClientPosterior, Gamma, Maximizable, Predict, PriorParts
from fedprior.populations.gaussian import floored

SHARE_FLOOR = 1e-3  # smallest share of a component if no noise is added


@dataclass(frozen=True, kw_only=True)
class GaussianMixture(Maximizable):
    """-log p = -log sum_l share_l (2 pi v_l)^(-d/2) exp(-||theta - center_l||^2 / (2 v_l)).

    v_l = scale_l^2: the paper's penalty with signs, shares and exponents corrected (ERRATA 26).
    gamma contains `centers` (theta's tree with a leading axis of components), `log_shares` up to a
    constant, a `scale` for each, and their `mean`. `alternating` learns centers and shares and
    keeps the initial scales. `em` learns all three from posterior means and variances; without the
    variances a scale would tend to 0 (ERRATA 27). Scales are at least `scale_floor`, or the initial
    scale if that is smaller; shares are at least `share_floor`, so that a component can recover.

    Centers start `jitter` (a standard deviation) apart, drawn from `seed` or, under `em`, from the
    run's own stream; equal centers would remain equal.
    """

    num_components: int
    scale: float = 1.0
    scale_floor: float = 1e-3
    share_floor: float = SHARE_FLOOR
    jitter: float = 0.01
    seed: int = 0

    blocks = ("centers", "log_shares")

    def __post_init__(self) -> None:
        owner = "GaussianMixture"
        check_components(owner, self.num_components, self.share_floor, self.jitter, self.seed)
        check.positive(owner, scale=self.scale, scale_floor=self.scale_floor)

    @property
    def num_parts(self) -> int:
        return self.num_components

    def start(self, parameters: PyTree) -> Gamma:
        import jax

        key = jax.random.key(self.seed)
        return self.start_at(scattered(parameters, self.num_components, self.jitter, key))

    def start_at(self, centers: PyTree) -> Gamma:
        """Gamma with the given centers, equal shares and the starting scale."""
        import jax.numpy as jnp

        scale = jnp.full(self.num_components, self.scale, jnp.float32)
        equal = jnp.full(self.num_components, -math.log(self.num_components))
        return self.project({"centers": centers, "log_shares": equal, "scale": scale})

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        import jax

        return -jax.scipy.special.logsumexp(self._log_terms(gamma, w))

    def project(self, gamma: Gamma) -> Gamma:
        scale = floored(gamma["scale"], self.scale, self.scale_floor)
        return {**gamma, "scale": scale, "mean": mean_of(gamma)}

    def pull(self, gamma: Gamma, w: PyTree) -> tuple[PyTree, Array]:
        """The center c and precision P for which P (w - c) is the penalty's gradient at w."""
        import jax
        import jax.numpy as jnp

        weight = jax.nn.softmax(self._log_terms(gamma, w)) / gamma["scale"] ** 2
        precision = jnp.sum(weight)
        center = tree.combine(
            lambda leaf: jnp.tensordot(weight, leaf, axes=1) / precision, gamma["centers"]
        )
        return center, precision

    def prior(self, gamma: Gamma) -> ClientPosterior:
        import jax

        centers = gamma["centers"]
        spread = tree.combine(
            lambda leaf: 0 * leaf + per_component(gamma["scale"], leaf) ** 2, centers
        )
        return ClientPosterior(jax.nn.softmax(gamma["log_shares"]), centers, spread)

    def parts(self, gamma: Gamma, posterior: ClientPosterior) -> PriorParts:
        import jax

        prior = self.prior(gamma)
        precision = tree.combine(lambda one: 1 / one, prior.spread)
        return PriorParts(jax.nn.log_softmax(gamma["log_shares"]), prior.w, precision, precision)

    def statistics(self, gamma: Gamma, posterior: ClientPosterior) -> dict[str, PyTree]:
        import jax
        import jax.numpy as jnp

        share = posterior.share
        away = tree.combine(jnp.subtract, posterior.w, gamma["centers"])
        dimension = tree.size(away) // self.num_components
        square = (squares(away) + sums(posterior.spread)) / dimension
        return {
            "share": share - jax.nn.softmax(gamma["log_shares"]),
            "centers": tree.combine(lambda leaf: per_component(share, leaf) * leaf, away),
            "square": share * (square - gamma["scale"] ** 2),
        }

    def maximize(self, gamma: Gamma, average: dict[str, PyTree], rate: Array) -> Gamma:
        import jax.numpy as jnp

        mass, log_shares = shares_after(gamma, average["share"], rate, self.share_floor)
        shift = tree.combine(
            lambda leaf: rate * leaf / per_component(mass, leaf), average["centers"]
        )
        dimension = tree.size(shift) // self.num_components
        moved = squares(shift) / dimension
        variance = gamma["scale"] ** 2 + rate * average["square"] / mass - moved
        return self.project(
            {
                "centers": tree.combine(jnp.add, gamma["centers"], shift),
                "log_shares": log_shares,
                "scale": jnp.sqrt(jnp.maximum(variance, 0)),
            }
        )

    def _log_terms(self, gamma: Gamma, w: PyTree) -> Array:
        """log(share_l N(w; center_l, scale_l^2 I)), (components,)."""
        import jax
        import jax.numpy as jnp

        scale = gamma["scale"]
        away = tree.combine(lambda own, centers: own - centers, w, gamma["centers"])
        normalizer = tree.size(w) * (jnp.log(scale) + math.log(2 * math.pi) / 2)
        return jax.nn.log_softmax(gamma["log_shares"]) - squares(away) / (2 * scale**2) - normalizer


def check_components(
    owner: str, num_components: int, share_floor: float, jitter: float, seed: int
) -> None:
    """Check the common fields of mixtures."""
    check.count(owner, num_components=num_components)
    check.positive(owner, share_floor=share_floor)
    check.nonnegative(owner, jitter=jitter)
    check.seed(owner, seed)
    rule = f"below 1 / num_components = {1 / num_components:g}"
    if not check.is_traced(share_floor):
        check.require(share_floor * num_components < 1, owner, "share_floor", rule, share_floor)


def scattered(parameters: PyTree, num_components: int, jitter: float, key: Key) -> PyTree:
    """`num_components` copies of the parameters, each with N(0, jitter^2) added to every entry."""
    import jax

    def one(key: Key) -> PyTree:
        noise = jitter * jax.random.normal(key, (tree.size(parameters),))
        return tree.combine(lambda a, b: a + b, parameters, tree.unflatten(noise, parameters))

    return jax.vmap(one)(jax.random.split(key, num_components))


def shares_after(gamma: Gamma, average: Array, rate: Array, floor: float) -> tuple[Array, Array]:
    """The components' mass after a step, at least `floor`, and the log of the normalized mass.

    Sums over clients are divided by this mass. If noise or a vanishing component makes it nearly 0,
    the floor shortens the step without changing its direction.
    """
    import jax
    import jax.numpy as jnp

    share = jax.nn.softmax(gamma["log_shares"])
    mass = jnp.maximum(share + rate * average, floor)
    return mass, jnp.log(mass / jnp.sum(mass))


def mean_of(gamma: Gamma) -> PyTree:
    """sum_l share_l center_l."""
    import jax
    import jax.numpy as jnp

    share = jax.nn.softmax(gamma["log_shares"])
    return tree.combine(lambda leaf: jnp.tensordot(share, leaf, axes=1), gamma["centers"])


def per_component(values: Array, leaf: Array) -> Array:
    """Reshape one value per component to broadcast with the entries of `leaf`."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))


def sums(w: PyTree) -> Array:
    """Sum of the entries of each component, (components,)."""
    import jax

    return sum(leaf.reshape(leaf.shape[0], -1).sum(axis=1) for leaf in jax.tree.leaves(w))


def squares(w: PyTree) -> Array:
    """Sum of the squared entries of each component, (components,)."""
    return sums(tree.combine(lambda leaf: leaf**2, w))
