"""The population of greatest evidence, and the posterior of every group under it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from fedprior.core import check
from fedprior.regression.linear.pooled import check_columns, triangle
from fedprior.regression.logistic.approximation import Approximation, remark, slack, solver
from fedprior.regression.logistic.ascend import Ascent, ascend, begin, settle
from fedprior.regression.logistic.errors import Posteriors, Uncertainty, posteriors, uncertainty
from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, inward, outward
from fedprior.regression.logistic.laws import CLASSES, COUNTS, RowLaw
from fedprior.regression.logistic.parts import ClassBlock, parts_of
from fedprior.regression.logistic.pooled import SEPARATION_RIDGE, ridged
from fedprior.regression.logistic.steps import EvidenceProblem
from fedprior.regression.result import (
    Covariance,
    Family,
    RegressionFit,
    RegressionPopulation,
    gaussian_population,
)
from fedprior.regression.rows import GroupedRows
from fedprior.regression.turn import TurnBack, turn, unturned


@dataclass(frozen=True, kw_only=True)
class RowTarget:
    """What a row's target is, and how theta is integrated out; `owner` names errors."""

    owner: str
    approximation: Approximation
    num_classes: int = 2
    law: RowLaw = CLASSES

    @property
    def family(self) -> Family:
        if self.law is COUNTS:
            return "poisson"
        return "binomial" if self.num_classes == 2 else "multinomial"

    def parts(self, rows: GroupedRows) -> list[ClassBlock]:
        return parts_of(rows, self.num_classes, law=self.law)

    def constant(self, rows: GroupedRows) -> float:
        """The part of the log-likelihood that is free of theta: -sum log y! for counts."""
        return -float(special.gammaln(rows.y + 1).sum()) if self.law is COUNTS else 0.0

    def shape(self, rows: GroupedRows, covariance: Covariance) -> CovarianceShape:
        weight = max(float(rows.y.mean()), 1e-9) if self.law is COUNTS else 0.25
        return CovarianceShape.of(rows, covariance, self.num_classes, weight=weight)


def learned(
    rows: GroupedRows,
    outcome: RowTarget,
    *,
    covariance: Covariance,
    method: Literal["default", "em"],
    start: RegressionPopulation | None,
    max_rounds: int,
    tolerance: float,
    errors: bool = True,
) -> RegressionFit:
    """The population that maximizes the evidence, with theta integrated out."""
    check_rows(outcome.owner, rows)
    logits, name = outcome.num_classes - 1, outcome.approximation
    full = covariance == "full"
    rows, back = turn(rows, triangle(rows), turns_x=full, num_logits=logits)
    parts = outcome.parts(rows)
    pooled, ridge = ridged(rows, parts, outcome.num_classes)
    shape = outcome.shape(rows, covariance)
    gamma = begun(shape, pooled.coefficients)
    if start is not None:
        gamma = _converted(shape, start, back)
    problem = EvidenceProblem(
        parts=parts,
        solve=solver(name, num_classes=outcome.num_classes),
        shape=shape,
        ridge=ridge,
        slack=slack(name, width=len(gamma.mean)),
    )
    if name == "laplace":  # the moments of his posteriors are not the slope of his evidence
        ascent = settle(problem, gamma, max_rounds=max_rounds, tolerance=tolerance)
    else:
        if start is None and method == "default":
            gamma = begin(problem, gamma)
        ascent = ascend(problem, gamma, method=method, max_rounds=max_rounds, tolerance=tolerance)
    doubt = uncertainty(problem, ascent, back) if errors else None
    fit = _answer(rows, problem, ascent, back, outcome, method, doubt)
    if errors and doubt is None:
        missing = "The curvature at the maximum is not positive definite: no standard errors."
        return replace(fit, notes=(*fit.notes, missing))
    return fit


def check_rows(owner: str, rows: GroupedRows) -> None:
    """Raise unless there are two groups, and one of them has two rows."""
    groups = int((rows.sizes > 0).sum())
    check.require(groups >= 2, owner, "rows", "of at least 2 groups", groups)
    most = int(rows.sizes.max())
    remedy = "With one row per group, heterogeneity cannot be told from chance. Give a known prior."
    check.require(most >= 2, owner, "largest group", "of at least 2 rows", most, remedy)
    check_columns(owner, rows)


def begun(shape: CovarianceShape, coefficients: np.ndarray) -> LogisticGamma:
    """The pooled coefficients, and a covariance that adds 1 to the variance of the log odds."""
    width = len(shape.unit)
    unit = shape.unit.mean() if shape.kind == "isotropic" else shape.unit
    variance = np.broadcast_to(1 / (shape.num_features * unit), width)
    return LogisticGamma(
        mean=coefficients[:width], factor=np.diag(np.sqrt(variance)), fixed=coefficients[width:]
    )


