"""Quantiles of mixtures, and critical values that hold for any shape of the population."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedprior.core import check

_STUDENT_AS_NORMAL = 100.0  # degrees of freedom above which the approximation errs by 1e-5 at most


def normal_score(level: float) -> float:
    """The number z with P(|Z| <= z) = level for a standard normal Z."""
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def mixture_interval(
    level: float,
    probability: np.ndarray,
    location: np.ndarray,
    scale: np.ndarray,
    **how: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The equal-tailed interval of the mixture of `mixture_cdf`; the rest as in its quantiles."""
    lower, upper = (
        mixture_quantile(tail, probability, location, scale, **how)
        for tail in ((1 - level) / 2, (1 + level) / 2)
    )
    return lower, upper


def mixture_cdf(
    points: np.ndarray,
    probability: np.ndarray,
    location: np.ndarray,
    scale: np.ndarray,
    *,
    freedom: float = np.inf,
) -> np.ndarray:
    """sum_g probability[g] F((points - location[g]) / scale[g]), F normal or Student's t.

    The first axis of `location` and `scale` runs over the components; `probability` is one number
    per component, or has the shape of `location`.
    """
    from scipy import special

    below = (points - location) / scale
    if freedom > _STUDENT_AS_NORMAL:
        below = special.ndtr(_as_normal(below, freedom))
    else:
        below = special.stdtr(freedom, below)
    return _mean(probability, below)


