"""The parameters of a mixture of regressions, and their unconstrained form."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedprior.estimation.squarem import extrapolated
from fedprior.regression.linear.structure import num_covariance_parameters
from fedprior.regression.result import Covariance

Spread = Literal["component", "none"]


class MixtureParameters(NamedTuple):
    """theta_i ~ N(means[l], covariances[l]) with probability shares[l].

    `shares` is (k,), `means` (k, q), `covariances` (k, q, q) and `fixed` (p,); `noise` is the
    variance of one target, 1 if the family has none. q and p count every class but the reference.
    """

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    fixed: np.ndarray
    noise: float


@dataclass(frozen=True, kw_only=True)
class MixtureRules:
    """What is learned, and lower bounds of the variances.

    Below `spread_floor` (a variance of theta) the data cannot distinguish a component's members;
    `noise_floor` prevents an infinite likelihood of a perfect fit.
    """

    spread: Spread
    covariance: Covariance
    learns_noise: bool
    spread_floor: float
    noise_floor: float


def floored_covariance(matrix: np.ndarray, *, covariance: Covariance, floor: float) -> np.ndarray:
    """The nearest matrix of the given form whose variances are at least `floor`."""
    size = len(matrix)
    if covariance == "isotropic":
        return max(float(np.trace(matrix)) / size, floor) * np.eye(size)
    if covariance == "diagonal":
        return np.diag(np.maximum(np.diag(matrix), floor))
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    if values[0] >= floor:
        return (matrix + matrix.T) / 2
    return (vectors * np.maximum(values, floor)) @ vectors.T


def num_mixture_parameters(
    num_components: int, num_features: int, num_fixed: int, rules: MixtureRules
) -> int:
    """The number of free parameters, for BIC."""
    spread = num_covariance_parameters(rules.covariance, num_features)
    each = num_features + (spread if rules.spread == "component" else 0)
    return num_components * each + num_components - 1 + num_fixed + rules.learns_noise


def ahead(
    start: MixtureParameters,
    first: MixtureParameters,
    second: MixtureParameters,
    rules: MixtureRules,
) -> MixtureParameters | None:
    """The `extrapolated` parameters (SQUAREM).

    Means, shares and logarithms of variances have separate step lengths, because they converge at
    different rates; covariances move along their matrix logarithms, which keeps their form. None if
    no probability is left or the step is too long.
    """
    paths = zip(_free(start, rules), _free(first, rules), _free(second, rules), strict=True)
    points = [extrapolated(*path) for path in paths]
    centers, shares, logs = points
    shares = np.maximum(shares, 0.0)
    if shares.sum() <= 0 or np.abs(logs).max() > _LARGEST_LOG:
        return None
    count, size = start.means.shape
    covariances, noise = start.covariances, start.noise
    if rules.learns_noise:
        logs, noise = logs[:-1], max(float(np.exp(logs[-1])), rules.noise_floor)
    if rules.spread == "component":
        covariances = _unfold(logs.reshape(count, size, size), rules)
    return MixtureParameters(
        shares / shares.sum(),
        centers[: count * size].reshape(count, size),
        covariances,
        centers[count * size :],
        noise,
    )


_LARGEST_LOG = 200.0  # longer extrapolations, by a factor of e^200, are rejected


def _free(
    parts: MixtureParameters, rules: MixtureRules
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and fixed coefficients; shares; logarithms of variances (at least one number)."""
    logs = np.zeros(1)
    if rules.spread == "component":
        values, vectors = np.linalg.eigh(parts.covariances)
        logs = ((vectors * np.log(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)).ravel()
    elif rules.learns_noise:
        logs = logs[:0]
    if rules.learns_noise:
        logs = np.append(logs, np.log(parts.noise))
    return np.concatenate([parts.means.ravel(), parts.fixed]), parts.shares, logs


def _unfold(logs: np.ndarray, rules: MixtureRules) -> np.ndarray:
    values, vectors = np.linalg.eigh(logs)
    grown = (vectors * np.exp(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return np.stack(
        [
            floored_covariance(one, covariance=rules.covariance, floor=rules.spread_floor)
            for one in grown
        ]
    )
