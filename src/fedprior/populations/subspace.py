"""theta_i = mean + B w_i: a few shared directions, with personal coordinates."""

import math
from dataclasses import dataclass

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict

_TINY = 1e-12  # smaller shares of the largest eigenvalue are raised; float32 resolves 1e-7
_ORTHONORMAL = 1e-5  # smaller entries of B'B - 1 are rounding errors: the basis is not changed


@dataclass(frozen=True, kw_only=True)
class Subspace(Population):
    """theta_i = mean + B w_i, B a d x rank basis with orthonormal columns (ERRATA 58).

    w ~ N(0, scale^2 I), or flat if `scale` is None, like the paper's bounded cube. The basis starts
    in random directions drawn from `seed`. Without `learn_mean` the mean keeps its initial value: 0
    for linear regression, which is the paper's theta_i = B w_i, or random weights for other models,
    of which a few directions do not make a good network.

    Without a constraint on B, scale could move freely between B and w, and a penalty on w would
    make B diverge. So `project` replaces B by the nearest orthonormal matrix, B (B'B)^(-1/2). A
    client's w does not change: if w fits its data, the gradient of B is orthogonal to B, and the
    projection changes B only to second order in the step, without a rotation. If w gets some steps
    before B (`head_steps`), it keeps its meaning from round to round.
    """

    rank: int
    scale: float | None = None
    learn_mean: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check.count("Subspace", rank=self.rank)
        check.seed("Subspace", self.seed)
        if self.scale is not None:
            check.positive("Subspace", scale=self.scale)

    @property
    def blocks(self) -> tuple[str, ...]:
        return ("mean", "basis") if self.learn_mean else ("basis",)

    def start(self, parameters: PyTree) -> Gamma:
        flat = tree.flatten(parameters)
        rule = f"at most the number of parameters ({flat.size})"
        check.require(self.rank <= flat.size, "Subspace", "rank", rule, self.rank)
        drawn = random.normal(random.root(self.seed), (flat.size, self.rank))
        return {"mean": parameters, "basis": _nearest_orthonormal(drawn.astype(flat.dtype))}

    def center(self, gamma: Gamma) -> PyTree:
        basis = gamma["basis"]
        return basis.__array_namespace__().zeros(self.rank, dtype=basis.dtype)

    def realize(self, gamma: Gamma, w: PyTree) -> PyTree:
        step = tree.unflatten(gamma["basis"] @ w, gamma["mean"])
        return tree.combine(lambda mean, away: mean + away, gamma["mean"], step)

    def penalty(self, gamma: Gamma, w: PyTree, predict: Predict, x: Array, mask: Array) -> Array:
        if self.scale is None:
            return 0.0
        xp = w.__array_namespace__()
        normalizer = xp.log(xp.asarray(self.scale)) + math.log(2 * math.pi) / 2
        return tree.squared_norm(w) / (2 * self.scale**2) + self.rank * normalizer

    def project(self, gamma: Gamma) -> Gamma:
        return {**gamma, "basis": _nearest_orthonormal(gamma["basis"])}


def _nearest_orthonormal(basis: Array) -> Array:
    """B (B'B)^(-1/2), from the rank x rank matrix B'B, which is cheap for tall bases."""
    xp = basis.__array_namespace__()
    gram = basis.T @ basis
    values, vectors = xp.linalg.eigh(gram)
    values = xp.maximum(values, _TINY * values[-1])
    near = basis @ ((vectors * values**-0.5) @ vectors.T)
    # B'B squares the condition number of B; one Newton step for the root squares the error.
    near = 1.5 * near - 0.5 * near @ (near.T @ near)
    already = xp.max(xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype))) <= _ORTHONORMAL
    return xp.where(already, basis, near)
