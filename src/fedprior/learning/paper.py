"""Methods as the paper prints them, where the printed form is not sound (ERRATA 23, 27, 39)."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Gamma, Model
from fedprior.data.federation import ClientData
from fedprior.estimation.clustering import Cluster, k_means
from fedprior.learning.alternating import Alternating
from fedprior.learning.averaging import begun
from fedprior.learning.descent import Descent, reading
from fedprior.learning.method import MethodWarning
from fedprior.learning.posterior import Walk, toward
from fedprior.learning.predictive import several
from fedprior.learning.steps import Steps, newcomer
from fedprior.populations.mixture import GaussianMixture

COLLAPSE = (
    "clusters thetas that are already shrunk toward the clusters: the spread within a cluster runs "
    "to its floor, and clusters that overlap collapse (ERRATA 23, 27). Use mixture-em, which adds "
    "the posterior spread."
)


class CollapseWarning(MethodWarning):
    """The method is the paper's, and what it learns collapses round by round."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StaleUpload(Alternating):
    """`alternating` that sends gamma without its last step (Algorithm 5 as printed, ERRATA 39)."""

    def __post_init__(self) -> None:
        self.steps.check_supported("adaped", rule=True)
        remedy = "With one local step the printed upload never changes gamma."
        number = self.steps.local_steps
        check.require(number > 1, "adaped", "local_steps", "above 1", number, remedy)

    def step(self, carry: Any, batch: Any, size: Array, left: Array) -> Any:
        """A step that moves w and, unless it is the round's last one, gamma."""
        w, rule, gamma, rules = super().step(carry, batch, size, left)
        return w, rule, tree.where(left > 1, gamma, carry[2]), rules


def mixture_clustering(
    model: Model,
    *,
    steps: Steps = Steps(),
    num_components: int = 2,
    cluster: Cluster | None = None,
    scale: float = 1.0,
    scale_floor: float = 1e-3,
    jitter: float = 0.01,
    theta_rate: float = 0.1,
    newcomer_steps: int | None = None,
) -> Algorithm:
    """theta_i steps on f_i - log p(theta_i | mixture); the server clusters the thetas it receives.

    Algorithm 4 with its penalty corrected (ERRATA 26), the scales started, broadcast and floored
    (ERRATA 27). `cluster(thetas, num_components)` gives shares, centers and scales, by default
    those of scikit-learn's k-means; a differentially private function makes the released mixture
    private against everybody but the server, which sees every theta (`pools="gather"`, refused with
    private channels). Clients that are absent or not finite are left out; with fewer clients than
    components the mixture does not change.

    Warns when it is built: each round clusters what the last one shrank, so that scales run to the
    floor and overlapping clusters collapse (ERRATA 23). One round does no harm.
    """
    name = "mixture-clustering"
    steps.check_supported(name)
    warnings.warn(f"{name}: {COLLAPSE}", CollapseWarning, stacklevel=2)
    method = _Clustering(
        model=model,
        population=GaussianMixture(
            num_components=num_components, scale=scale, scale_floor=scale_floor, jitter=jitter
        ),
        cluster=k_means if cluster is None else cluster,
        steps=steps,
        descent=steps.descent(theta_rate),
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    )
    return Algorithm.of(method, model, name=name, pools="gather")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Clustering:
    """The functions of `mixture_clustering`.

    State: gamma, the number of rounds done. Memory: w, the key of the client's batches, its steps.
    """

    model: Model
    population: GaussianMixture
    cluster: Cluster
    steps: Steps
    descent: Descent
    newcomer_steps: int

    def init(self, key: Key) -> State:
        population = self.population
        centers = several(self.model, population.num_components, population.jitter, key)
        return begun(population.start_at(centers))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {"w": self.population.center(state["gamma"]), **reading(key)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        w = self._move(state, memory, data, jnp.asarray(self.steps.local_steps))
        memory = {**memory, "w": w, "step": memory["step"] + self.steps.local_steps}
        return Message(w, jnp.ones(())), memory

    def update(self, state: State, total: Message) -> State:
        """The mixture of the thetas whose weight is above 0."""
        gamma: Gamma = state["gamma"]
        flat = jax.vmap(tree.flatten)
        before = (jax.nn.softmax(gamma["log_shares"]), flat(gamma["centers"]), gamma["scale"])
        share, centers, scale = jax.pure_callback(
            partial(_serve, self.cluster),
            jax.eval_shape(lambda: before),
            flat(total.value),
            total.weight,
            *before,
            vmap_method="sequential",
        )
        some = jnp.sum(total.weight > 0) >= self.population.num_components
        share = jnp.maximum(share, self.population.share_floor)
        like = tree.combine(lambda leaf: leaf[0], gamma["centers"])
        clustered = {
            "centers": jax.vmap(lambda vector: tree.unflatten(vector, like))(centers),
            "log_shares": jnp.log(share / jnp.sum(share)),
            "scale": scale,
        }
        kept = tree.where(some, self.population.project(clustered), gamma)
        return {"gamma": kept, "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        fresh = (memory["step"] == 0) & (data.size > 0)
        return self._move(state, memory, data, jnp.where(fresh, self.newcomer_steps, 0))

    def _move(self, state: State, memory: Memory, data: ClientData, number: Array) -> PyTree:
        """W after `number` steps, each on the loss and then, implicitly, on the penalty."""
        gamma, time = state["gamma"], state["round"] * self.steps.local_steps
        words, first = memory["words"], memory["step"]
        walk = Walk(data, self.steps.batches, self.descent, words, first, number, time)

        def body(number: Array, w: PyTree) -> PyTree:
            center, precision = self.population.pull(gamma, w)
            moved, rate = walk.step(self.model, w, number)
            strength = rate * precision / jnp.maximum(data.size, 1)
            return toward(moved, center, tree.combine(lambda _: strength, center))

        return jax.lax.fori_loop(0, number, body, memory["w"])


def _serve(
    cluster: Cluster,
    thetas: Array,
    weight: Array,
    share: Array,
    centers: Array,
    scale: Array,
) -> tuple[np.ndarray, ...]:
    """`cluster` of the clients that are present; the mixture as it was where they are too few."""
    before = tuple(np.asarray(part) for part in (share, centers, scale))
    present = np.asarray(thetas, np.float64)[np.asarray(weight) > 0]
    if len(present) < len(before[0]):
        return before
    after = tuple(np.asarray(part) for part in cluster(present, len(before[0])))
    shapes, wanted = [part.shape for part in after], [part.shape for part in before]
    check.require(shapes == wanted, "cluster", "results", f"of shapes {wanted}", shapes)
    finite = all(bool(np.isfinite(part).all()) for part in after)
    check.require(finite, "cluster", "results", "finite", after)
    return tuple(new.astype(old.dtype) for new, old in zip(after, before, strict=True))
