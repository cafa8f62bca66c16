"""Means of groups that each send one private report to the server and keep their data."""

from typing import Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.estimation.choices import METHODS
from fedprior.estimation.paper.reports import paper_mean_report
from fedprior.estimation.private.moments import Ball, Known, moments_report
from fedprior.estimation.private.result import Budget, Report, ask, assemble, unit_of
from fedprior.estimation.private.round import Variances, mean_report
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Means
from fedprior.privacy.ledger import Ledger

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
    allow_delta: bool = False,
    ledger: Ledger | None = None,
) -> Estimates:
    """theta_i = a_i X_i + (1 - a_i) mu, with a population from one private report per group.

    [low, high] is public: a ball of center (low + high) / 2 in every coordinate and radius
    (high - low) / 2. With bounds = "groups" it contains the groups' means; means outside are
    reported at its edge. With bounds = "population" it contains the population's mean, both
    variances must be known, and the ball is widened to contain all means (ERRATA 5, D1).

    With delta > 0, reports have Gaussian noise by the analytic mechanism (simulated only, seed 0 by
    default); with delta = 0 a report is one randomized bit (from the operating system without a
    seed). The guarantee is (epsilon, delta)-DP in the local model if one group's rows are replaced;
    sizes are public. A delta of 1 / groups or more is refused unless `allow_delta`. The reports are
    charged to `ledger` (view `local`, relation `replace-one`) before they are drawn; noise from the
    operating system, which is valid for release, requires one.

    `theta_variance` is the variance of the groups' thetas and `noise_variance` that of one value
    (Thm 2, with unequal sizes). Unknown variances are reported too, as the squared distance from
    the ball's center and as the group's sample variance, which `variance_bound` bounds (default:
    its largest value for n values in [low, high], (high - low)^2 / 4 * n / (n - 1)).
    `statistics.variance` is treated as public and replaces `noise_variance`.

    `method="paper"` uses Thm 2.2's noise and ball as printed, per coordinate; the guarantee has the
    true epsilon, and the paper's value is in the notes (ERRATA 5, 7, 8).
    """
    check.share(_OWNER, level=level)
    check.choice(_OWNER, "bounds", bounds, get_args(Bounds))
    check.choice(_OWNER, "method", method, METHODS)
    check.require(low < high, _OWNER, "low", f"below high ({high:g})", low)
    budget = Budget.of(_OWNER, epsilon, delta, seed=seed, allow_delta=allow_delta)
    known = _known(statistics, theta_variance, noise_variance, variance_bound, (low, high))
    ball = Ball((low + high) / 2, (high - low) / 2, statistics.dimension)
    report = _report(statistics, known, ball, budget, paper=method == "paper", bounds=bounds)
    fitted, guarantee = ask(
        _OWNER,
        report,
        budget,
        ledger,
        unit=unit_of(errors_are_public=statistics.variance is not None),
        num_groups=int((known.size > 0).sum()),
        content=(statistics.n, statistics.mean, statistics.within, *known, *ball),
    )
    raw = np.asarray(statistics.mean, np.float64)
    return assemble(np.asarray(statistics.n), raw, fitted, guarantee, level=level)


def _report(
    statistics: Means, known: Known, ball: Ball, budget: Budget, *, paper: bool, bounds: Bounds
) -> Report:
    """What each group sends: its mean, or also what tells of the variances that are unknown."""
    if known.theta is not None and known.noise is not None:
        both = Variances(known.theta, known.noise, known.size, known.least)
        form = paper_mean_report if paper else mean_report
        return form(statistics, both, ball, budget, widen=bounds == "population")
    rule = "known for bounds='population' and for method='paper'"
    needed = bounds == "population" or paper
    check.require(not needed, _OWNER, "theta_variance and noise_variance", rule, None)
    return moments_report(statistics, known, ball, budget)


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
