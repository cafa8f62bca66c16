"""A population that depends on the size of the group: the test for it, and the fit."""

from dataclasses import replace

import numpy as np

from fedprior.core import check
from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    RatioProfile,
    common_law,
    degrees,
    law_of,
    ratio_profile,
    restricted_maximum,
)
from fedprior.estimation.gaussian.rows import locations, squares_about
from fedprior.estimation.splines import spline_basis

_SIGNIFICANT = 1e-3
_MATERIAL = 0.98  # a warning only where the estimated error is at least 2% lower
_BEND = 1.0  # prior scale of log A between sizes: a factor of 3 in the variance is plausible
_TESTED = 100_000  # largest number of groups used to test the variance


def sizes_of(bins: Bins) -> np.ndarray:
    """The covariate of each bin: log n or, with one standard error per group, log(1 / variance)."""
    return -np.log(bins.unit)


def size_law(bins: Bins, ratio: float) -> MeanLaw:
    """Fit N(f(log n), A(log n) I), f and log A natural splines, by restricted likelihood.

    The search starts at `ratio`, that of the common population. f has up to 4 knots and log A up to
    3, but two each below 100 groups. The shape of A is normalized to mean 1 over groups. A group
    without rows gets the population of the smallest size in the data.
    """
    from scipy import optimize

    check.expect(bins.num_bins > 1, "estimate_means", "by_size needs groups of different sizes.")
    many = bins.num_groups >= 100
    design = size_basis(bins, 4 if many else 2)
    curve = size_basis(bins, 3 if many else 2)
    middle = bins.num_groups / float((bins.count / bins.unit).sum())
    bounds = np.log(middle * np.array([1e-4, 1e6]))

    def shape_of(logs: np.ndarray) -> np.ndarray:
        return np.exp(np.clip(curve @ logs, *bounds))

    wide = law_of(bins, design, np.ones(bins.num_bins + 1))

    def objective(logs: np.ndarray) -> float:
        law = replace(wide, shape=shape_of(logs))
        penalty = ((logs - logs.mean()) ** 2).sum() / (2 * _BEND**2)
        log_likelihood = ratio_profile(bins, law, np.ones(1)).log_likelihood[0]
        return float(penalty - log_likelihood) / bins.num_groups

    start = np.full(curve.shape[1], np.clip(np.log(max(ratio, 0.1 * middle)), *bounds))
    optimum = optimize.minimize(
        objective, start, method="L-BFGS-B", bounds=[tuple(bounds)] * len(start)
    )
    shape = shape_of(optimum.x)
    return replace(wide, shape=shape / (bins.count @ shape[:-1] / bins.num_groups))


def size_basis(bins: Bins, num_knots: int) -> np.ndarray:
    """Splines of the covariate, one row per bin; the last row is that of the smallest size."""
    size = sizes_of(bins)
    return spline_basis(np.append(size, size.min()), size, bins.count, num_knots)


def estimated_error(bins: Bins, law: MeanLaw, fitted: RatioProfile) -> float:
    """Stein's unbiased estimate of the mean squared error of x - B (x - l), per coordinate."""
    variance = fitted.noise[0] * bins.unit
    shrinkage = bins.unit / (bins.unit + fitted.ratio[0] * law.shape[:-1])
    squares = squares_about(bins, law, fitted.coefficients[0])
    total = bins.dimension * (bins.count * variance) @ (1 - 2 * shrinkage) + shrinkage**2 @ squares
    return float(total) / (bins.num_groups * bins.dimension)


def chance_of_mean(bins: Bins, ratio: float) -> float:
    """p-value of the hypothesis that the mean of theta does not depend on size."""
    from scipy import special

    wide = law_of(bins, size_basis(bins, 4), np.ones(bins.num_bins + 1))
    if bins.num_groups <= wide.design.shape[1] + 1:
        return 1.0
    law = common_law(bins)
    before = ratio_profile(bins, law, np.array([ratio]))
    after = ratio_profile(bins, wide, np.array([ratio]))
    columns = bins.dimension * (wide.design.shape[1] - law.design.shape[1])
    drop = max(float(before.squares[0] - after.squares[0]), 0.0)
    if bins.noise is not None:
        return float(special.chdtrc(columns, drop / bins.noise))
    freedom = degrees(bins, wide)
    rest = (bins.residual + float(after.squares[0])) / freedom
    return float(special.fdtrc(columns, freedom, drop / columns / rest))


def chance_of_spread(bins: Bins, raw: np.ndarray, ratio: float) -> float:
    """p-value of the hypothesis that the variance of theta does not depend on size.

    Regression of squared standardized residuals on log size. Its standard error comes from their
    own scatter, so that heavy tails do not cause a warning.
    """
    from scipy import special

    some = np.arange(0, len(raw), -(-len(raw) // _TESTED))
    some = some[bins.place[some] < bins.num_bins]
    place = bins.place[some]
    if len(some) < 20:
        return 1.0
    law = common_law(bins)
    fitted = ratio_profile(bins, law, np.array([ratio]))
    residual = raw[some] - bins.center - locations(bins, law, fitted.coefficients[0], some)
    total = fitted.noise[0] * (bins.unit + ratio)
    excess = (residual**2).sum(axis=1) / total[place] - bins.dimension
    size = sizes_of(bins)[place]
    size = size - size.mean()
    score = size * (excess - excess.mean())
    deviation = float(np.sqrt((score**2).sum()))
    return float(2 * special.ndtr(-abs(score.sum()) / deviation)) if deviation > 0 else 1.0


def warning(bins: Bins, raw: np.ndarray, fitted: RatioProfile) -> str | None:
    """A warning if size carries information that a common population wastes, else an empty one.

    None if all groups are of one size, so that nothing was tested.
    """
    if bins.num_bins < 2:
        return None
    ratio = float(fitted.ratio[0])
    chance = 2 * min(chance_of_mean(bins, ratio), chance_of_spread(bins, raw, ratio))
    chance = max(chance, 1e-99)  # smaller values are rounding errors
    if chance >= _SIGNIFICANT:
        return ""
    law = size_law(bins, ratio)
    pooled = estimated_error(bins, common_law(bins), fitted)
    # An unbiased estimate of an error near 0 may be negative.
    apart = max(estimated_error(bins, law, restricted_maximum(bins, law)), 0.0)
    if not apart < _MATERIAL * pooled:
        return ""
    subject = "standard error" if bins.each_known else "size"
    return (
        f"The {subject} of a group carries information: small and large differ (p = "
        f"{chance:.1g}), and a population that depends on it would lower the estimated error by "
        f"{100 * (1 - apart / pooled):.0f}%. Use by_size=True (--by-size on the command line)."
    )
