"""Which regression is fitted to the rows of a table."""

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from fedprior.core import check
from fedprior.regression.linear import fit_linear
from fedprior.regression.logistic import fit_logistic, fit_poisson
from fedprior.regression.logistic.approximation import Approximation
from fedprior.regression.mixture import fit_mixture
from fedprior.regression.packed import pack
from fedprior.regression.result import Covariance, Family, RegressionFit
from fedprior.regression.rows import GroupedRows

POPULATIONS = ("gaussian", "mixture", "discrete")
COVARIANCES = ("auto", *get_args(Covariance))
CRITERIA = ("auto", "reml", "ml")
APPROXIMATIONS = get_args(Approximation)
METHODS = ("default", "em", "paper")
_RESTARTS = 8  # as many as the faces of scikit-learn's have by default
_GROUPS_A_NUMBER = 5  # groups for each free number of the covariance, at least
_WIDEST_FULL = 8  # coefficients: 36 variances, the most whose standard errors are cheap


@dataclass(frozen=True, kw_only=True)
class Specification:
    """The family, the population and the way it is learned; "auto" is settled by the rows."""

    owner: str
    family: Family = "gaussian"
    num_classes: int = 2
    population: str = "gaussian"
    covariance: str = "auto"
    criterion: str = "auto"
    method: str = "default"
    approximation: str = "auto"
    num_components: int | str = "bic"
    restarts: int = _RESTARTS
    max_rounds: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check.choice(self.owner, "population", self.population, POPULATIONS)
        check.choice(self.owner, "covariance", self.covariance, COVARIANCES)
        check.choice(self.owner, "criterion", self.criterion, CRITERIA)
        known = METHODS if self.is_gaussian else ("default", "paper")
        if self.family == "poisson":
            known = ("default", "em")
            rule = "gaussian for counts"
            check.require(self.is_gaussian, self.owner, "population", rule, self.population)
        check.choice(self.owner, "method", self.method, known)
        check.seed(self.owner, self.seed)
        self._check_components()
        check.choice(self.owner, "approximation", self.approximation, APPROXIMATIONS)
        if not self.is_gaussian or self.method == "paper":
            rule = "auto but for a gaussian population and the default method"
            fine = self.approximation == "auto"
            check.require(fine, self.owner, "approximation", rule, self.approximation)
        if self.max_rounds is not None:
            check.count(self.owner, max_rounds=self.max_rounds)
            rule = "None but for a gaussian population"
            check.require(self.is_gaussian, self.owner, "max_rounds", rule, self.max_rounds)
        exact = self.is_gaussian and self.family == "gaussian" and self.method == "default"
        if not exact:
            rule = "ml (or auto) but for numbers, a gaussian population and the default method"
            fine = self.criterion != "reml"
            check.require(fine, self.owner, "criterion", rule, self.criterion)
        self._check_unused()

    def _check_unused(self) -> None:
        """What the population or the method would leave unused is refused where it was given."""
        round_ones = self.covariance in ("auto", "isotropic")
        if self.method == "paper":
            rule = "isotropic (or auto) with the paper's method"
            check.require(round_ones, self.owner, "covariance", rule, self.covariance)
        rule = "auto for a discrete population, whose members do not differ"
        fine = round_ones or self.population != "discrete"
        check.require(fine, self.owner, "covariance", rule, self.covariance)
        check.count(self.owner, restarts=self.restarts)
        searches = not self.is_gaussian and self.method == "default"
        rule = f"{_RESTARTS}, which only the default method of mixture and discrete uses"
        fine = searches or self.restarts == _RESTARTS
        check.require(fine, self.owner, "restarts", rule, self.restarts)

    def _check_components(self) -> None:
        if isinstance(self.num_components, str):
            rule, fine = "bic or a whole number of at least 1", self.num_components == "bic"
            check.require(fine, self.owner, "num_components", rule, self.num_components)
            return
        check.count(self.owner, num_components=self.num_components)
        rule = "bic, which a gaussian population leaves unused"
        remedy = "Take population='mixture' or 'discrete'."
        fine = not self.is_gaussian
        check.require(fine, self.owner, "num_components", rule, self.num_components, remedy)

    @property
    def is_gaussian(self) -> bool:
        return self.population == "gaussian"

    @property
    def num_logits(self) -> int:
        """Coefficients that a feature has."""
        return self.num_classes - 1 if self.family in ("binomial", "multinomial") else 1

    def settled(self, rows: GroupedRows) -> "Specification":
        """Without "auto", but for the covariance of a mixture, which its fit chooses by BIC.

        The covariance is full where 5 groups with at least as many rows as coefficients stand for
        each of its numbers (and up to 8 coefficients), else diagonal where 5 groups of 2 rows or
        more stand for each, else isotropic; isotropic for the paper's method.
        """
        exact = self.is_gaussian and self.family == "gaussian" and self.method == "default"
        criterion = self.criterion
        if criterion == "auto":
            criterion = "reml" if exact else "ml"
        covariance = self.covariance
        if covariance == "auto":
            covariance = self._covariance(rows)
        return replace(self, covariance=covariance, criterion=criterion)

    def _covariance(self, rows: GroupedRows) -> str:
        if self.method == "paper" or self.population == "discrete":
            return "isotropic"
        if self.population == "mixture":
            return "auto"
        width = rows.num_features * self.num_logits
        numbers = width * (width + 1) // 2
        wide = int((rows.sizes >= max(rows.num_features, 2)).sum())
        if width <= _WIDEST_FULL and wide >= _GROUPS_A_NUMBER * numbers:
            return "full"
        several = int((rows.sizes >= 2).sum())
        return "diagonal" if several >= _GROUPS_A_NUMBER * width else "isotropic"

    def fit(self, rows: GroupedRows) -> RegressionFit:
        """The fit of a settled specification."""
        if not self.is_gaussian:
            form: Any = self.covariance
            return fit_mixture(
                rows,
                family=self.family,
                num_components=self.num_components,
                spread="component" if self.population == "mixture" else "none",
                covariance=form,
                method=self.method,
                restarts=self.restarts,
                seed=self.seed,
                num_classes=self.num_classes if self.num_logits > 1 else None,
            )
        how: dict[str, Any] = {"covariance": self.covariance, "method": self.method}
        how["max_rounds"] = self.max_rounds
        if self.family == "gaussian":
            return fit_linear(rows, criterion="reml" if self.criterion == "reml" else "ml", **how)
        how["approximation"] = self.approximation
        if self.family == "poisson":
            return fit_poisson(rows, **how)
        return fit_logistic(rows, num_classes=self.num_classes, **how)


