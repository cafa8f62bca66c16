"""A linear regression for every group, with a population as the prior of the coefficients."""

from typing import Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.regression.linear.answer import described, known_linear
from fedprior.regression.linear.em import LinearGamma, fit_em
from fedprior.regression.linear.identify import check_coefficients, check_identified
from fedprior.regression.linear.likelihood import (
    covariance_profile,
    freedom,
    profile_log_likelihood,
)
from fedprior.regression.linear.maximum import maximum_likelihood
from fedprior.regression.linear.pooled import inverse_triangle
from fedprior.regression.linear.reduction import reduce
from fedprior.regression.linear.structure import nearest_covariance
from fedprior.regression.paper.linear import check_printed, paper_linear
from fedprior.regression.result import (
    Covariance,
    RegressionFit,
    RegressionPopulation,
    check_population,
    gaussian_population,
)
from fedprior.regression.rows import GroupedRows
from fedprior.regression.turn import turn

_OWNER = "fit_linear"
_ROUNDS = {"default": 500, "em": 1000, "paper": 200}
Criterion = Literal["ml", "reml"]
Method = Literal["default", "em", "paper"]


def fit_linear(
    rows: GroupedRows,
    *,
    covariance: Covariance = "isotropic",
    criterion: Criterion = "ml",
    method: Method = "default",
    prior: RegressionPopulation | None = None,
    start: RegressionPopulation | None = None,
    max_rounds: int | None = None,
    tolerance: float = 1e-9,
    rate: float = 0.5,
    floor: float = 1e-3,
) -> RegressionFit:
    """y_i = X_i theta_i + F_i beta + noise, theta_i ~ N(mean, covariance): E[theta_i | y_i].

    "default" maximizes the marginal likelihood with theta integrated out (type II; "reml" is
    restricted) and profiles out mean and beta exactly. "em" finds the same maximum by messages that
    add (D5), until a round gains less than `tolerance` per row. "paper" is Algorithm 2 with `rate`
    and variances of at least `floor` times their start (ERRATA 31, 32). With `prior` nothing is
    learned (Thm6), and sum(errors**2) is a group's mean squared error. Groups may have any size,
    including 0.

    `errors` are those of the prediction theta^_i - theta_i: they include the posterior variance and
    the uncertainty of mean and beta, but not that of the variances. With "paper" and with `prior`
    they include only the posterior variance.
    """
    check.choice(_OWNER, "method", method, _ROUNDS)
    limit = _ROUNDS[method] if max_rounds is None else max_rounds
    check.count(_OWNER, max_rounds=limit)
    check.positive(_OWNER, tolerance=tolerance)
    check.fraction(_OWNER, rate=rate, floor=floor)
    _check_choices(rows, covariance, criterion, method)
    for name, population in (("prior", prior), ("start", start)):
        if population is not None:
            check_population(_OWNER, name, population, rows.num_features, rows.num_fixed)
            noise, rule = population.noise_variance, "with a positive noise variance"
            check.require(noise is not None and 0 < noise < np.inf, _OWNER, name, rule, noise)
    with one_thread():
        if prior is not None:
            return known_linear(rows, prior)
        corner = check_coefficients(rows)
        first = _guess(rows, corner) if start is None else start
        if method == "em":
            return _em(rows, corner, covariance, first, limit=limit, tolerance=tolerance)
        if method == "paper":
            return paper_linear(rows, first, steps=limit, rate=rate, floor=floor)
        restricted = criterion == "reml"
        return _default(rows, corner, covariance, restricted=restricted, start=start, limit=limit)


def _check_choices(
    rows: GroupedRows, covariance: Covariance, criterion: Criterion, method: Method
) -> None:
    check.choice(_OWNER, "covariance", covariance, get_args(Covariance))
    check.choice(_OWNER, "criterion", criterion, get_args(Criterion))
    if method != "default":
        rule, remedy = f"ml with {method}", 'Use method="default", or criterion="ml".'
        check.require(criterion == "ml", _OWNER, "criterion", rule, criterion, remedy)
    if method == "paper":
        check_printed(_OWNER, rows, covariance)


def _guess(rows: GroupedRows, corner: np.ndarray) -> RegressionPopulation:
    """Pooled coefficients; half of the residual variance is noise and half is between groups."""
    coefficients = inverse_triangle(corner[:-1, :-1]) @ corner[:-1, -1]
    half = corner[-1, -1] ** 2 / rows.num_rows / 2
    length = np.sum(corner[:-1, : rows.num_features] ** 2) / rows.num_rows
    width = rows.num_features
    return gaussian_population(
        coefficients[:width],
        half / length * np.eye(width),
        coefficients[width:],
        noise_variance=half,
    )


def _default(
    rows: GroupedRows,
    corner: np.ndarray,
    covariance: Covariance,
    *,
    restricted: bool,
    start: RegressionPopulation | None,
    limit: int,
) -> RegressionFit:
    reduction = reduce(rows, corner, covariance)
    check_identified(reduction)
    begin = None
    if start is not None:
        inverse = np.linalg.inv(reduction.transform[: rows.num_features, : rows.num_features])
        matrix = inverse @ start.covariance @ inverse.T / start.noise_variance
        begin = nearest_covariance(matrix, covariance)
    best = maximum_likelihood(reduction, restricted=restricted, start=begin, most=limit)
    peak = best.profile
    coefficients = reduction.transform @ peak.coefficients + reduction.offset
    return described(
        rows,
        reduction,
        peak,
        coefficients=coefficients,
        noise=peak.squares / freedom(reduction, restricted=restricted),
        restricted=restricted,
        method="default",
        log_likelihood=profile_log_likelihood(peak, reduction, restricted=restricted),
        rounds=best.num_evaluations,
        converged=best.converged,
    )


def _em(
    rows: GroupedRows,
    corner: np.ndarray,
    covariance: Covariance,
    start: RegressionPopulation,
    *,
    limit: int,
    tolerance: float,
) -> RegressionFit:
    reduction = reduce(rows, corner, covariance)
    check_identified(reduction)
    turned, back = turn(rows, corner)  # mean and fixed are updated separately: decorrelate them
    noise = float(start.noise_variance or 1.0)
    mean, fixed = back.into(start.mean, start.fixed)
    fitted = fit_em(
        turned,
        LinearGamma(mean, start.covariance, fixed, noise),
        covariance=covariance,
        most_rounds=limit,
        tolerance=tolerance,
    )
    gamma, width = fitted.gamma, rows.num_features
    inverse = np.linalg.inv(reduction.transform[:width, :width])
    matrix = inverse @ gamma.covariance @ inverse.T / gamma.noise_variance
    peak = covariance_profile(reduction, nearest_covariance(matrix, covariance), restricted=False)
    return described(
        rows,
        reduction,
        peak,
        coefficients=np.concatenate(back.out(gamma.mean, gamma.fixed)),
        noise=gamma.noise_variance,
        restricted=False,
        method="em",
        log_likelihood=fitted.history[-1],
        rounds=len(fitted.history),
        converged=fitted.converged,
        history=fitted.history,
    )
