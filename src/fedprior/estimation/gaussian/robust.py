"""Robust half-widths for any population (Armstrong, Kolesar and Plagborg-Moller 2022)."""

from typing import Any

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, RatioProfile
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.gaussian.posterior import LinearRule
from fedprior.estimation.gaussian.rows import locations, quadratic
from fedprior.estimation.intervals import robust_critical_value

FEW = 100  # with fewer groups the kurtosis is not estimated but left unbounded
_LOOKED_AT = 1_000_000  # largest number of groups used to estimate the kurtosis
_LEAST_WEIGHT = 1e-4  # below this weight the interval accounts for the bias alone


def robust_half_widths(
    bins: Bins,
    law: MeanLaw,
    nodes: PopulationNodes,
    fitted: RatioProfile,
    rule: LinearRule,
    raw: np.ndarray,
    *,
    level: float,
) -> np.ndarray:
    """C w sqrt(v) for each group, c the critical value at E b^2 = (1 - w)^2 (A + q) / (w^2 v).

    w is the weight of the group's own mean, q the sampling variance of the population's mean. A is
    the fitted variance or its posterior median, if that is larger, so that no width collapses to 0.
    """
    noise = float(fitted.noise[0])
    order = np.argsort(nodes.ratio)
    half_way = int(np.searchsorted(np.cumsum(nodes.probability[order]), 0.5))
    ratio = max(float(fitted.ratio[0]), float(nodes.ratio[order][half_way]))
    error = quadratic(bins, law, noise * fitted.covariance[0])
    # Without covariates one group stands for all of its bin.
    some: Any = slice(None) if bins.covariates is not None else _one_of_each(bins)
    place = bins.place[some]
    spread = noise * ratio * law.shape
    variance = np.append(noise * bins.unit, spread[-1])[place]
    slope = rule.slope[place]
    weight = np.maximum(slope, _LEAST_WEIGHT)
    second = (1 - slope) ** 2 * (spread[place] + error(some)) / (weight**2 * variance)
    kurtosis = kurtosis_of(bins, law, fitted, ratio, raw)
    value = robust_critical_value(second, kurtosis=kurtosis, level=level)
    half = value * weight * np.sqrt(variance)
    if bins.covariates is not None:
        return half
    table = np.zeros(bins.num_bins + 1)
    table[place] = half
    return table[bins.place]


def _one_of_each(bins: Bins) -> np.ndarray:
    """The place of one group of each bin that has any."""
    found = np.full(bins.num_bins + 1, -1)
    found[bins.place] = np.arange(len(bins.place))
    return found[found >= 0]


def kurtosis_of(
    bins: Bins, law: MeanLaw, fitted: RatioProfile, ratio: float, raw: np.ndarray
) -> float:
    """E (theta - l)^4 / A^2 from the groups' fourth moments, bounded below.

    The weights are (v + A)^-2; the lower bound is that of Armstrong, Kolesar and Plagborg-Moller
    (appendix A). Infinite for fewer than 100 groups.
    """
    if bins.num_groups < FEW:
        return np.inf
    step = -(-len(raw) // _LOOKED_AT)
    some = np.flatnonzero(bins.place[::step] < bins.num_bins) * step
    place = bins.place[some]
    shape = law.shape[:-1]
    location = locations(bins, law, fitted.coefficients[0], some)
    # All in units of the noise variance, so that fourth powers are numbers on any scale.
    squares = (raw[some] - bins.center - location) ** 2 / fitted.noise[0] / shape[place][:, None]
    variance, second = bins.unit / shape, ratio
    weight = 1 / (variance + second) ** 2
    own, noise = weight[place][:, None], variance[place][:, None]
    total = bins.dimension * float(own.sum())
    fourth = float((own * (squares**2 - 6 * noise * squares + 3 * noise**2)).sum()) / total
    above = 32 * float((own**2 * noise**4).sum())
    above /= second**2 * total * float((own * noise**2).sum())
    return max(fourth / second**2, 1 + above, 1.0)
