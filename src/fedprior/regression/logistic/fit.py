"""A logistic, softmax or Poisson regression for every group, with a population as the prior."""

from typing import Any, Literal, get_args

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.regression.logistic.approximation import Approximation, choose_approximation
from fedprior.regression.logistic.laws import CLASSES, COUNTS
from fedprior.regression.logistic.learn import RowTarget, begun, check_rows, known, learned
from fedprior.regression.logistic.parts import check_classes, check_counts
from fedprior.regression.logistic.pooled import ridged
from fedprior.regression.paper.linear import check_printed
from fedprior.regression.paper.logistic import paper_logistic
from fedprior.regression.result import (
    Covariance,
    RegressionFit,
    RegressionPopulation,
    check_population,
)
from fedprior.regression.rows import GroupedRows

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
    errors: bool = True,
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

    Errors include the uncertainty of mean and beta, but not that of the covariance; without
    `errors` not even that, which saves most of the time with many coefficients. Groups of a
    single class are fine. If the features separate the classes in all groups together, mean and
    beta get a weak ridge (SEPARATION_RIDGE), and there is a note.
    """
    check.choice(_OWNER, "covariance", covariance, get_args(Covariance))
    check.choice(_OWNER, "method", method, _ROUNDS)
    check.positive(_OWNER, tolerance=tolerance)
    check.fraction(_OWNER, rate=rate, floor=floor)
    limit = _ROUNDS[method] if max_rounds is None else max_rounds
    check.count(_OWNER, max_rounds=limit)
    if method == "paper":
        check_printed(_OWNER, rows, covariance)
    check_classes(_OWNER, rows, num_classes, all_seen=prior is None)
    outcome = _outcome(_OWNER, rows, approximation, prior, start, num_classes=num_classes)
    with one_thread():
        if prior is not None:
            return known(rows, outcome, prior)
        if method == "paper":
            check_rows(_OWNER, rows)
            parts = outcome.parts(rows)
            pooled = ridged(rows, parts, num_classes)[0]
            first = begun(outcome.shape(rows, covariance), pooled.coefficients)
            return paper_logistic(rows, parts, first, steps=limit, rate=rate, floor=floor)
        if outcome.approximation == "laplace" and max_rounds is None:
            limit = _ROUNDS["em"]
        return learned(
            rows,
            outcome,
            covariance=covariance,
            method=method,
            start=start,
            max_rounds=limit,
            tolerance=tolerance,
            errors=errors,
        )


def fit_poisson(
    rows: GroupedRows,
    *,
    covariance: Covariance = "isotropic",
    approximation: Approximation = "auto",
    method: Literal["default", "em"] = "default",
    prior: RegressionPopulation | None = None,
    start: RegressionPopulation | None = None,
    max_rounds: int | None = None,
    tolerance: float = 1e-8,
) -> RegressionFit:
    """Counts y ~ Poisson(exp(offset + x theta_i + fixed beta)), theta_i ~ N(mean, covariance).

    `rows.offset` is the log exposure of each row, 0 if there is none. All else is as in
    `fit_logistic`: "auto" is quadrature up to 2 coefficients per group, which is exact for
    practical purposes, else expectation propagation; "quadrature" takes up to 3 coefficients.
    """
    owner = "fit_poisson"
    check.choice(owner, "covariance", covariance, get_args(Covariance))
    check.choice(owner, "method", method, ("default", "em"))
    check.positive(owner, tolerance=tolerance)
    check_counts(owner, rows, some=prior is None)
    outcome = _outcome(owner, rows, approximation, prior, start, law=COUNTS)
    slow = method == "em" or outcome.approximation == "laplace"
    limit = _ROUNDS["em" if slow else "default"] if max_rounds is None else max_rounds
    check.count(owner, max_rounds=limit)
    with one_thread():
        if prior is not None:
            return known(rows, outcome, prior)
        return learned(
            rows,
            outcome,
            covariance=covariance,
            method=method,
            start=start,
            max_rounds=limit,
            tolerance=tolerance,
        )


def _outcome(
    owner: str,
    rows: GroupedRows,
    approximation: Approximation,
    prior: RegressionPopulation | None,
    start: RegressionPopulation | None,
    **law: Any,
) -> RowTarget:
    """The outcome with its approximation; populations that are given have to fit it."""
    check.require(rows.num_features > 0, owner, "x", "at least one column", 0)
    logits = law.get("num_classes", 2) - 1
    width, others = rows.num_features * logits, rows.num_fixed * logits
    for role, population in (("prior", prior), ("start", start)):
        if population is not None:
            check_population(owner, role, population, width, others)
    name = choose_approximation(
        owner, approximation, width=width, num_classes=logits + 1, law=law.get("law", CLASSES)
    )
    return RowTarget(owner=owner, approximation=name, **law)
