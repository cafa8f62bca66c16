"""Related clients: a joint normal distribution of the parameters of all clients."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array

Coupling = Literal["bound", "conditional"]

_ASYMMETRY = 1e-6  # relative asymmetry that a covariance stored as float32 may have


@dataclass(frozen=True, kw_only=True, eq=False)
class Multitask:
    """(theta_1 .. theta_m) ~ N(1 x mean, Omega x scale^2 I), Omega (m, m) known (ERRATA 57).

    Row i of `covariance` = Omega is the i-th client of the federation. Clients are not independent,
    so there is no `penalty` of a single client; instead a client receives the center and the
    strength with which the others attract it (`pull`).
    """

    covariance: Any
    scale: float = 1.0

    def __post_init__(self) -> None:
        owner = "Multitask"
        check.positive(owner, scale=self.scale)
        omega = np.asarray(self.covariance, np.float64)
        square = omega.ndim == 2 and omega.shape[0] == omega.shape[1] and len(omega) > 0
        check.require(square, owner, "covariance", "a square matrix", omega.shape)
        finite = bool(np.isfinite(omega).all())
        check.require(finite, owner, "covariance", "finite", "NaN or infinity")
        away = float(np.abs(omega - omega.T).max())
        symmetric = away <= _ASYMMETRY * float(np.abs(omega).max())
        check.require(symmetric, owner, "covariance", "symmetric", f"a difference of {away:.3g}")
        omega = (omega + omega.T) / 2
        least = float(np.linalg.eigvalsh(omega)[0])
        # Below this the inverse has no correct digit in float64.
        bound = len(omega) * np.finfo(float).eps * float(np.abs(omega).max())
        remedy = "Add a little to its diagonal."
        rule = "positive definite"
        problem = f"an eigenvalue of {least:.3g}"
        check.require(bool(least > bound), owner, "covariance", rule, problem, remedy)
        object.__setattr__(self, "covariance", omega)

    @property
    def num_clients(self) -> int:
        return len(self.covariance)

    @cached_property
    def precision(self) -> np.ndarray:
        """Omega^-1, in float64."""
        return np.linalg.inv(self.covariance)

    def curvature(self, coupling: Coupling) -> np.ndarray:
        """The strength of each client's penalty, (m,): P_ii or sum_j |P_ij|, P = Omega^-1.

        `conditional` is the distribution of theta_i given all others, which is right if one client
        moves at a time. If several move at once, with old values of each other, it can diverge.
        With `bound` the clients' penalties add up to an upper bound of the joint penalty, so that
        any number of clients may move without increasing the joint objective.
        """
        check.choice("Multitask", "coupling", coupling, get_args(Coupling))
        if coupling == "conditional":
            return np.diag(self.precision)
        return np.abs(self.precision).sum(axis=1)

    def pull(
        self, mean: Array, thetas: Array, client: Array, precision: Array, curvature: Array
    ) -> tuple[Array, Array]:
        """Center and variance of the normal penalty on one client's theta, given the others.

        `thetas` (m, d) are those of all clients; `precision` and `curvature` are this object's
        arrays. With the curvature P_ii these are E and Var of theta_i given the others.
        """
        held = curvature[client]
        center = thetas[client] - precision[client] @ (thetas - mean) / held
        return center, self.scale**2 / held

    def mean(self, thetas: Array) -> Array:
        """The most likely mean given all clients' parameters (m, d): 1'P theta / 1'P 1."""
        xp = thetas.__array_namespace__()
        weights = self.precision.sum(axis=0)
        return xp.asarray(weights / weights.sum(), dtype=thetas.dtype) @ thetas

    def penalty(self, mean: Array, thetas: Array) -> Array:
        """-log p(theta_1 .. theta_m), normalizer included; `thetas` is (m, d)."""
        xp = thetas.__array_namespace__()
        away = thetas - mean
        squared = xp.sum(away * (xp.asarray(self.precision, dtype=thetas.dtype) @ away))
        dimension = thetas.shape[1]
        determinant = float(np.linalg.slogdet(self.covariance)[1])
        size = self.num_clients * dimension
        normalizer = size * (math.log(self.scale) + math.log(2 * math.pi) / 2)
        return squared / (2 * self.scale**2) + dimension * determinant / 2 + normalizer
