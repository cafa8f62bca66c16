"""The posterior of the population: a grid of variance ratios with their probabilities."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    degrees,
    known_ratio,
    ratio_profile,
    ratio_range,
)

_POINTS = 65  # of each grid of ratios
_ENOUGH = 28  # points with weight, with which the trapezoid rule errs by less than 1e-6
_DEPTH = 18.0  # log-densities this far below the highest are ignored


@dataclass(frozen=True, kw_only=True, eq=False)
class PopulationNodes:
    """Populations with probabilities; at a node, theta of a group is normal or Student's t.

    At node g theta of group i in bin u with mean y has location (1 - B) y + B x_i'b and squared
    scale `own` + B^2 x_i'C x_i, where B = unit / (unit + ratio shape) is `shrinkage` (1 for a group
    without rows), b are the `coefficients` (nodes, p, d) with `covariance` C (nodes, p, p), and
    `own` = noise unit (1 - B): the flat prior on the coefficients is integrated over. `freedom` is
    that of the noise, infinite where known. `shrinkage` and `own` are (nodes, bins + 1).
    """

    probability: np.ndarray
    ratio: np.ndarray
    noise: np.ndarray
    freedom: float
    shrinkage: np.ndarray
    own: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray

    @property
    def inflation(self) -> float:
        """Variance over squared scale of Student's t (kept finite for 2 degrees and fewer)."""
        if np.isinf(self.freedom):
            return 1.0
        return self.freedom / max(self.freedom - 2, 1.0)


def integrated(bins: Bins, law: MeanLaw, *, theta_variance: float | None = None) -> PopulationNodes:
    """Nodes over the variance A of theta and the noise, whichever of the two is unknown.

    The prior is flat in the coefficients, 1 / noise in the noise and 1 / (v0 + A) in A, v0 the
    harmonic mean of the sampling variances. The posterior is proper with two groups, and 95%
    intervals cover at least 93.5% from 5 groups on (tests/estimation/test_gaussian_coverage.py). A
    prior flat in A shrinks too little below 10 groups; with 1 / (v0 + A)^2 they cover 92%.
    """
    fixed = known_ratio(bins, theta_variance)
    if fixed is not None:
        return nodes_at(bins, law, np.array([fixed]), np.ones(1))
    low, high, step = ratio_range(bins, law, theta_variance)
    middle = bins.num_groups / float((bins.count * law.shape[:-1] / bins.unit).sum())
    left, right = np.log1p(low / step), np.log1p(high / step)
    while True:
        grid = np.linspace(left, right, _POINTS)
        ratio = step * np.expm1(grid)
        density = ratio_profile(bins, law, ratio, theta_variance=theta_variance).log_likelihood
        prior = np.log(ratio) if theta_variance is not None else np.log(middle + ratio)
        density = density + grid - prior  # exp(grid) is the Jacobian
        inside = np.flatnonzero(density > density.max() - _DEPTH)
        if len(inside) >= _ENOUGH or right - left < 1e-9 * right:
            break
        left, right = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, _POINTS - 1)]
    probability = np.exp(density - density.max())
    probability[[0, -1]] /= 2  # the trapezoid rule
    keep = slice(inside[0], inside[-1] + 1)
    probability = probability[keep] / probability[keep].sum()
    return nodes_at(bins, law, ratio[keep], probability, theta_variance=theta_variance)


def nodes_at(
    bins: Bins,
    law: MeanLaw,
    ratio: np.ndarray,
    probability: np.ndarray,
    *,
    theta_variance: float | None = None,
) -> PopulationNodes:
    """Nodes at the given ratios, with the given probabilities."""
    fitted = ratio_profile(bins, law, ratio, theta_variance=theta_variance)
    spread = np.outer(ratio, law.shape)
    shrinkage = np.ones_like(spread)
    shrinkage[:, :-1] = bins.unit / (bins.unit + spread[:, :-1])
    own = spread * shrinkage  # unit (1 - B) = ratio shape B, also for groups without rows
    known = bins.noise is not None or bool(theta_variance)
    return PopulationNodes(
        probability=probability,
        ratio=ratio,
        noise=fitted.noise,
        freedom=np.inf if known else degrees(bins, law),
        shrinkage=shrinkage,
        own=fitted.noise[:, None] * own,
        coefficients=fitted.coefficients,
        covariance=fitted.noise[:, None, None] * fitted.covariance,
    )
