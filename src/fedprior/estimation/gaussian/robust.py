"""Robust half-widths for any population (Armstrong, Kolesar and Plagborg-Moller 2022)."""

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, RatioProfile
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.gaussian.posterior import LinearRule
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
    """C w sqrt(v) for each bin, c the critical value at E b^2 = (1 - w)^2 (A + q) / (w^2 v).

    w is the weight of the group's own mean, q the sampling variance of the population's mean. A is
    the fitted variance or its posterior median, if that is larger, so that no width collapses to 0.
    """
    noise = float(fitted.noise[0])
    order = np.argsort(nodes.ratio)
    half_way = int(np.searchsorted(np.cumsum(nodes.probability[order]), 0.5))
    ratio = max(float(fitted.ratio[0]), float(nodes.ratio[order][half_way]))
    spread = noise * ratio * law.shape
    error = noise * np.einsum("up,pq,uq->u", law.design, fitted.covariance[0], law.design)
    variance = np.append(noise * bins.unit, spread[-1])
    weight = np.maximum(rule.slope, _LEAST_WEIGHT)
    second = (1 - rule.slope) ** 2 * (spread + error) / (weight**2 * variance)
    kurtosis = kurtosis_of(bins, law, fitted, ratio, raw)
    value = robust_critical_value(second, kurtosis=kurtosis, level=level)
    return value * weight * np.sqrt(variance)


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
    location = law.design[:-1] @ fitted.coefficients[0]
    squares = (raw[some] - bins.center - location[place]) ** 2 / shape[place][:, None]
    variance = fitted.noise[0] * bins.unit / shape
    second = fitted.noise[0] * ratio
    weight = 1 / (variance + second) ** 2
    own, noise = weight[place][:, None], variance[place][:, None]
    total = bins.dimension * float(own.sum())
    fourth = float((own * (squares**2 - 6 * noise * squares + 3 * noise**2)).sum()) / total
    above = 32 * float((own**2 * noise**4).sum())
    above /= second**2 * total * float((own * noise**2).sum())
    return max(fourth / second**2, 1 + above, 1.0)
