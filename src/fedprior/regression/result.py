"""The result of fitting one regression per group."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import special

from fedprior.core import check
from fedprior.regression.packed import unpack

Family = Literal["gaussian", "binomial", "multinomial", "poisson"]
Covariance = Literal["isotropic", "diagonal", "full"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """A component of the population: theta ~ N(mean, covariance) with probability `share`."""

    share: float
    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d); zeros if all members have the same theta


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionPopulation:
    """theta_i ~ sum of share_l N(mean_l, covariance_l); y_i = x theta_i + fixed beta + noise.

    `mean` (d,) and `covariance` (d, d) are those of the whole population, which has one component
    if it is Gaussian. `noise_variance` is None for families without noise. Standard errors are None
    if they are not available. Those of mean and fixed treat the fitted variances as known; for
    intervals there are `corrected_errors` of (mean, fixed), with degrees of freedom `freedom`.
    """

    kind: str  # "gaussian", "mixture", "discrete", "laplace", "known", ...
    mean: np.ndarray
    covariance: np.ndarray
    components: tuple[Component, ...]
    fixed: np.ndarray  # (p,), coefficients common to all groups
    noise_variance: float | None = None
    mean_errors: np.ndarray | None = None  # (d,)
    covariance_errors: np.ndarray | None = None  # (d, d), of the entries of `covariance`
    fixed_errors: np.ndarray | None = None  # (p,)
    noise_error: float | None = None
    corrected_errors: np.ndarray | None = None  # (d + p,)
    freedom: np.ndarray | None = None  # (d + p,), of Student's t; None for a normal

    def limits(self, level: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper limits of (mean, fixed), (d + p,) each; None without standard errors."""
        if self.mean_errors is None or self.fixed_errors is None:
            return None
        value = np.concatenate([self.mean, self.fixed])
        error = self.corrected_errors
        if error is None:
            error = np.concatenate([self.mean_errors, self.fixed_errors])
        reach = quantile(level, self.freedom) * error
        return value - reach, value + reach


def quantile(level: float, freedom: np.ndarray | None) -> np.ndarray:
    """The quantile t of Student's t with P(|T| <= t) = level; of a normal where freedom is None."""
    if freedom is None:
        return np.asarray(special.ndtri((1 + level) / 2))
    normal = special.ndtri((1 + level) / 2)
    finite = np.isfinite(freedom)
    student = special.stdtrit(np.where(finite, freedom, 1.0), (1 + level) / 2)
    return np.where(finite, student, normal)


def gaussian_population(
    mean: np.ndarray,
    covariance: np.ndarray,
    fixed: np.ndarray,
    *,
    kind: str = "gaussian",
    **others: Any,
) -> RegressionPopulation:
    """theta_i ~ N(mean, covariance), a single component; `others` are further fields."""
    return RegressionPopulation(
        kind=kind,
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

    `errors` are the standard deviations of theta_i given the data; for some methods they include
    the uncertainty of the population's mean and of the fixed coefficients. `responsibilities`
    (m, k) are the probabilities of the components, ones if there is a single component. `means`
    (m, k, d) and `covariances` (m, k, d, d) are those of theta_i given the data, its component and
    the fitted population. Classes and counts have them, since their expectations need them, and
    `covariances` is None if all members of a component are equal; it is stored as `triangles`,
    (m, k, d (d + 1) / 2), see `regression.packed`. `log_likelihood` is marginal (theta integrated
    out), restricted if `criterion` is "reml", approximate for some methods, and None if there is
    none. `history` is its value after each round of an iterative fit. `form` is the form of the
    components' covariances, if the fit has chosen it.
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
    form: Covariance | None = None

    @property
    def covariances(self) -> np.ndarray | None:
        """The unpacked covariances, computed on access; they need twice the memory."""
        return None if self.triangles is None else unpack(self.triangles)
