"""Errors and degrees of freedom of mean and fixed coefficients (Kenward and Roger 1997)."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from fedprior.regression.linear.identify import is_identified
from fedprior.regression.linear.likelihood import CovarianceProfile
from fedprior.regression.linear.likelihood import freedom as noise_freedom
from fedprior.regression.linear.maximum import maximum_likelihood
from fedprior.regression.linear.pooled import triangle
from fedprior.regression.linear.reduction import Reduction, reduce, whiten
from fedprior.regression.linear.structure import expand, num_covariance_parameters
from fedprior.regression.rows import GroupedRows

_MOST_VARIANCES = 22  # with the noise; a full covariance of up to 6 coefficients
_FEW = 50  # groups below which one variance for all coefficients is not taken at its word
_WIDEST = 6  # coefficients up to which each then has its own
_MANY = 1000  # groups from which on quantiles of t are those of a normal
_LEAST_FREEDOM = 1.0


class CoefficientDoubt(NamedTuple):
    """Of (mean, fixed): their covariance, corrected errors and degrees of freedom.

    `table` (D, D) treats the estimated variances as known; `errors` (D,) allow for their error.
    """

    table: np.ndarray
    errors: np.ndarray
    freedom: np.ndarray


def coefficients_of_few(
    rows: GroupedRows, profile: CovarianceProfile, reduction: Reduction, noise: float
) -> CoefficientDoubt:
    """`coefficient_doubt`; for few groups, one variance of all coefficients may be several.

    An isotropic covariance is the choice for few groups, where it predicts best. If the intercept
    varies more than the slopes, though, its mean is less certain than one variance says: errors and
    degrees of freedom are then those of a diagonal covariance.
    """
    doubt = coefficient_doubt(profile, reduction, noise)
    several = 1 < reduction.num_features <= _WIDEST and reduction.num_groups < _FEW
    if reduction.covariance != "isotropic" or not several:
        return doubt
    wider = reduce(rows, triangle(rows), "diagonal")
    if not is_identified(wider):  # a feature far from 0 is a copy of the intercept
        return doubt
    peak = maximum_likelihood(wider, restricted=True).profile
    own = coefficient_doubt(peak, wider, peak.squares / noise_freedom(wider, restricted=True))
    return doubt._replace(errors=own.errors, freedom=own.freedom)


def coefficient_doubt(
    profile: CovarianceProfile, reduction: Reduction, noise: float
) -> CoefficientDoubt:
    """Phi + 2 Phi sum w_ab (Q_ab - P_a Phi P_b) Phi, and 2 v^2 / (g' w g) for each coefficient.

    Phi = (Z'V^-1 Z)^-1 treats the estimated variances as known. P_a = -Z'V^-1 V_a V^-1 Z, Q_ab =
    Z'V^-1 V_a V^-1 V_b V^-1 Z for the derivatives V_a of V by the noise variance and the entries of
    theta's covariance, w is the inverse of their expected information, v a diagonal entry of Phi
    and g its slope. A variance of 0 counts as estimated, like any other. With many groups or too
    many variances, errors are not corrected, and each coefficient has as many degrees of freedom as
    a mean of the groups.
    """
    inverse = linalg.inv(linalg.cholesky(profile.normal, lower=True)).T
    phi = noise * inverse @ inverse.T
    transform = reduction.transform
    number = 1 + num_covariance_parameters(reduction.covariance, reduction.num_features)
    if number > _MOST_VARIANCES or reduction.num_groups > _MANY:
        freedom = np.full(len(phi), max(reduction.num_groups - 1.0, _LEAST_FREEDOM))
        table = transform @ phi @ transform.T
        return CoefficientDoubt(table, np.sqrt(np.diag(table)), freedom)
    p, q, traces = _sums(profile, reduction, noise, number)
    moved = p @ phi
    information = traces - 2 * np.einsum("abij,ji->ab", q, phi)
    information += np.einsum("aij,bji->ab", moved, moved)
    weight = np.linalg.pinv(information / 2, hermitian=True)
    crossed = np.einsum("ab,aij,bjk->ik", weight, moved, p)
    inner = np.einsum("ab,abij->ij", weight, q) - crossed
    adjusted = phi + 2 * phi @ ((inner + inner.T) / 2) @ phi
    slopes = np.einsum("ji,aik,jk->ja", transform @ phi, -p, transform @ phi)
    variance = ((transform @ phi) * transform).sum(axis=1)
    doubt = ((slopes @ weight) * slopes).sum(axis=1)
    freedom = 2 * variance**2 / np.maximum(doubt, 1e-300)
    most = max(reduction.num_rows - reduction.num_coefficients, _LEAST_FREEDOM)
    corrected = ((transform @ adjusted) * transform).sum(axis=1)
    errors = np.sqrt(np.maximum(corrected, variance))
    table = transform @ phi @ transform.T
    return CoefficientDoubt(table, errors, np.clip(freedom, _LEAST_FREEDOM, most))


def _sums(
    profile: CovarianceProfile, reduction: Reduction, noise: float, number: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P (a, D, D), Q (a, b, D, D) and tr(V^-1 V_a V^-1 V_b); the noise comes first."""
    wide = reduction.num_coefficients
    p, q = np.zeros((number, wide, wide)), np.zeros((number, number, wide, wide))
    traces = np.zeros((number, number))
    for design, slopes in _whitened(profile, reduction):
        turned = np.einsum("gakl,gli->gaki", slopes, design)
        p -= np.einsum("gki,gakj->aij", design, turned)
        q += np.einsum("gaki,gbkj->abij", turned, turned)
        traces += np.einsum("gakl,gblk->ab", slopes, slopes)
    rest = reduction.rest[:-1, :-1]
    p[0] -= rest
    q[0, 0] += rest
    traces[0, 0] += reduction.num_rest
    return p / noise**2, q / noise**3, traces / noise**2


def _whitened(
    profile: CovarianceProfile, reduction: Reduction
) -> list[tuple[np.ndarray, np.ndarray]]:
    """C^-1 Z (g, k, D) and C^-1 V_a C'^-1 (g, a, k, k) of each part, V = noise C C'."""
    width, relative = reduction.num_features, profile.relative
    found = []
    for part in reduction.parts:
        if part.levels is not None:  # isotropic: rows are independent, each a part of its own
            total = 1 + float(relative) * part.levels
            design = (part.columns[0] / np.sqrt(total)[:, None])[:, None, :-1]
            slopes = np.stack([1 / total, part.levels / total], axis=1)[:, :, None, None]
        else:
            matrix = expand(relative, width=width)
            white, _ = whiten(part.columns, matrix, width=width)
            design, x = white[..., :-1], white[..., :width]
            own = np.eye(x.shape[1]) - x @ matrix @ x.swapaxes(1, 2)
            slopes = np.concatenate([own[:, None], _by_entries(x, relative.ndim)], axis=1)
        found.append((design, slopes))
    return found


def _by_entries(x: np.ndarray, kind: int) -> np.ndarray:
    """x_j x_k' + x_k x_j' for the entries of the covariance, or x_j x_j' for its diagonal."""
    if kind == 1:
        return np.einsum("gkj,glj->gjkl", x, x)
    rows, columns = np.tril_indices(x.shape[2])
    first = np.einsum("gkj,glj->gjkl", x[..., rows], x[..., columns])
    both = first + first.swapaxes(2, 3)
    both[:, rows == columns] /= 2
    return both
