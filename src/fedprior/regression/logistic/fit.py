"""A logistic or softmax regression for every group, with a population as the prior."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.regression.linear.pooled import check_columns, triangle
from fedprior.regression.logistic.approximation import (
    Approximation,
    choose_approximation,
    remark,
    slack,
    solver,
)
from fedprior.regression.logistic.ascend import Ascent, ascend, begin, settle
from fedprior.regression.logistic.errors import Uncertainty, posteriors, uncertainty
from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, inward, outward
from fedprior.regression.logistic.parts import ClassBlock, check_classes, parts_of
from fedprior.regression.logistic.pooled import SEPARATION_RIDGE, ridged
from fedprior.regression.logistic.steps import EvidenceProblem
from fedprior.regression.paper.linear import check_printed
from fedprior.regression.paper.logistic import paper_logistic
from fedprior.regression.result import (
    Covariance,
    RegressionFit,
    RegressionPopulation,
    check_population,
    gaussian_population,
)
from fedprior.regression.rows import GroupedRows
from fedprior.regression.turn import TurnBack, turn, unturned

Method = Literal["default", "em", "paper"]

_OWNER = "fit_logistic"
_ROUNDS = {"default": 100, "em": 2000, "paper": 200}


def fit_logistic(
    rows: GroupedRows,
    *,
    num_classes: int = 2,
    covariance: Covariance = "isotropic",
    approximation: Approximation = "auto",
    method: Method = "default",
    prior: RegressionPopulation | None = None,
    start: RegressionPopulation | None = None,
    max_rounds: int | None = None,
    tolerance: float = 1e-8,
    rate: float = 0.5,
    floor: float = 1e-3,
) -> RegressionFit:
    """Log odds x theta_i + fixed beta, theta_i ~ N(mean, covariance): E[theta_i | y_i].

    "default" maximizes the evidence, with theta integrated out, to `tolerance` per group; "em" does
    so by messages that add; "paper" is Algorithm 3 with its signs corrected, `max_rounds` steps of
    `rate`, with a variance of at least `floor` times its start (ERRATA 34-37). With `prior` nothing
    is learned. For softmax, class 0 is the reference and theta (m, d (C - 1)) is class-major.

    Approximations of the integral, with their estimate of a true variance of 1 for groups of 5 to
    40 rows (of 5 rows) and 5 features: "laplace" 0.49 (0.15), "variational" 0.97 (0.64),
    "expectation-propagation" 0.99 (0.84). "quadrature" is exact up to 3 coefficients per group;
    beyond, it uses 64 points, which give the evidence to about 0.001 per group. "auto" is
    quadrature up to 2 coefficients, else expectation propagation; for softmax quadrature up to 24,
    else Laplace, which are the only ones available there.

    `errors` include the uncertainty of mean and beta, but not that of the covariance. Groups of a
    single class are fine. If the features separate the classes in all groups together, mean and
    beta get a weak ridge (SEPARATION_RIDGE), and there is a note.
    """
    check.choice(_OWNER, "covariance", covariance, get_args(Covariance))
    check.choice(_OWNER, "method", method, _ROUNDS)
    check.positive(_OWNER, tolerance=tolerance)
    check.fraction(_OWNER, rate=rate, floor=floor)
    limit = _ROUNDS[method] if max_rounds is None else max_rounds
    check.count(_OWNER, max_rounds=limit)
    check.require(rows.num_features > 0, _OWNER, "x", "at least one column", 0)
    if method == "paper":
        check_printed(_OWNER, rows, covariance)
    check_classes(_OWNER, rows, num_classes, all_seen=prior is None)
    width = rows.num_features * (num_classes - 1)
    name = choose_approximation(_OWNER, approximation, width=width, num_classes=num_classes)
    for role, population in (("prior", prior), ("start", start)):
        if population is not None:
            others = rows.num_fixed * (num_classes - 1)
            check_population(_OWNER, role, population, width, others)
    with one_thread():
        if prior is not None:
            return _known(rows, parts_of(rows, num_classes), prior, name)
        _check_rows(rows)
        back = unturned(width, rows.num_fixed * (num_classes - 1))
        if method != "paper":
            full = covariance == "full"
            rows, back = turn(rows, triangle(rows), turns_x=full, num_logits=num_classes - 1)
        parts = parts_of(rows, num_classes)
        pooled, ridge = ridged(rows, parts, num_classes)
        shape = CovarianceShape.of(rows, covariance, num_classes)
        first = _start(shape, pooled.coefficients) if start is None else _begun(shape, start, back)
        if method == "paper":
            return paper_logistic(rows, parts, first, steps=limit, rate=rate, floor=floor)
        problem = EvidenceProblem(
            parts=parts,
            solve=solver(name, num_classes=num_classes),
            shape=shape,
            ridge=ridge,
            slack=slack(name, width=width),
        )
        # The moments of Laplace's posteriors are not the slope of his evidence.
        if name == "laplace":
            limit = _ROUNDS["em"] if max_rounds is None else max_rounds
            ascent = settle(problem, first, max_rounds=limit, tolerance=tolerance)
        else:
            if start is None and method == "default":
                first = begin(problem, first)
            ascent = ascend(problem, first, method=method, max_rounds=limit, tolerance=tolerance)
        return _answer(rows, problem, ascent, back, name, method)


def _check_rows(rows: GroupedRows) -> None:
    """Raise unless there are two groups, and one of them has two rows."""
    groups = int((rows.sizes > 0).sum())
    check.require(groups >= 2, _OWNER, "rows", "of at least 2 groups", groups)
    most = int(rows.sizes.max())
    remedy = "With one row per group, heterogeneity cannot be told from chance. Give a known prior."
    check.require(most >= 2, _OWNER, "largest group", "of at least 2 rows", most, remedy)
    check_columns(_OWNER, rows)


def _start(shape: CovarianceShape, coefficients: np.ndarray) -> LogisticGamma:
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


def _begun(shape: CovarianceShape, start: RegressionPopulation, back: TurnBack) -> LogisticGamma:
    """Convert `start` to the new basis, within the shape and its bounds."""
    gamma = inward(_gamma(start), back)
    covariance = shape.bounded(gamma.factor @ gamma.factor.T)
    return LogisticGamma(mean=gamma.mean, factor=np.linalg.cholesky(covariance), fixed=gamma.fixed)


def _known(
    rows: GroupedRows, parts: list[ClassBlock], prior: RegressionPopulation, name: Approximation
) -> RegressionFit:
    num_classes = 2 if not parts else parts[0].y.shape[-1] + 1
    known = posteriors(
        parts,
        _gamma(prior),
        solver(name, num_classes=num_classes),
        [None] * len(parts),
        num_groups=rows.num_groups,
        coefficients=None,
        back=unturned(len(prior.mean), len(prior.fixed)),
    )
    return RegressionFit(
        family="binomial" if num_classes == 2 else "multinomial",
        method="known",
        criterion="ml",
        population=replace(prior, kind="known"),
        theta=known.theta,
        errors=known.errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=known.evidence,
        rounds=0,
        converged=True,
        notes=(remark(name, width=known.theta.shape[1]),),
        means=known.theta[:, None],
        triangles=known.triangles[:, None],
    )


def _answer(
    rows: GroupedRows,
    problem: EvidenceProblem,
    ascent: Ascent,
    back: TurnBack,
    name: Approximation,
    method: str,
) -> RegressionFit:
    doubt = uncertainty(problem, ascent, back)
    known = posteriors(
        problem.parts,
        ascent.gamma,
        problem.solve,
        ascent.memory,
        num_groups=rows.num_groups,
        coefficients=None if doubt is None else doubt.coefficients,
        back=back,
    )
    return RegressionFit(
        family="binomial" if problem.parts[0].y.shape[-1] == 1 else "multinomial",
        method=method,
        criterion="ml",
        population=_population(outward(ascent.gamma, back), doubt),
        theta=known.theta,
        errors=known.errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=known.evidence,
        rounds=len(ascent.history) - 1,
        converged=ascent.converged,
        notes=tuple(_notes(problem, ascent, doubt, name)),
        history=ascent.history,
        means=known.theta[:, None],
        triangles=known.triangles[:, None],
    )


def _population(gamma: LogisticGamma, uncertain: Uncertainty | None) -> RegressionPopulation:
    errors = {}
    if uncertain is not None:
        errors = {
            "mean_errors": uncertain.mean,
            "covariance_errors": uncertain.covariance,
            "fixed_errors": uncertain.fixed,
        }
    return gaussian_population(gamma.mean, gamma.covariance, gamma.fixed, **errors)


def _notes(
    problem: EvidenceProblem, ascent: Ascent, doubt: Uncertainty | None, name: Approximation
) -> Iterator[str]:
    yield remark(name, width=ascent.totals.width)
    low, high = problem.shape.at_bounds(ascent.gamma.covariance)
    if low:
        yield "A variance is at its lower bound: groups do not visibly differ in that direction."
    if high:
        yield "A variance is at its upper bound: nearly every group has a single class."
    if problem.ridge.any():
        yield (
            "The features separate the classes: mean and fixed coefficients have no finite maximum "
            f"and are held by a ridge of {SEPARATION_RIDGE} on features of mean square 1."
        )
    if ascent.short:
        yield "Steps gain no more evidence: this is the maximum as precisely as it is known."
    if not ascent.converged:
        rounds = len(ascent.history) - 1
        yield f"Not converged: stopped after {rounds} rounds."
    if doubt is None:
        yield "The curvature at the maximum is not positive definite: no standard errors."
