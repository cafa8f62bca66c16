"""Maximum of the marginal likelihood over theta's covariance, including the boundary."""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from fedprior.regression.linear.likelihood import (
    CovarianceProfile,
    covariance_profile,
    profile_log_likelihood,
    profile_slope,
)
from fedprior.regression.linear.reduction import Reduction
from fedprior.regression.linear.structure import nearest_covariance

# Starting variances of theta in units of the noise variance: with columns of mean square 1 they
# span effects from far below to far above the noise of one row.
_LEVELS = (1e-3, 3e-2, 1.0, 30.0)
_FEW = 1 << 12  # small tables may have several peaks, and a search from each level is cheap
_LARGEST = 1e13  # of X relative X': beyond it, I + X relative X' loses I to rounding
ALL_SPREAD = 1e8  # relative variance (columns of mean square 1) at which there is hardly any noise
_SMALL = 1e-4  # smaller relative variances are set to 0
_AS_LIKELY = 1e-6  # if the log-likelihood decreases by no more than this
_NO_ROOM = 1e-6  # smaller eigenvalues of the correlations count as 0
_FLAT = 1e-5  # slope per row at which a search that ran out of digits has converged


class Maximum(NamedTuple):
    """The profile at the maximum, the number of evaluations, and whether the search converged."""

    profile: CovarianceProfile
    num_evaluations: int
    converged: bool


def maximum_likelihood(
    reduction: Reduction, *, restricted: bool, start: np.ndarray | None = None, most: int = 500
) -> Maximum:
    """L-BFGS on log variances, or on the Cholesky factor if the covariance is full.

    In terms of the factor itself, not its logarithm, the likelihood is smooth and not flat where
    the covariance is singular. `start` is a relative covariance in its own shape.
    """
    width = reduction.num_features
    if start is not None:
        best = _climb(reduction, start, restricted=restricted, most=most)
    elif sum(part.columns.size for part in reduction.parts) <= _FEW:
        starts = [
            nearest_covariance(level * np.eye(width), reduction.covariance) for level in _LEVELS
        ]
        tried = [_climb(reduction, each, restricted=restricted, most=most) for each in starts]
        # Without residuals a table may be interpolated without noise: prefer other solutions.
        noisy = [
            each
            for each in tried
            if reduction.has_residuals or np.max(each.profile.relative) < ALL_SPREAD
        ]
        best = min(noisy or tried, key=lambda each: each.value)
    else:
        best = _climb(
            reduction, _best_level(reduction, restricted), restricted=restricted, most=most
        )
    settled = _settle(best.profile, reduction, restricted=restricted)
    return Maximum(settled, best.num_evaluations, best.converged)


def _best_level(reduction: Reduction, restricted: bool) -> np.ndarray:
    """The first local maximum among _LEVELS: with many rows there is one peak."""
    best, least = np.zeros(()), np.inf
    for level in _LEVELS:
        relative = nearest_covariance(level * np.eye(reduction.num_features), reduction.covariance)
        profile = covariance_profile(reduction, relative, restricted=restricted)
        value, _ = profile_slope(profile, reduction, restricted=restricted)
        if value > least:
            break
        best, least = relative, value
    return best


class _Climbed(NamedTuple):
    profile: CovarianceProfile
    value: float
    num_evaluations: int
    converged: bool


def _climb(reduction: Reduction, start: np.ndarray, *, restricted: bool, most: int) -> _Climbed:
    """L-BFGS from one relative covariance."""
    shape = start.shape

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        relative = _relative(point, shape)
        profile = covariance_profile(reduction, relative, restricted=restricted)
        level, change = profile_slope(profile, reduction, restricted=restricted)
        return level, _pull_back(change, point, relative)

    widest = np.log(_LARGEST / _largest(reduction))
    limit = np.exp(widest / 2) if len(shape) == 2 else widest
    answer = optimize.minimize(
        value,
        np.clip(_point(start), -limit, limit),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-limit, limit)] * len(_point(start)),
        options={"maxiter": most, "maxfun": 2 * most, "ftol": 1e-14, "gtol": 1e-9, "maxcor": 20},
    )
    profile = covariance_profile(reduction, _relative(answer.x, shape), restricted=restricted)
    settled = bool(answer.success) or float(np.abs(answer.jac).max()) < _FLAT
    return _Climbed(profile, float(answer.fun), int(answer.nfev), settled)


def _largest(reduction: Reduction) -> float:
    """The largest |X_i|^2 of a group, at least 1."""
    width = reduction.num_features
    squares = (
        np.max(part.levels, initial=0.0)
        if part.levels is not None
        else np.max((part.columns[..., :width] ** 2).sum(axis=(1, 2)), initial=0.0)
        for part in reduction.parts
    )
    return max(1.0, *(float(each) for each in squares))


def _point(relative: np.ndarray) -> np.ndarray:
    """Coordinates of the search at `relative`; a variance of 0 starts slightly above 0."""
    if relative.ndim == 2:
        values, vectors = np.linalg.eigh(relative)
        root = vectors * np.sqrt(np.maximum(values, _SMALL**2))
        factor = np.asarray(np.linalg.qr(root.T, mode="r")).T
        return factor[np.tril_indices(len(factor))]
    return np.log(np.maximum(np.atleast_1d(relative), _SMALL**2))


def _factor(point: np.ndarray, width: int) -> np.ndarray:
    factor = np.zeros((width, width))
    factor[np.tril_indices(width)] = point
    return factor


def _relative(point: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 2:
        factor = _factor(point, shape[0])
        return factor @ factor.T
    return np.exp(point).reshape(shape)


def _pull_back(change: np.ndarray, point: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """The slope in the coordinates of the search."""
    if relative.ndim == 2:
        width = len(relative)
        return (2 * change @ _factor(point, width))[np.tril_indices(width)]
    return np.atleast_1d(change * relative)


def _settle(
    profile: CovarianceProfile, reduction: Reduction, *, restricted: bool
) -> CovarianceProfile:
    """Set tiny variances to exactly 0 if that is as likely."""
    relative = profile.relative
    if relative.ndim == 2:
        values, vectors = np.linalg.eigh(relative)
        kept = np.where(values > _SMALL, values, 0.0)
        rounded = (vectors * kept) @ vectors.T
    else:
        values = np.atleast_1d(relative)
        kept = np.where(values > _SMALL, values, 0.0)
        rounded = kept.reshape(relative.shape)
    if np.array_equal(kept, values):
        return profile
    other = covariance_profile(reduction, rounded, restricted=restricted)
    before, after = (
        profile_log_likelihood(each, reduction, restricted=restricted) for each in (profile, other)
    )
    return other if after >= before - _AS_LIKELY else profile


def room(matrix: np.ndarray) -> float:
    """The smallest eigenvalue of the correlations; 0 if a direction of theta does not vary."""
    scale = np.sqrt(np.diag(matrix))
    if (scale == 0).any():
        return 0.0
    least = float(np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0])
    return least if least > _NO_ROOM else 0.0
