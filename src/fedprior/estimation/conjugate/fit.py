"""Fit of the population of many rates: maximum marginal likelihood or debiased moments."""

from typing import NamedTuple

import numpy as np

from fedprior.estimation.conjugate.likelihood import (
    LikelihoodSlope,
    Tally,
    log_likelihood,
    slope_at,
)
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.statistics import Pairs

# Bounds of M. At the upper one a group of the largest size has weight 1e-5: even with 1e7 groups
# the standard error of 1/M is 4e-4 / n, so no data can distinguish it from infinity (a point mass).
# At the lower one each group is all successes or all failures, or has no events.
_NARROWEST = 1e5
_WIDEST = 1e-6
_MEAN_STEP = 1.0  # longest Newton steps in the link of the mean and in log M
_SIZE_STEP = 2.0
_MOST_STEPS = 60


class ConjugateFit(NamedTuple):
    """The conjugate population of `mean` and `concentration`; a point mass where `is_point`.

    `covariance` is that of (link of the mean, log concentration), from the observed information;
    None at a bound of the concentration, where it is not defined.
    """

    family: CountFamily
    mean: float
    concentration: float
    is_point: bool
    covariance: np.ndarray | None = None

    @property
    def variance(self) -> float:
        """sigma^2 = V(mean) / (M + excess)."""
        if self.is_point:
            return 0.0
        return self.family.variance(self.mean) / (self.concentration + self.family.excess)

    def standard_errors(self, total: float) -> dict[str, float]:
        """Delta-method standard errors of mean, concentration and heterogeneity.

        `total` is the number of trials, or the exposure, of all groups.
        """
        spread = self.family.variance(self.mean)
        if self.covariance is None:
            return {"mean": float(np.sqrt(spread / total))}
        ratio = self.concentration / (self.concentration + self.family.excess)
        by = np.array([self.family.bend(self.mean) / 2, -ratio / 2])  # d log sigma
        variance = self.covariance.diagonal()
        return {
            "mean": float(spread * np.sqrt(variance[0])),
            "concentration": float(self.concentration * np.sqrt(variance[1])),
            "heterogeneity": float(np.sqrt(self.variance * (by @ self.covariance @ by))),
        }


def narrowest(data: Tally | Pairs) -> float:
    """The largest concentration; beyond it the population is treated as a point mass."""
    return _NARROWEST * float(data.n.max())


def by_moments(data: Tally) -> ConjugateFit:
    """sigma^2 = sum [z(z-1) - 2 mu z(n-e) + mu^2 n(n-e)] / sum n(n-e), mu = sum z / sum n.

    e is the family's excess, 1 for trials and 0 for events. Each bracket is unbiased for
    n(n-e) (theta - mu)^2: ERRATA D2 with its cross term weighted like the square, which makes it
    symmetric in successes and failures. For equal sizes this is exactly unbiased: sigma^2 =
    (n S - V(mu) - e S / m) / (n - e), S the sample variance of the m raw rates. The result is
    clipped to [0, V(mu)] where there is an excess.
    """
    z, n, excess = data.successes, data.n, data.family.excess
    mean = data.total_successes / data.total_size
    if len(n) == 1 and data.num_groups > 1:
        size, groups = float(n[0]), data.num_groups
        square = float(z**2 @ data.successes_count) / size**2
        spread = (square - groups * mean**2) / (groups - 1)
        variance = size * spread - data.family.variance(mean) - excess * spread / groups
        variance /= size - excess
    else:
        square = float((z * (z - 1)) @ data.successes_count)
        square -= 2 * mean * float((n - excess) @ data.won)
        variance = square / float((n * (n - excess)) @ data.n_count) + mean**2
    return _from_variance(data, mean, variance)


def _from_variance(data: Tally, mean: float, variance: float) -> ConjugateFit:
    most, excess = narrowest(data), data.family.excess
    spread = data.family.variance(mean)
    if variance <= spread / (excess + most):
        return ConjugateFit(data.family, mean, most, is_point=True)
    size = max(spread / variance - excess, _WIDEST)
    return ConjugateFit(data.family, mean, size, is_point=False)


def by_likelihood(data: Tally) -> ConjugateFit:
    """The maximum of the marginal likelihood over (mean, M), up to the point mass.

    Requires outcomes that are not all equal; otherwise the mean is on its bound and M is not
    identified.
    """
    most = narrowest(data)
    pooled = data.total_successes / data.total_size
    start = by_moments(data)
    size = float(np.clip(start.concentration, 1e-2, 10 * data.n.max()))
    peak = _ascend(data, start.mean, size)
    point = ConjugateFit(data.family, pooled, most, is_point=True)
    if peak is None:
        return point
    values = log_likelihood(data, np.array([peak[0], pooled]), np.array([peak[1], most]))
    if values[1] >= values[0]:
        return point
    covariance = _covariance(slope_at(data, *peak).hessian)
    return ConjugateFit(data.family, *peak, is_point=False, covariance=covariance)


def _covariance(hessian: np.ndarray) -> np.ndarray | None:
    information = -hessian
    if information[0, 0] <= 0 or np.linalg.det(information) <= 0:
        return None
    return np.linalg.inv(information)


def _ascend(data: Tally, mean: float, size: float) -> tuple[float, float] | None:
    """Damped Newton's method in (link of the mean, log M); None if M diverges."""
    place = np.array([data.family.link(mean), np.log(size)])
    low, high = np.log(_WIDEST), np.log(narrowest(data))
    far = high - 1  # the likelihood flattens as exp(-log M): Newton's steps there have length 1
    value, slopes = _at(data, place), _slope_at(data, place)
    for _ in range(_MOST_STEPS):
        step = _direction(slopes, at_bound=place[1] <= low)
        for _ in range(30):
            trial = np.array([place[0] + step[0], np.clip(place[1] + step[1], low, high)])
            reached = _at(data, trial)
            if reached >= value - 1e-12 * abs(value):
                break
            step = step / 2
        moved = np.abs(trial - place).max()
        place, value = trial, reached
        if place[1] > far:
            return None
        slopes = _slope_at(data, place)
        if moved < 1e-9:
            break
    return _population_at(data, place)


def _population_at(data: Tally, place: np.ndarray) -> tuple[float, float]:
    return float(data.family.unlink(place[0])), float(np.exp(place[1]))


def _at(data: Tally, place: np.ndarray) -> float:
    mean, size = _population_at(data, place)
    return float(log_likelihood(data, np.array([mean]), np.array([size]))[0])


def _slope_at(data: Tally, place: np.ndarray) -> LikelihoodSlope:
    return slope_at(data, *_population_at(data, place))


def _direction(slopes: LikelihoodSlope, *, at_bound: bool) -> np.ndarray:
    """Newton's step with absolute eigenvalues of the curvature, at most the longest step."""
    gradient, curvature = slopes.gradient.copy(), -slopes.hessian
    if at_bound and gradient[1] < 0:
        gradient[1] = 0.0
    values, vectors = np.linalg.eigh(curvature)
    bent = np.maximum(np.abs(values), 1e-8 * max(np.abs(values).max(), 1e-300))
    step = vectors @ ((vectors.T @ gradient) / bent)
    longest = max(abs(step[0]) / _MEAN_STEP, abs(step[1]) / _SIZE_STEP, 1.0)
    return step / longest
