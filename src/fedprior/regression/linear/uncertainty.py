"""Standard errors of the variances: the curvature of the likelihood at its maximum."""

import numpy as np

from fedprior.regression.linear.likelihood import (
    CovarianceProfile,
    covariance_profile,
    natural_slope,
)
from fedprior.regression.linear.maximum import room
from fedprior.regression.linear.reduction import Reduction

MOST_PARAMETERS = 40  # each requires two passes over the data
_STEP = 1e-4  # relative: error of the difference about 1e-8, of the slopes 1e-12 / 1e-4


def variance_errors(
    profile: CovarianceProfile, reduction: Reduction, noise: float, *, restricted: bool
) -> tuple[np.ndarray, float]:
    """Standard errors of theta's covariance (d, d) and of the noise variance.

    From the inverse of the observed information, by central differences of the analytic slope. A
    variance of 0 is on the boundary, where the curvature is not informative: its error is NaN, and
    so are all errors of a singular full covariance.
    """
    places = _free(profile)
    base = _pack(profile.relative * noise, noise, places)
    steps = _step(profile, places) * _scales(profile.relative * noise, noise, places)
    information = np.empty((len(base), len(base)))
    for row, step in enumerate(steps):
        ends = []
        for sign in (-1, 1):
            point = base.copy()
            point[row] += sign * step
            ends.append(_slope(point, base[0], profile, reduction, places, restricted=restricted))
        information[row] = (ends[1] - ends[0]) / (2 * step)
    table = np.linalg.pinv((information + information.T) / 2)
    width = reduction.num_features
    spread = _spread(profile, places, reduction)
    variance = ((spread @ table[1:, 1:]) * spread).sum(axis=1).reshape(width, width)
    variance[_on_boundary(profile, width)] = np.nan
    return np.sqrt(np.maximum(variance, 0.0)), float(np.sqrt(max(table[0, 0], 0.0)))


def _step(profile: CovarianceProfile, places: np.ndarray) -> float:
    """_STEP, or less if a correlation is so high that the matrix would become indefinite."""
    free = profile.relative.ndim == 2 and len(places) > 0
    return min(_STEP, room(profile.relative) / 4) if free else _STEP


def _on_boundary(profile: CovarianceProfile, width: int) -> np.ndarray:
    """Entries of the covariance on the boundary; zeros by structure are exact."""
    if profile.relative.ndim == 2:
        return np.full((width, width), not room(profile.relative))
    return np.diag(np.broadcast_to(profile.relative == 0, (width,)))


def _free(profile: CovarianceProfile) -> np.ndarray:
    """Flat indices of the free entries of the covariance in its own shape."""
    relative = profile.relative
    if relative.ndim == 2:
        if not room(relative):
            return np.zeros(0, np.int64)
        rows, columns = np.tril_indices(len(relative))
        return rows * len(relative) + columns
    return np.flatnonzero(np.atleast_1d(relative) > 0)


def _pack(covariance: np.ndarray, noise: float, places: np.ndarray) -> np.ndarray:
    return np.concatenate([[noise], np.ravel(covariance)[places]])


def _scales(covariance: np.ndarray, noise: float, places: np.ndarray) -> np.ndarray:
    if covariance.ndim == 2:
        root = np.sqrt(np.diag(covariance))
        covariance = np.outer(root, root)
    return _pack(covariance, noise, places)


def _slope(
    point: np.ndarray,
    unmoved: float,
    profile: CovarianceProfile,
    reduction: Reduction,
    places: np.ndarray,
    *,
    restricted: bool,
) -> np.ndarray:
    """Slopes d (-log L) by the noise variance and the free places at `point`.

    The other places keep their values at the maximum, where the noise variance is `unmoved`.
    """
    noise, shape = point[0], profile.relative.shape
    values = np.ravel(profile.relative * unmoved)
    values[places] = point[1:]
    covariance = values.reshape(shape)
    if covariance.ndim == 2:
        covariance = np.tril(covariance) + np.tril(covariance, -1).T
    there = covariance_profile(reduction, covariance / noise, restricted=restricted)
    by_noise, change = natural_slope(there, reduction, noise, restricted=restricted)
    if change.ndim == 2:
        change = 2 * change - np.diag(np.diag(change))
    return np.concatenate([[by_noise], np.ravel(change)[places]])


def _spread(profile: CovarianceProfile, places: np.ndarray, reduction: Reduction) -> np.ndarray:
    """Slopes d vec(T covariance T') / d free places, (d * d, places), which is constant."""
    width = reduction.num_features
    unit = np.zeros((len(places), width, width))
    numbers = np.arange(len(places))
    if profile.relative.ndim == 2:
        rows, columns = places // width, places % width
        unit[numbers, rows, columns] = unit[numbers, columns, rows] = 1.0
    elif profile.relative.ndim == 1:
        unit[numbers, places, places] = 1.0
    else:
        unit[:] = np.eye(width)
    transform = reduction.transform[:width, :width]
    return (transform @ unit @ transform.T).reshape(len(places), width * width).T
