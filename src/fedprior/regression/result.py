"""What a fit of many regressions gives back."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedprior.core import check
from fedprior.regression.packed import unpack

Family = Literal["gaussian", "binomial", "multinomial"]
Covariance = Literal["isotropic", "diagonal", "full"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """One part of the population: theta ~ N(mean, covariance) with probability `share`."""

    share: float
    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d); zeros where every member has the same theta


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionPopulation:
    """theta_i ~ sum of share_l N(mean_l, covariance_l); y_i = x theta_i + fixed beta + noise.

    `mean` (d,) and `covariance` (d, d) are those of the whole population; one component where it
    is a single Gaussian. `noise_variance` is None where the family has none. Standard errors are
    None where they are not known.
    """

    kind: str  # "gaussian", "mixture", "discrete", "laplace", "known", ...
    mean: np.ndarray
    covariance: np.ndarray
    components: tuple[Component, ...]
    fixed: np.ndarray  # (p,), coefficients that all groups share
    noise_variance: float | None = None
    mean_errors: np.ndarray | None = None  # (d,)
    covariance_errors: np.ndarray | None = None  # (d, d), of the entries of `covariance`
    fixed_errors: np.ndarray | None = None  # (p,)
    noise_error: float | None = None


def gaussian_population(
    mean: np.ndarray,
    covariance: np.ndarray,
    fixed: np.ndarray,
    **others: Any,
) -> RegressionPopulation:
    """theta_i ~ N(mean, covariance), a single component; `others` are further fields."""
    return RegressionPopulation(
        kind="gaussian",
        mean=mean,
        covariance=covariance,
        components=(Component(share=1.0, mean=mean, covariance=covariance),),
        fixed=fixed,
        **others,
    )


def check_population(
    owner: str, role: str, population: RegressionPopulation, num_varying: int, num_fixed: int
) -> None:
    """Raise unless the population has so many coefficients and a covariance matrix."""
    shapes = (len(population.mean), len(population.fixed), population.covariance.shape)
    rule = f"for {num_varying} coefficients that vary and {num_fixed} that do not"
    expected = (num_varying, num_fixed, (num_varying, num_varying))
    check.require(shapes == expected, owner, role, rule, shapes)
    eigenvalues = np.linalg.eigvalsh(population.covariance)
    rule = "with a covariance without negative eigenvalues"
    semidefinite = bool(eigenvalues[0] >= -1e-9 * max(eigenvalues[-1], 0.0))
    check.require(semidefinite, owner, role, rule, float(eigenvalues[0]))


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionFit:
    """theta (m, d) of every group, and the population they come from.

    `errors` are the standard deviations of theta_i given the data, the uncertainty of the
    population's mean and of the fixed coefficients included where the method says so.
    `responsibilities` (m, k) are the probabilities of the components, (m, 1) ones for a single one.
    `means` (m, k, d) and `covariances` (m, k, d, d) are those of theta_i given the data, its
    component and the population as fitted; only classifiers, whose probabilities need them, have
    any, and `covariances` are None where all members of a component are alike. Of these the
    `triangles` are held, (m, k, d (d + 1) / 2) as of `regression.packed`: they are most of a fit.
    `log_likelihood` is marginal (theta integrated out), restricted where `criterion` is "reml", an
    approximation where the method says so, None where there is none. `history` holds its value
    after each round of an iterative fit.
    """

    family: Family
    method: str
    criterion: str
    population: RegressionPopulation
    theta: np.ndarray
    errors: np.ndarray
    responsibilities: np.ndarray
    log_likelihood: float | None
    rounds: int
    converged: bool
    notes: tuple[str, ...] = ()
    history: tuple[float, ...] = field(default=())
    means: np.ndarray | None = None
    triangles: np.ndarray | None = None

    @property
    def covariances(self) -> np.ndarray | None:
        """All of them, made anew: twice the room of `triangles`."""
        return None if self.triangles is None else unpack(self.triangles)
