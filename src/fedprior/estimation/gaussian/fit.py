"""The restricted likelihood of group means, and fits of the variance between groups."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.bins import Bins


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanLaw:
    """theta of group i in bin u ~ N(x_i @ coefficients, ratio * noise * shape[u] I).

    x_i = [columns of the bin, covariates of the group], if there are any. For the common population
    the bins' columns are ones and the shape is 1. `design` (bins + 1, p) is the mean of x over the
    groups of a bin; its last row and that of `shape` are for a group without rows. `gram` (bins, p,
    p) and `moment` (bins, p, d) are the sums of x x' and x mean' over the groups of a bin.
    """

    design: np.ndarray
    shape: np.ndarray
    gram: np.ndarray
    moment: np.ndarray


def law_of(bins: Bins, columns: np.ndarray, shape: np.ndarray) -> MeanLaw:
    """The law with these columns, (bins + 1, k), beside the covariates of the groups."""
    inner, count = columns[:-1], bins.count[:, None, None]
    gram = count * inner[:, :, None] * inner[:, None, :]
    moment = count * inner[:, :, None] * bins.mean[:, None, :]
    z = bins.covariates
    if z is None:
        return MeanLaw(design=columns, shape=shape, gram=gram, moment=moment)
    cross = inner[:, :, None] * z.total[:, None, :]
    upper = np.concatenate([gram, cross], axis=2)
    lower = np.concatenate([cross.swapaxes(1, 2), z.gram], axis=2)
    mean = np.append(z.total / bins.count[:, None], np.zeros((1, z.total.shape[1])), axis=0)
    return MeanLaw(
        design=np.concatenate([columns, mean], axis=1),
        shape=shape,
        gram=np.concatenate([upper, lower], axis=1),
        moment=np.concatenate([moment, z.moment], axis=1),
    )


def common_law(bins: Bins) -> MeanLaw:
    """One mean, up to the covariates, and one variance for all groups."""
    return law_of(bins, np.ones((bins.num_bins + 1, 1)), np.ones(bins.num_bins + 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioProfile:
    """Restricted likelihood at each of G ratios of theta's variance to the noise variance.

    `coefficients` (G, p, d) are the generalized least squares fit; `covariance` (G, p, p) its
    covariance in units of `noise` (G,), the noise variance that goes with the ratio; `squares` (G,)
    is the weighted sum of squares between groups.
    """

    ratio: np.ndarray
    log_likelihood: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray
    squares: np.ndarray
    noise: np.ndarray


def degrees(bins: Bins, law: MeanLaw) -> float:
    """Degrees of freedom of the noise variance, within groups and of groups about the fit."""
    return bins.freedom + bins.dimension * (bins.num_groups - law.design.shape[1])


def ratio_profile(
    bins: Bins, law: MeanLaw, ratio: np.ndarray, *, theta_variance: float | None = None
) -> RatioProfile:
    """Log L = -(d sum c log(u + r k) + d log|X'WX| + nu log noise + (SS + Q) / noise) / 2.

    u is the sampling variance and r k the variance of theta, both in units of the noise. The noise
    is known, or theta_variance / ratio if theta_variance is known, or its maximum (SS + Q) / nu.
    """
    total = bins.unit + np.outer(ratio, law.shape[:-1])
    weight = 1 / total
    normal = np.tensordot(weight, law.gram, axes=1)
    right = np.tensordot(weight, law.moment, axes=1)
    covariance = np.linalg.inv(normal)
    coefficients = covariance @ right
    squares = weight @ bins.squares
    squares = np.maximum(squares - (coefficients * right).sum(axis=(1, 2)), 0.0)
    freedom = degrees(bins, law)
    known = bins.noise is not None
    if known:
        noise = np.full(len(ratio), bins.noise)
    elif theta_variance:
        noise = theta_variance / ratio
    else:
        noise = (bins.residual + squares) / freedom
    twice = bins.dimension * (np.log(total) @ bins.count + np.linalg.slogdet(normal)[1])
    twice += freedom * np.log(noise) + (bins.residual + squares) / noise
    return RatioProfile(
        ratio=ratio,
        log_likelihood=-twice / 2,
        coefficients=coefficients,
        covariance=covariance,
        squares=squares,
        noise=noise,
    )


_FIRST, _NEXT = 129, 33  # points of the first and of each later grid


def grid_argmax(
    objective: Callable[[np.ndarray], np.ndarray], *, low: float, high: float, step: float
) -> float:
    """The argmax over [low, high] of a function that may have several peaks or peak at `low`.

    A grid that is even below `step` and logarithmic above, then finer grids about its best point.
    """
    left, right = np.log1p(low / step), np.log1p(high / step)
    grid = np.linspace(left, right, _FIRST)
    while True:
        best = int(np.argmax(objective(step * np.expm1(grid))))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        if right - left < 1e-8 * max(1.0, right):
            return float(step * np.expm1(grid[best]))
        grid = np.linspace(left, right, _NEXT)


def restricted_maximum(
    bins: Bins, law: MeanLaw, *, theta_variance: float | None = None
) -> RatioProfile:
    """The REML fit: the ratio of highest restricted likelihood, 0 included.

    If theta's variance is known, the search is over the noise variance unless that is known as
    well.
    """
    fixed = known_ratio(bins, theta_variance)
    if fixed is not None:
        return ratio_profile(bins, law, np.array([fixed]))
    low, high, step = ratio_range(bins, law, theta_variance)

    def objective(ratio: np.ndarray) -> np.ndarray:
        return ratio_profile(bins, law, ratio, theta_variance=theta_variance).log_likelihood

    best = grid_argmax(objective, low=low, high=high, step=step)
    return ratio_profile(bins, law, np.array([best]), theta_variance=theta_variance)


def known_ratio(bins: Bins, theta_variance: float | None) -> float | None:
    """The ratio of theta's variance to the noise variance if both are known, else None."""
    if theta_variance is None or (theta_variance > 0 and bins.noise is None):
        return None
    return theta_variance / bins.noise_guess


def ratio_range(
    bins: Bins, law: MeanLaw, theta_variance: float | None = None
) -> tuple[float, float, float]:
    """Lowest and highest ratio to search, and the ratio below which the grid is even."""
    if theta_variance is not None:
        guess = theta_variance / bins.noise_guess
        return guess / 1e4, guess * 1e4, guess / 1e4
    high = 1e6 * max(float(bins.unit.max()), bins.between / bins.noise_guess)
    information = bins.dimension * (bins.count * (law.shape[:-1] / bins.unit) ** 2).sum() / 2
    return 0.0, high, float(1 / np.sqrt(information))  # the standard error of a ratio near 0


def moment_fit(bins: Bins, law: MeanLaw, *, theta_variance: float | None = None) -> RatioProfile:
    """The ratio r with Q(r) = noise d (m - p), with the noise pooled within groups (ERRATA D1).

    This is Paule and Mandel's estimate; for equal n, theta's variance = V - noise / n, at least 0.
    """
    noise = bins.noise_guess
    if theta_variance is not None:
        return ratio_profile(bins, law, np.array([theta_variance / noise]))
    target = noise * bins.dimension * (bins.num_groups - law.design.shape[1])
    return ratio_profile(bins, law, np.array([ratio_of_squares(bins, law, target)]))


def ratio_of_squares(bins: Bins, law: MeanLaw, target: float) -> float:
    """The ratio r at which the weighted sum of squares between groups is `target`, or 0."""

    def objective(ratio: np.ndarray) -> np.ndarray:
        return -np.abs(ratio_profile(bins, law, ratio).squares - target)

    low, high, step = ratio_range(bins, law)
    return grid_argmax(objective, low=low, high=high, step=step)


def information(bins: Bins, law: MeanLaw, *, ratio: float, noise: float) -> np.ndarray:
    """Expected information (2, 2) of the restricted likelihood on (theta's variance, noise)."""
    shape = law.shape[:-1]
    weight = 1 / (noise * (bins.unit + ratio * shape))

    def weighted(values: np.ndarray) -> np.ndarray:
        return np.tensordot(values, law.gram, axes=1)

    covariance = np.linalg.inv(weighted(weight))
    parts = (shape, bins.unit)
    matrix = np.empty((2, 2))
    for i, first in enumerate(parts):
        for j, second in enumerate(parts):
            both = first * second * weight**2
            trace = bins.count @ both - 2 * np.trace(covariance @ weighted(both * weight))
            left, right = (covariance @ weighted(part * weight**2) for part in (first, second))
            matrix[i, j] = bins.dimension * (trace + np.trace(left @ right)) / 2
    matrix[1, 1] += bins.freedom / (2 * noise**2)
    return matrix