def _mean(probability: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The mean over components, which have one probability, or one for every entry."""
    if probability.ndim == 1:
        return np.tensordot(probability, values, axes=1)
    return np.einsum("g...,g...->...", probability, values)


def _as_normal(z: np.ndarray, freedom: float) -> np.ndarray:
    """A Student's t variable as a normal one (Abramowitz and Stegun 26.7.8)."""
    if np.isinf(freedom):
        return z
    return z * (1 - 1 / (4 * freedom)) / np.sqrt(1 + z**2 / (2 * freedom))


def mixture_quantile(
    level: float,
    probability: np.ndarray,
    location: np.ndarray,
    scale: np.ndarray,
    *,
    freedom: float = np.inf,
    tolerance: float = 1e-7,
) -> np.ndarray:
    """The quantile at `level` of the mixture of `mixture_cdf`.

    Secant steps on the normal score of the cdf, which is nearly linear; a step that leaves the
    bracket is replaced by bisection. `tolerance` is that of the normal score.
    """
    from scipy import special

    target = special.ndtri(level)
    ends = location + (target if np.isinf(freedom) else special.stdtrit(freedom, level)) * scale
    margin = 1e-3 * scale.max(axis=0)  # the mixture's quantile lies between its components'
    low, high = ends.min(axis=0) - margin, ends.max(axis=0) + margin
    point = _mean(probability, location)
    spread = _mean(probability, (location - point) ** 2 + scale**2)
    point = np.clip(point + target * np.sqrt(spread), low, high)
    slope = 1 / np.sqrt(spread)
    before = before_score = None
    for _ in range(80):
        mass = mixture_cdf(point, probability, location, scale, freedom=freedom)
        score = special.ndtri(np.clip(mass, 1e-300, 1 - 1e-16)) - target
        if np.abs(score).max() < tolerance:
            break
        if before is not None:  # the secant since the last point
            with np.errstate(invalid="ignore", divide="ignore"):
                secant = (score - before_score) / (point - before)
            slope = np.where(np.isfinite(secant) & (secant > 0), secant, slope)
        low, high = np.where(score < 0, point, low), np.where(score > 0, point, high)
        before, before_score = point, score
        point = point - score / slope
        point = np.where((point > low) & (point < high), point, (low + high) / 2)
    return point


def quantile_between(
    cdf: Callable[[np.ndarray, Any], np.ndarray],
    level: float,
    low: np.ndarray,
    start: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """The point in [low, high] of each row at which `cdf(points, rows)` passes `level`.

    Secant steps on the normal score, with a bisection in every third step and wherever a step
    leaves the bracket: the cdf may have jumps. Rows that have converged are not looked at again.
    """
    from scipy.special import ndtri

    target, point = ndtri(level), np.clip(start, low, high)
    low, high = low.copy(), high.copy()
    width = np.maximum(high - low, 1e-300)
    slope = 4 / width
    before, before_score = point.copy(), np.full(len(point), np.nan)
    active = np.arange(len(point))
    for step in range(90):
        at = point[active]
        score = ndtri(np.clip(cdf(at, active), 1e-300, 1 - 1e-16)) - target
        low[active] = np.where(score < 0, at, low[active])
        high[active] = np.where(score >= 0, at, high[active])
        narrow = high[active] - low[active] < 1e-8 * width[active]
        going = (np.abs(score) > 1e-6) & ~narrow
        with np.errstate(invalid="ignore", divide="ignore"):
            secant = (score - before_score[active]) / (at - before[active])
        slope[active] = np.where(np.isfinite(secant) & (secant > 0), secant, slope[active])
        before[active], before_score[active] = at, score
        active, at, score = active[going], at[going], score[going]
        if not len(active):
            break
        trial = at - score / slope[active]
        inside = (trial > low[active]) & (trial < high[active]) & (step % 3 != 2)
        point[active] = np.where(inside, trial, (low[active] + high[active]) / 2)
    return point


_TABLE = 257  # number of tabulated second moments: linear interpolation errs by less than 2e-4 of c


def robust_critical_value(
    second_moment: np.ndarray | float, *, kurtosis: float = np.inf, level: float = 0.95
) -> np.ndarray:
    """The c with max P(|Z + b| > c) = 1 - level over b with E b^2 = `second_moment`, Z normal.

    b is the bias of a shrunken estimate divided by its standard error: E b^2 = v / A for weight
    A / (A + v). The maximum is also subject to E b^4 <= `kurtosis` (E b^2)^2. An interval of this
    half width has average coverage `level` for any shape of the population (Armstrong, Kolesar and
    Plagborg-Moller 2022). The worst b^2 takes two values: 0 and another or, where the kurtosis
    binds, the pair with these two moments. Many second moments are interpolated from a table.

    >>> robust_critical_value(np.array([0.0, 1.0])).round(3).tolist()
    [1.96, 3.259]
    """
    check.require(kurtosis >= 1, "robust_critical_value", "kurtosis", "at least 1", kurtosis)
    check.require(0 < level < 1, "robust_critical_value", "level", "in (0, 1)", level)
    wanted = np.maximum(np.asarray(second_moment, np.float64), 1e-12)
    rule = "finite numbers"
    finite = bool(np.isfinite(wanted).all())
    check.require(finite, "robust_critical_value", "second_moment", rule, second_moment)
    if wanted.size <= _TABLE:
        return _critical_value(wanted.ravel(), kurtosis, level).reshape(wanted.shape)
    logs = np.log(np.maximum(wanted, 1e-6))
    nodes = np.linspace(logs.min(), logs.max(), _TABLE)
    table = _critical_value(np.exp(nodes), kurtosis, level) / np.sqrt(1 + np.exp(nodes))
    return np.interp(logs, nodes, table) * np.sqrt(1 + wanted)


def _critical_value(second: np.ndarray, kurtosis: float, level: float) -> np.ndarray:
    """Bisection in c: the worst noncoverage decreases, and Chebyshev's inequality bounds c."""
    low = np.full(second.shape, normal_score(level))
    high = low + np.sqrt(second / (1 - level)) + 1e-9
    for _ in range(40):
        middle = (low + high) / 2
        above = _worst_noncoverage(second, kurtosis, middle) > 1 - level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def _worst_noncoverage(second: np.ndarray, kurtosis: float, c: np.ndarray) -> np.ndarray:
    """The max P(|Z + b| > c) for each second moment of b and each c."""
    top = np.maximum(second, (c + 6) ** 2)  # a larger b adds no noncoverage but costs probability

    def with_zero(share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        other = second + (top - second) * share**2
        inside = _miss(np.zeros_like(c), c)
        return inside + second / other * (_miss(other, c) - inside), other

    best, other = _highest(with_zero, len(second))
    if np.isinf(kurtosis):
        return best

    def with_both_moments(share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        lower = second * share * (1 - 1e-9)
        upper = second + (kurtosis - 1) * second**2 / (second - lower)
        chance = (second - lower) / np.maximum(upper - lower, 1e-300)
        return (1 - chance) * _miss(lower, c) + chance * _miss(upper, c), lower

    bound, _ = _highest(with_both_moments, len(second))
    return np.where(other <= kurtosis * second, best, bound)


def _miss(square: np.ndarray, c: np.ndarray) -> np.ndarray:
    """P(|Z + b| > c) at b^2 = `square`."""
    from scipy.special import ndtr

    b = np.sqrt(square)
    return ndtr(-c - b) + ndtr(b - c)


def _highest(
    value: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The maximum over a share in [0, 1] and its companion value, by successively finer grids."""
    low, high = np.zeros(size), np.ones(size)
    for _ in range(3):
        share = np.linspace(low, high, 33)
        values, other = value(share)
        best = np.argmax(values, axis=0)
        columns = np.arange(size)
        low = share[np.maximum(best - 1, 0), columns]
        high = share[np.minimum(best + 1, len(share) - 1), columns]
    return values[best, columns], other[best, columns]
