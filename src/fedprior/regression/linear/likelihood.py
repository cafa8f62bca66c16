"""The marginal likelihood with coefficients profiled out exactly, and its derivatives.

V_i = noise (I + X_i relative X_i'); c = (mean, fixed) is the generalized least squares fit.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from fedprior.core.plain import picked
from fedprior.regression.linear.reduction import Reduction, TurnedGroups, whiten
from fedprior.regression.linear.structure import expand, restrict_slope


@dataclass(frozen=True, kw_only=True, eq=False)
class CovarianceProfile:
    """The likelihood at one covariance `relative` to the noise (in its own shape).

    `normal` is Z'V^-1 Z, `coefficients` the solution and `squares` r'V^-1 r; the derivatives are
    those of log|V|, of -squares and of -log|normal| (zeros unless restricted).
    """

    relative: np.ndarray
    log_determinant: float
    normal: np.ndarray
    log_normal: float
    coefficients: np.ndarray
    squares: float
    determinant_slope: np.ndarray
    squares_slope: np.ndarray
    normal_slope: np.ndarray


def covariance_profile(
    reduction: Reduction, relative: np.ndarray, *, restricted: bool
) -> CovarianceProfile:
    """Evaluate the likelihood in one pass over the transformed rows (two if not isotropic)."""
    if reduction.covariance == "isotropic":
        return _independent_profile(reduction, relative, restricted=restricted)
    matrix = expand(relative, width=reduction.num_features)
    white = []
    cross, log_determinant = reduction.rest.copy(), 0.0
    for part in reduction.parts:
        table, log_determinants = whiten(part.columns, matrix, width=reduction.num_features)
        flat = table.reshape(-1, table.shape[2])
        cross += flat.T @ flat
        log_determinant += float(log_determinants.sum())
        white.append(table)
    solved = _solve(cross)
    squares_slope = np.zeros_like(matrix)
    normal_slope = np.zeros_like(matrix)
    for table in white:
        x = table[..., : reduction.num_features]
        residual = table[..., -1] - table[..., :-1] @ solved.coefficients
        pull = (residual[:, None, :] @ x)[:, 0]
        squares_slope += pull.T @ pull
        if restricted:
            half = table[..., :-1] @ solved.root
            leverage = half @ half.transpose(0, 2, 1)
            normal_slope += np.tensordot(x, leverage @ x, axes=((0, 1), (0, 1)))
    inner = cross[: reduction.num_features, : reduction.num_features]
    return CovarianceProfile(
        relative=relative,
        log_determinant=log_determinant,
        normal=cross[:-1, :-1],
        **picked(solved, "log_normal", "coefficients", "squares"),
        determinant_slope=restrict_slope(inner, reduction.covariance),
        squares_slope=restrict_slope(squares_slope, reduction.covariance),
        normal_slope=restrict_slope(normal_slope, reduction.covariance),
    )


def _independent_profile(
    reduction: Reduction, relative: np.ndarray, *, restricted: bool
) -> CovarianceProfile:
    """Rows of variance 1 + relative * level each: weighted sums of their cross products."""
    cross, slope = reduction.rest.copy(), np.zeros_like(reduction.rest)
    log_determinant = determinant_slope = 0.0
    for part in reduction.parts:
        variance, levels = _variances(part, float(relative))
        white = part.columns[0] / np.sqrt(variance)[:, None]
        cross += white.T @ white
        share = levels / variance
        white *= np.sqrt(share)[:, None]
        slope += white.T @ white
        log_determinant += float(np.log(variance).sum())
        determinant_slope += float(share.sum())
    solved = _solve(cross)
    direction = np.append(-solved.coefficients, 1.0)
    normal_slope = np.sum(slope[:-1, :-1] * (solved.root @ solved.root.T)) if restricted else 0.0
    return CovarianceProfile(
        relative=relative,
        log_determinant=log_determinant,
        normal=cross[:-1, :-1],
        **picked(solved, "log_normal", "coefficients", "squares"),
        determinant_slope=np.asarray(determinant_slope),
        squares_slope=direction @ slope @ direction,
        normal_slope=np.asarray(normal_slope),
    )


def _variances(part: TurnedGroups, relative: float) -> tuple[np.ndarray, np.ndarray]:
    levels = np.zeros(0) if part.levels is None else part.levels
    return 1 + relative * levels, levels


@dataclass(frozen=True, kw_only=True, eq=False)
class _Solved:
    """normal^-1 = root root'."""

    coefficients: np.ndarray
    squares: float
    log_normal: float
    root: np.ndarray


def _solve(cross: np.ndarray) -> _Solved:
    """The least squares fit of the last column on the others, from their cross products.

    The offset of `Reduction` has removed most of what the columns explain of y, so the difference
    of squares loses no digits.
    """
    factor = linalg.cholesky(cross[:-1, :-1], lower=True)
    half = linalg.solve_triangular(factor, cross[:-1, -1], lower=True)
    root = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True).T
    return _Solved(
        coefficients=root @ half,
        squares=max(float(cross[-1, -1] - half @ half), np.finfo(float).tiny),
        log_normal=2 * float(np.log(np.diag(factor)).sum()),
        root=root,
    )


def freedom(reduction: Reduction, *, restricted: bool) -> int:
    """Degrees of freedom of the noise variance: rows, or rows minus coefficients."""
    return reduction.num_rows - restricted * reduction.num_coefficients


def profile_slope(
    profile: CovarianceProfile, reduction: Reduction, *, restricted: bool
) -> tuple[float, np.ndarray]:
    """-2 log L / degrees of freedom with the noise at its maximum, and its slope by `relative`."""
    count = freedom(reduction, restricted=restricted)
    value = profile.log_determinant / count + np.log(profile.squares)
    value += restricted * profile.log_normal / count
    change = (profile.determinant_slope - profile.normal_slope) / count
    return float(value), change - profile.squares_slope / profile.squares


def natural_slope(
    profile: CovarianceProfile, reduction: Reduction, noise: float, *, restricted: bool
) -> tuple[float, np.ndarray]:
    """Derivatives of -log L by the noise variance and by theta's covariance."""
    determinant, squares = profile.determinant_slope, profile.squares_slope
    by_covariance = (determinant - profile.normal_slope) / noise - squares / noise**2
    relative = profile.relative
    by_noise = (reduction.num_rows - np.sum(relative * determinant)) / noise
    by_noise -= (profile.squares - np.sum(relative * squares)) / noise**2
    if restricted:
        by_noise -= (reduction.num_coefficients - np.sum(relative * profile.normal_slope)) / noise
    return float(by_noise) / 2, by_covariance / 2


def profile_log_likelihood(
    profile: CovarianceProfile, reduction: Reduction, *, restricted: bool
) -> float:
    """Log L at the noise variance squares / freedom; restricted as in lme4.

    The restricted likelihood is that of the residuals for the original columns.
    """
    count = freedom(reduction, restricted=restricted)
    twice = count * (1 + np.log(2 * np.pi * profile.squares / count)) + profile.log_determinant
    if restricted:
        twice += profile.log_normal - 2 * np.linalg.slogdet(reduction.transform)[1]
    return -float(twice) / 2
