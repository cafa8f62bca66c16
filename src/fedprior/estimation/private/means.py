"""Means of groups that each send one private report to the server and keep their data."""

from typing import Literal, get_args

import numpy as np

from fedprior.core import check, random
from fedprior.core.algorithm import Key
from fedprior.estimation.paper.reports import paper_mean_reports
from fedprior.estimation.private.moments import Ball, Known, fit_moments
from fedprior.estimation.private.result import NEIGHBORS, Fitted, assemble, unit_of
from fedprior.estimation.private.round import (
    Variances,
    combine_reports,
    means_of_groups,
    one_round,
)
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Means
from fedprior.privacy.guarantee import Guarantee

Bounds = Literal["groups", "population"]

_OWNER = "estimate_means_privately"


def estimate_means_privately(
    statistics: Means,
    *,
    epsilon: float,
    delta: float = 0.0,
    low: float,
    high: float,
    bounds: Bounds = "groups",
    noise_variance: float | None = None,
    theta_variance: float | None = None,
    variance_bound: float | None = None,
    method: Literal["default", "paper"] = "default",
    seed: int | None = None,
    level: float = 0.95,
) -> Estimates:
    """theta_i = a_i X_i + (1 - a_i) mu, with a population from one private report per group.

    [low, high] is public: a ball of center (low + high) / 2 in every coordinate and radius
    (high - low) / 2. With bounds = "groups" it contains the groups' means; means outside are
    reported at its edge. With bounds = "population" it contains the population's mean, both
    variances must be known, and the ball is widened to contain all means (ERRATA 5, D1).

    With delta > 0, reports have Gaussian noise by the analytic mechanism (simulated only, seed 0 by
    default); with delta = 0 a report is one randomized bit (from the operating system without a
    seed). The guarantee is (epsilon, delta)-DP in the local model if one group's rows are replaced;
    sizes are public. `theta_variance` is the variance of the groups' thetas and `noise_variance`
    that of one value (Thm 2, with unequal sizes). Unknown variances are reported too, as the
    squared distance from the ball's center and as the group's sample variance, which
    `variance_bound` bounds (default: its largest value for n values in [low, high], (high - low)^2
    / 4 * n / (n - 1)). `statistics.variance` is treated as public and replaces `noise_variance`.

    `method="paper"` uses Thm 2.2's noise and ball as printed, per coordinate; the guarantee has the
    true epsilon, and the paper's value is in the notes (ERRATA 5, 7, 8).
    """
    check.positive(_OWNER, epsilon=epsilon)
    check.share(_OWNER, delta=delta, level=level)
    check.choice(_OWNER, "bounds", bounds, get_args(Bounds))
    check.choice(_OWNER, "method", method, ("default", "paper"))
    check.require(low < high, _OWNER, "low", f"below high ({high:g})", low)
    known = _known(statistics, theta_variance, noise_variance, variance_bound, (low, high))
    ball = Ball((low + high) / 2, (high - low) / 2, statistics.dimension)
    key: Key = random.secure()
    if delta > 0 or seed is not None:
        key = random.stream(check.seed(_OWNER, seed or 0), "encode")
    if known.theta is not None and known.noise is not None:
        both = Variances(known.theta, known.noise, known.size, known.least)
        budget, widen = (epsilon, delta, key), bounds == "population"
        if method == "paper":
            means = means_of_groups(statistics, both)
            sent = paper_mean_reports(means, both, ball, *budget, widen=widen)
            fitted = combine_reports(statistics, both, sent)
        else:
            fitted = one_round(statistics, both, ball, *budget, widen=widen)
    else:
        rule = "known for bounds='population' and for method='paper'"
        needed = bounds == "population" or method == "paper"
        check.require(not needed, _OWNER, "theta_variance and noise_variance", rule, None)
        fitted = fit_moments(statistics, known, ball, epsilon, delta, key)
    return assemble(
        n=np.asarray(statistics.n),
        raw=np.asarray(statistics.mean, np.float64),
        center=fitted.population.mean,
        weighing=fitted.weighing,
        population=fitted.population,
        guarantee=_guarantee(fitted, delta, key, public=statistics.variance is not None),
        level=level,
        notes=fitted.notes,
    )


def _known(
    statistics: Means,
    theta: float | None,
    noise: float | None,
    bound: float | None,
    limits: tuple[float, float],
) -> Known:
    """Check the variances; a known standard error is the noise of `size` = 1 / variance values."""
    n = np.asarray(statistics.n, np.float64)
    there = n > 0
    number = int(there.sum())
    rule = "at least 3 groups with data"
    check.require(number > 2, _OWNER, "statistics", rule, number)
    if theta is not None:
        check.nonnegative(_OWNER, theta_variance=theta)
    if noise is not None:
        check.positive(_OWNER, noise_variance=noise)
    if bound is not None:
        check.positive(_OWNER, variance_bound=bound)
    size = n
    if statistics.variance is not None:
        rule = "None where statistics.variance is given"
        check.require(noise is None, _OWNER, "noise_variance", rule, noise)
        noise = 1.0
        size = np.where(there, 1 / np.where(there, statistics.variance, 1.0), 0.0)
    elif noise is None:
        remedy = "Give noise_variance, or groups of two rows or more with `within`."
        able = statistics.within is not None and bool((n > 1).any())
        check.require(able, _OWNER, "noise_variance", "given or identifiable", None, remedy)
    largest = ((limits[1] - limits[0]) / 2) ** 2 if bound is None else bound
    # n values in [low, high] have a sample variance of up to n / (n - 1) times that of the law.
    widest = largest * n / np.maximum(n - 1, 1) if bound is None else np.full(len(n), largest)
    return Known(theta, noise, largest, widest, size, int(n[there].min()))


def _guarantee(fitted: Fitted, delta: float, key: Key, *, public: bool) -> Guarantee:
    return Guarantee(
        epsilon=fitted.epsilon,
        delta=delta,
        unit=unit_of(errors_are_public=public),
        neighbors=NEIGHBORS,
        trust="nobody (local model)",
        mechanism=fitted.what,
        noise=random.noise_of(key),
        bits=fitted.bits,
    )