def _gamma(population: RegressionPopulation) -> LogisticGamma:
    """Convert a population; its covariance may be singular."""
    values, vectors = np.linalg.eigh(population.covariance)
    factor = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return LogisticGamma(mean=population.mean, factor=factor, fixed=population.fixed)


def _converted(
    shape: CovarianceShape, start: RegressionPopulation, back: TurnBack
) -> LogisticGamma:
    """Convert `start` to the new basis, within the shape and its bounds."""
    gamma = inward(_gamma(start), back)
    covariance = shape.bounded(gamma.factor @ gamma.factor.T)
    return LogisticGamma(mean=gamma.mean, factor=np.linalg.cholesky(covariance), fixed=gamma.fixed)


def known(rows: GroupedRows, outcome: RowTarget, prior: RegressionPopulation) -> RegressionFit:
    """The posterior of every group under a population that is given."""
    parts, name = outcome.parts(rows), outcome.approximation
    found = posteriors(
        parts,
        _gamma(prior),
        solver(name, num_classes=outcome.num_classes),
        [None] * len(parts),
        num_groups=rows.num_groups,
        coefficients=None,
        back=unturned(len(prior.mean), len(prior.fixed)),
    )
    return _fit(
        rows,
        outcome,
        found,
        method="known",
        population=replace(prior, kind="known"),
        rounds=0,
        converged=True,
        notes=(remark(name, width=found.theta.shape[1], law=outcome.law),),
    )


def _answer(
    rows: GroupedRows,
    problem: EvidenceProblem,
    ascent: Ascent,
    back: TurnBack,
    outcome: RowTarget,
    method: str,
    doubt: Uncertainty | None,
) -> RegressionFit:
    found = posteriors(
        problem.parts,
        ascent.gamma,
        problem.solve,
        ascent.memory,
        num_groups=rows.num_groups,
        coefficients=None if doubt is None else doubt.coefficients,
        back=back,
    )
    return _fit(
        rows,
        outcome,
        found,
        method=method,
        population=_population(outward(ascent.gamma, back), doubt, rows),
        rounds=len(ascent.history) - 1,
        converged=ascent.converged,
        notes=tuple(_notes(problem, ascent, outcome)),
        history=ascent.history,
    )


def _fit(rows: GroupedRows, outcome: RowTarget, found: Posteriors, **how: Any) -> RegressionFit:
    """The posteriors of the groups, and how their population was found."""
    return RegressionFit(
        family=outcome.family,
        criterion="ml",
        theta=found.theta,
        errors=found.errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=found.evidence + outcome.constant(rows),
        means=found.theta[:, None],
        triangles=found.triangles[:, None],
        **how,
    )


def _population(
    gamma: LogisticGamma, uncertain: Uncertainty | None, rows: GroupedRows
) -> RegressionPopulation:
    """With errors for intervals: those of a mean of m groups, whose variance ML has too small.

    Coefficients that vary have m - 1 degrees of freedom, fixed ones those of the rows in groups.
    """
    errors: dict[str, Any] = {}
    if uncertain is not None:
        groups = max(int((rows.sizes > 0).sum()), 2)
        inflated = uncertain.mean * np.sqrt(groups / (groups - 1))
        within = max(rows.num_rows - groups, 1)
        errors = {
            "mean_errors": uncertain.mean,
            "covariance_errors": uncertain.covariance,
            "fixed_errors": uncertain.fixed,
            "corrected_errors": np.concatenate([inflated, uncertain.fixed]),
            "freedom": np.repeat([groups - 1.0, within], [len(gamma.mean), len(gamma.fixed)]),
        }
    return gaussian_population(gamma.mean, gamma.covariance, gamma.fixed, **errors)


def _notes(problem: EvidenceProblem, ascent: Ascent, outcome: RowTarget) -> Iterator[str]:
    yield remark(outcome.approximation, width=ascent.totals.width, law=outcome.law)
    counts = outcome.law is COUNTS
    low, high = problem.shape.at_bounds(ascent.gamma.covariance)
    if low:
        yield "A variance is at its lower bound: groups do not visibly differ in that direction."
    if high:
        rest = "no events" if counts else "a single class"
        yield f"A variance is at its upper bound: nearly every group has {rest}."
    if problem.ridge.any():
        what = "tell where counts are 0" if counts else "separate the classes"
        yield (
            f"The features {what}: mean and fixed coefficients have no finite maximum "
            f"and are held by a ridge of {SEPARATION_RIDGE} on features of mean square 1."
        )
    if ascent.short:
        yield "Steps gain no more evidence: this is the maximum as precisely as it is known."
    if not ascent.converged:
        rounds = len(ascent.history) - 1
        yield f"Not converged: stopped after {rounds} rounds."
