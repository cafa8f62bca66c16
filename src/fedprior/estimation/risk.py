"""Mean squared errors of estimators before any data are seen, exact or corrected.

All risks are per group, E|estimate - theta_i|^2, averaged over the population and the data.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedprior.core import check, random


@dataclass(frozen=True, kw_only=True)
class Risk:
    """Expected squared errors of the personal estimate, the raw mean and one common mean.

    `lower_bound` holds for every estimator from the same groups (None where no bound is proven).
    """

    personal: float
    local: float
    pooled: float
    weight: float
    lower_bound: float | None = None

    @property
    def gain_over_raw(self) -> float:
        """Percent."""
        return 100 * (1 - self.personal / self.local)

    @property
    def gain_over_pooled(self) -> float:
        """Percent."""
        return 100 * (1 - self.personal / self.pooled)


def gaussian_risk(
    *,
    n: int,
    num_groups: int,
    theta_variance: float,
    noise_variance: float,
    dimension: int = 1,
    channel_variance: float = 0.0,
    weight: float | None = None,
) -> Risk:
    """D s (a + (1 - a)/m) at a = (A + q/(m-1)) / (A + q/(m-1) + s); A = theta_variance, s =
    noise_variance/n, q = channel_variance (paper Thm 1 and 2, equalities; ERRATA 2, 4).

    `channel_variance` is that of an unbiased channel, per coordinate: `Quantize.variance()`,
    `LocalGaussian.scale ** 2`. `weight` replaces the optimal weight if given. The lower bound is
    the infimum over estimators of the supremum over the population's mean of the Bayes risk (ERRATA
    9); it holds for every channel, because messages are functions of the data.
    """
    check.count("gaussian_risk", n=n, dimension=dimension)
    check.count("gaussian_risk", least=2, num_groups=num_groups)
    check.positive("gaussian_risk", noise_variance=noise_variance)
    check.nonnegative(
        "gaussian_risk", theta_variance=theta_variance, channel_variance=channel_variance
    )
    s, m = noise_variance / n, num_groups
    between = theta_variance + channel_variance / (m - 1)
    best = between / (between + s)
    clear = theta_variance / (theta_variance + s)

    def at(a: float) -> float:
        own = s * ((a + (1 - a) / m) ** 2 + (1 - a) ** 2 * (m - 1) / m**2)
        shared = (1 - a) ** 2 * (channel_variance / m + theta_variance * (m - 1) / m)
        return dimension * (own + shared)

    used = best if weight is None else weight
    bound = dimension * s * (clear + (1 - clear) / m)
    return Risk(
        personal=at(used), local=dimension * s, pooled=at(0.0), weight=used, lower_bound=bound
    )


def mixture_risk(
    *,
    n: int,
    centers: np.ndarray,
    probabilities: np.ndarray,
    noise_variance: float,
    num_draws: int = 100_000,
    seed: int = 0,
) -> Risk:
    """E Var(theta | mean) under a known discrete population, the Bayes risk (paper Thm 5).

    `centers` has one row per center. Keyed Monte Carlo with relative error 1 / sqrt(num_draws).
    """
    check.count("mixture_risk", n=n, num_draws=num_draws)
    check.positive("mixture_risk", noise_variance=noise_variance)
    centers = np.asarray(centers, np.float64)
    centers = centers[:, None] if centers.ndim == 1 else centers
    probabilities = np.asarray(probabilities, np.float64) / np.sum(probabilities)
    draws, s = random.stream(seed, "personalize"), noise_variance / n
    which = draws.choice(len(centers), num_draws, p=probabilities)
    mean = centers[which] + math.sqrt(s) * draws.standard_normal((num_draws, centers.shape[1]))
    distance = ((mean[:, None, :] - centers[None]) ** 2).sum(axis=2)
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities) - distance / (2 * s)
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    error = ((share @ centers - centers[which]) ** 2).sum(axis=1).mean()
    common = probabilities @ centers
    pooled = float(probabilities @ ((centers - common) ** 2).sum(axis=1))
    local = centers.shape[1] * s
    between = pooled / centers.shape[1]
    return Risk(
        personal=float(error),
        local=local,
        pooled=pooled,
        weight=min(1.0, float(error) / local) if between else 0.0,
        lower_bound=float(error),
    )
