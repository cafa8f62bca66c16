"""theta_i = mean + B w_i: a few directions that all share, coordinates of each client's own."""

import math
from dataclasses import dataclass

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Gamma, Population, Predict

_TINY = 1e-12  # least share of the largest eigenvalue that is inverted; float32 resolves 1e-7
_ORTHONORMAL = 1e-5  # entries of B'B - 1 that count as rounding: such a basis stays to the bit


@dataclass(frozen=True, kw_only=True)
class Subspace(Population):
    """theta_i = mean + B w_i, B a d x rank basis with orthonormal columns (ERRATA 58).

    w ~ N(0, scale^2 I), or flat where `scale` is None, as the paper's bounded cube. The basis
    starts in random directions, drawn by `seed`. Without `learn_mean` the mean stays where the
    model starts: at 0 for linear regression, which is the paper's theta_i = B w_i; at random
    weights, of which a few directions make no good network, for others.

    Without a bound on B a scale would pass freely between B and w, and a penalty on w would send
    B to infinity. So `project` puts B back to the nearest orthonormal matrix, B (B'B)^(-1/2). A
    client's w stays as it is: where w fits its data the gradient of B is orthogonal to B, and the
    nearest matrix then differs from the moved one by a square of the step, without a rotation. Give
    w some steps before B (`head_steps`), and it keeps its meaning from round to round.
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
    """B (B'B)^(-1/2), through the rank x rank matrix B'B: cheap for tall bases."""
    xp = basis.__array_namespace__()
    gram = basis.T @ basis
    values, vectors = xp.linalg.eigh(gram)
    values = xp.maximum(values, _TINY * values[-1])
    near = basis @ ((vectors * values**-0.5) @ vectors.T)
    # B'B squares B's condition number; one step of Newton's for the same root squares the error.
    near = 1.5 * near - 0.5 * near @ (near.T @ near)
    already = xp.max(xp.abs(gram - xp.eye(gram.shape[0], dtype=gram.dtype))) <= _ORTHONORMAL
    return xp.where(already, basis, near)