def _unscaled(errors: np.ndarray | None, scale: np.ndarray) -> np.ndarray | None:
    """Errors of (mean, fixed) in the units of the table; fixed columns are never scaled."""
    if errors is None:
        return None
    return np.concatenate([errors[: len(scale)] / scale, errors[len(scale) :]])


def in_units(fit: RegressionFit, scale: np.ndarray) -> RegressionFit:
    """The fit to x / scale as one to x: theta / scale; REML's likelihood loses sum log scale."""
    population = fit.population
    s = np.tile(scale, len(population.mean) // len(scale))
    table = np.outer(s, s)
    likelihood = fit.log_likelihood
    if likelihood is not None and fit.criterion == "reml":
        likelihood -= float(np.log(scale).sum())
    errors, spread_errors = population.mean_errors, population.covariance_errors
    means, triangles = fit.means, fit.triangles
    return replace(
        fit,
        theta=fit.theta / s,
        errors=fit.errors / s,
        log_likelihood=likelihood,
        means=None if means is None else means / s,
        triangles=None if triangles is None else triangles / pack(table),
        population=replace(
            population,
            mean=population.mean / s,
            covariance=population.covariance / table,
            components=tuple(
                replace(each, mean=each.mean / s, covariance=each.covariance / table)
                for each in population.components
            ),
            mean_errors=None if errors is None else errors / s,
            corrected_errors=_unscaled(population.corrected_errors, s),
            covariance_errors=None if spread_errors is None else spread_errors / table,
        ),
    )
