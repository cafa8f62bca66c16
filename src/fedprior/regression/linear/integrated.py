"""The spread of theta_i about its estimate, averaged over the variances that fit the data."""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy import special

from fedprior.core.threads import one_thread
from fedprior.regression.linear.identify import check_coefficients
from fedprior.regression.linear.likelihood import (
    CovarianceProfile,
    covariance_profile,
    freedom,
    profile_log_likelihood,
)
from fedprior.regression.linear.posterior import posterior
from fedprior.regression.linear.reduction import Reduction, reduce
from fedprior.regression.linear.structure import expand, nearest_covariance
from fedprior.regression.result import Covariance, RegressionFit, gaussian_population
from fedprior.regression.rows import GroupedRows

FEW = 50  # groups from which on the variances are known well enough
_POINTS = {1: 33, 2: 13, 3: 7}  # of the grid in each of so many directions
_NEGLIGIBLE = 1e-4  # weights relative to the largest that are ignored
_INNER, _OUTER = 0.6, 0.95  # probabilities at which Student's t agrees with the mixture
_FREEDOMS = np.geomspace(0.5, 400.0, 300)


class ThetaSpread(NamedTuple):
    """theta_i - estimate_i as Student's t: scale and degrees of freedom, (m, d) each."""

    scale: np.ndarray
    freedom: np.ndarray


def theta_spread(rows: GroupedRows, fit: RegressionFit, covariance: Covariance) -> ThetaSpread:
    """The t that has the mixture's probabilities of |theta_i - estimate_i|, at 60% and at 95%.

    The mixture is over scales of the covariance in each coefficient (over one common scale beyond
    3 coefficients), weighted by the restricted likelihood and a prior 1 / (v0 + variance), v0 the
    noise variance over the mean number of rows, as for means of groups. Mean and fixed coefficients
    and the noise are integrated over at each. Variances that the fit takes to be equal may differ.
    """
    if covariance == "isotropic" and 1 < rows.num_features <= max(_POINTS):
        covariance = "diagonal"
    with one_thread():
        reduction = reduce(rows, check_coefficients(rows), covariance)
        nodes = _nodes(_relative(reduction, fit, covariance), reduction)
        profiles = [covariance_profile(reduction, each, restricted=True) for each in nodes]
        logs = np.array(
            [profile_log_likelihood(each, reduction, restricted=True) for each in profiles]
        )
        weight = np.exp(logs - logs.max())
        kept = np.flatnonzero(weight > _NEGLIGIBLE)
        found = [_posterior_at(rows, reduction, profiles[place]) for place in kept]
    weight = weight[kept] / weight[kept].sum()
    center = np.stack([mean for mean, _ in found]) - fit.theta
    scale = np.stack([errors for _, errors in found])
    degrees = float(freedom(reduction, restricted=True))
    inner, outer = (_reach(each, weight, center, scale, degrees) for each in (_INNER, _OUTER))
    return _as_student(inner, outer)


def _relative(reduction: Reduction, fit: RegressionFit, covariance: Covariance) -> np.ndarray:
    """The fitted covariance in units of the noise and in the coordinates of the reduction."""
    width = reduction.num_features
    inverse = np.linalg.inv(reduction.transform[:width, :width])
    noise = fit.population.noise_variance or 1.0
    return nearest_covariance(inverse @ fit.population.covariance @ inverse.T / noise, covariance)


def _nodes(peak: np.ndarray, reduction: Reduction) -> list[np.ndarray]:
    """Relative covariances S peak S, even in log(v0 + variance): there the prior is flat.

    They reach 4 standard errors of a log variance of m groups below the fit and 6 above.
    """
    width, groups = reduction.num_features, reduction.num_groups
    unit = groups / reduction.num_rows
    variance = np.maximum(np.diag(expand(peak, width=width)), 1e-3 * unit)
    error = np.sqrt(2 / max(groups - 1, 1))
    together = peak.ndim == 0 or width not in _POINTS
    directions = 1 if together else width
    count = _POINTS[directions]
    low = np.where(variance > unit, np.log1p(variance / unit * np.exp(-4 * error)), 0.0)
    high = np.log1p(np.maximum(variance, unit) / unit * np.exp(6 * error))
    grids = [
        unit * np.expm1(np.linspace(low[j], high[j], count)) / variance[j]
        for j in range(directions)
    ]
    found = []
    for factors in product(*grids):
        factor = np.full(width, factors[0]) if together else np.array(factors)
        if peak.ndim == 2:
            root = np.sqrt(factor)
            found.append((peak + np.diag(variance - np.diag(peak))) * np.outer(root, root))
        else:
            found.append(variance[0] * factor[0] if peak.ndim == 0 else variance * factor)
    return [np.asarray(each) for each in found]


def _posterior_at(
    rows: GroupedRows, reduction: Reduction, profile: CovarianceProfile
) -> tuple[np.ndarray, np.ndarray]:
    """Means and errors of theta_i at one covariance."""
    width, transform = reduction.num_features, reduction.transform
    noise = profile.squares / freedom(reduction, restricted=True)
    coefficients = transform @ profile.coefficients + reduction.offset
    inner = transform[:width, :width]
    spread = noise * inner @ expand(profile.relative, width=width) @ inner.T
    table = noise * transform @ np.linalg.inv(profile.normal) @ transform.T
    population = gaussian_population(
        coefficients[:width], spread, coefficients[width:], noise_variance=noise
    )
    return posterior(rows, population, coefficient_covariance=table)


def _reach(
    level: float, weight: np.ndarray, center: np.ndarray, scale: np.ndarray, degrees: float
) -> np.ndarray:
    """The distance h with P(|theta - estimate| <= h) = level under the mixture, by bisection."""
    scale = np.maximum(scale, 1e-300)
    low = np.zeros(center.shape[1:])
    high = (np.abs(center) + scale * special.stdtrit(degrees, (1 + level) / 2 + 0.02)).max(axis=0)
    for _ in range(40):
        middle = (low + high) / 2
        above = special.stdtr(degrees, (middle - center) / scale)
        below = special.stdtr(degrees, (-middle - center) / scale)
        inside = np.tensordot(weight, above - below, axes=1)
        low, high = np.where(inside < level, middle, low), np.where(inside < level, high, middle)
    return high


def _as_student(inner: np.ndarray, outer: np.ndarray) -> ThetaSpread:
    """Student's t with these two distances."""
    at = [special.stdtrit(_FREEDOMS, (1 + level) / 2) for level in (_INNER, _OUTER)]
    ratio = (at[1] / at[0])[::-1]  # rises as the degrees of freedom fall
    wanted = outer / np.maximum(inner, 1e-300)
    degrees = np.exp(np.interp(wanted, ratio, np.log(_FREEDOMS)[::-1]))
    return ThetaSpread(outer / special.stdtrit(degrees, (1 + _OUTER) / 2), degrees)
