"""Fit of the Beta population of many rates: maximum marginal likelihood or debiased moments."""

from typing import NamedTuple

import numpy as np

from fedprior.estimation.conjugate.likelihood import (
    LikelihoodSlope,
    Tally,
    beta_binomial_log_likelihood,
    beta_binomial_slope,
)

# Bounds of M. At the upper one a group of the largest size has weight 1e-5: even with 1e7 groups
# the standard error of 1/M is 4e-4 / n, so no data can distinguish it from infinity (a point mass).
# At the lower one each group is all successes or all failures.
_NARROWEST = 1e5
_WIDEST = 1e-6
_MEAN_STEP = 1.0  # longest Newton steps in logit mean and in log M
_SIZE_STEP = 2.0
_MOST_STEPS = 60


class BetaFit(NamedTuple):
    """Beta(mean * concentration, (1 - mean) * concentration); a point mass where `is_point`.

    `covariance` is that of (logit mean, log concentration), from the observed information; None at
    a bound of the concentration, where it is not defined.
    """

    mean: float
    concentration: float
    is_point: bool
    covariance: np.ndarray | None = None

    @property
    def variance(self) -> float:
        """sigma^2 = mean (1 - mean) / (1 + M)."""
        spread = self.mean * (1 - self.mean)
        return 0.0 if self.is_point else spread / (1 + self.concentration)

    def standard_errors(self, trials: float) -> dict[str, float]:
        """Delta-method standard errors of mean, concentration and heterogeneity."""
        spread = self.mean * (1 - self.mean)
        if self.covariance is None:
            return {"mean": float(np.sqrt(spread / trials))}
        ratio = self.concentration / (1 + self.concentration)
        by = np.array([(1 - 2 * self.mean) / 2, -ratio / 2])  # d log sigma
        variance = self.covariance.diagonal()
        return {
            "mean": float(spread * np.sqrt(variance[0])),
            "concentration": float(self.concentration * np.sqrt(variance[1])),
            "heterogeneity": float(np.sqrt(self.variance * (by @ self.covariance @ by))),
        }


def narrowest(data: Tally) -> float:
    """The largest concentration; beyond it the population is treated as a point mass."""
    return _NARROWEST * float(data.n.max())


def by_moments(data: Tally) -> BetaFit:
    """sigma^2 = sum [z(z-1) - 2 mu z(n-1) + mu^2 n(n-1)] / sum n(n-1), mu = sum z / sum n.

    Each bracket is unbiased for n(n-1) (p - mu)^2: ERRATA D2 with its cross term weighted like the
    square, which makes it symmetric in successes and failures. For equal sizes this is exactly
    unbiased: sigma^2 = (n V - mu (1 - mu) - V / m) / (n - 1), V the sample variance of the m rates.
    The result is clipped to [0, mu (1 - mu)].
    """
    z, n = data.successes, data.n
    mean = data.total_successes / (data.total_successes + data.total_failures)
    if len(n) == 1 and data.num_groups > 1:
        size, groups = float(n[0]), data.num_groups
        square = float(z**2 @ data.successes_count) / size**2
        spread = (square - groups * mean**2) / (groups - 1)
        variance = (size * spread - mean * (1 - mean) - spread / groups) / (size - 1)
    else:
        square = float((z * (z - 1)) @ data.successes_count) - 2 * mean * float((n - 1) @ data.won)
        variance = square / float((n * (n - 1)) @ data.n_count) + mean**2
    return _from_variance(data, mean, variance)


def _from_variance(data: Tally, mean: float, variance: float) -> BetaFit:
    most = narrowest(data)
    spread = mean * (1 - mean)
    if variance <= spread / (1 + most):
        return BetaFit(mean, most, is_point=True)
    return BetaFit(mean, max(spread / variance - 1, _WIDEST), is_point=False)


def by_likelihood(data: Tally) -> BetaFit:
    """The maximum of the beta-binomial likelihood over (mean, M), up to the point mass.

    Requires both successes and failures; otherwise the mean is on its bound and M is not
    identified.
    """
    most = narrowest(data)
    pooled = data.total_successes / (data.total_successes + data.total_failures)
    start = by_moments(data)
    size = float(np.clip(start.concentration, 1e-2, 10 * data.n.max()))
    peak = _ascend(data, start.mean, size)
    point = BetaFit(pooled, most, is_point=True)
    if peak is None:
        return point
    values = beta_binomial_log_likelihood(
        data, np.array([peak[0], pooled]), np.array([peak[1], most])
    )
    if values[1] >= values[0]:
        return point
    return BetaFit(
        *peak, is_point=False, covariance=_covariance(beta_binomial_slope(data, *peak).hessian)
    )


def _covariance(hessian: np.ndarray) -> np.ndarray | None:
    information = -hessian
    if information[0, 0] <= 0 or np.linalg.det(information) <= 0:
        return None
    return np.linalg.inv(information)


def _ascend(data: Tally, mean: float, size: float) -> tuple[float, float] | None:
    """Damped Newton's method in (logit mean, log M); None if M diverges."""
    place = np.array([np.log(mean / (1 - mean)), np.log(size)])
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
    return float(1 / (1 + np.exp(-place[0]))), float(np.exp(place[1]))


def _at(data: Tally, place: np.ndarray) -> float:
    mean, size = 1 / (1 + np.exp(-place[:1])), np.exp(place[1:])
    return float(beta_binomial_log_likelihood(data, mean, size)[0])


def _slope_at(data: Tally, place: np.ndarray) -> LikelihoodSlope:
    return beta_binomial_slope(data, float(1 / (1 + np.exp(-place[0]))), float(np.exp(place[1])))


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
