"""Successes of n trials, with rates from a Beta population."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fedprior.estimation.families.family import CountFamily, Derivatives, Shapes
from fedprior.estimation.families.quantiles import beta_quantile
from fedprior.estimation.families.rising import rising, rising_slopes

_EXACT = 300  # trials up to which the distribution of the count is summed
# k = s / sqrt(s + RARE), s = 4 mean (1 - mean). For common rates this is about sqrt(s): between 1,
# by which rates of rare events differ as much as others in units of sqrt(mean), and s, by which
# they differ by the same factor, too little if most rates are nearly 0. For rare ones it is a
# multiple of the mean, as it is for events: with sqrt(s), one success in 50 groups of 300,000
# trials would be taken for rates that are all 0 or 1, and intervals cover 26% of equal rates.
RARE = 0.4
_TINY = 1e-300  # replaces a rate of 0 in a logarithm, so that 0 * log(rate) is 0


class BinomialFamily(CountFamily):
    """z ~ Binomial(n, p), p ~ Beta(mean M, (1 - mean) M), V(p) = p (1 - p)."""

    owner: ClassVar[str] = "estimate_rates"
    population: ClassVar[str] = "beta"
    link_name: ClassVar[str] = "logit"
    tied: ClassVar[float] = 0.0
    excess: ClassVar[float] = 1.0
    top: ClassVar[float] = 1.0

    def link(self, mean: Any) -> Any:
        return np.log(mean / (1 - mean))

    def unlink(self, place: Any) -> Any:
        return np.clip(1 / (1 + np.exp(-place)), 1e-12, 1 - 1e-12)

    def prior_factor(self, mean: np.ndarray) -> np.ndarray:
        spread = 4 * mean * (1 - mean)
        return spread / np.sqrt(spread + RARE)

    def log_likelihood(self, data: Any, mean: np.ndarray, size: np.ndarray) -> np.ndarray:
        """From three histograms.

        The terms count * log(shape) that `rising` omits add up to the likelihood of one common
        rate, so that the limit M -> infinity is smooth.
        """
        return (
            rising((mean * size)[:, None], data.successes) @ data.successes_count
            + rising(((1 - mean) * size)[:, None], data.failures) @ data.failures_count
            - rising(size[:, None], data.n) @ data.n_count
            + _times_log(data.total_successes, mean)
            + _times_log(data.total_failures, 1 - mean)
        )

    def derivatives(self, data: Any, mean: float, size: float) -> Derivatives:
        parts = (
            (mean * size, data.successes, data.successes_count),
            ((1 - mean) * size, data.failures, data.failures_count),
            (size, data.n, data.n_count),
        )
        sums = [
            [each @ count for each in rising_slopes(shape, values)]
            for shape, values, count in parts
        ]
        first, second = zip(*sums, strict=True)
        return _chain(mean, size, first, second, data.total_successes, data.total_failures)

    def row_log_likelihood(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> np.ndarray:
        each = rising(mean * size, z) + rising((1 - mean) * size, n - z)
        return each + z * np.log(mean) + (n - z) * np.log1p(-mean) - rising(size, n)

    def row_derivatives(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> Derivatives:
        shapes = ((mean * size, z), ((1 - mean) * size, n - z), (size, n))
        first, second = zip(*(rising_slopes(*each) for each in shapes), strict=True)
        return _chain(mean, size, first, second, z, n - z)

    def log_ways(self, n: np.ndarray, z: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln

        return gammaln(n + 1.0) - gammaln(z + 1.0) - gammaln(n - z + 1.0)

    def log_table(self, n: np.ndarray, z: np.ndarray, theta: np.ndarray) -> np.ndarray:
        logs = np.log(np.maximum(np.stack([theta, 1 - theta]), _TINY))
        return np.stack([z, n - z], axis=1) @ logs

    def posterior_of_common(self, z: Any, n: Any) -> Shapes:
        return Shapes(0.5 + z, 0.5 + np.maximum(n - z, 0.0))

    def matched(self, mean: np.ndarray, variance: np.ndarray) -> Shapes:
        size = np.clip(mean * (1 - mean) / np.maximum(variance, 1e-300) - 1, 1e-6, 1e15)
        return Shapes(np.maximum(mean * size, 1e-290), np.maximum((1 - mean) * size, 1e-290))

    def mean_of(self, shapes: Shapes) -> np.ndarray:
        return shapes.first / (shapes.first + shapes.second)

    def quantile(self, shapes: Shapes, level: Any) -> np.ndarray:
        return beta_quantile(*shapes, level)

    def below(self, shapes: Shapes, theta: Any) -> np.ndarray:
        from scipy.special import betainc

        return betainc(*shapes, theta)

    def log_density(self, shapes: Shapes, theta: Any) -> np.ndarray:
        from scipy.special import betaln

        log = (shapes.first - 1) * np.log(theta) + (shapes.second - 1) * np.log1p(-theta)
        return log - betaln(*shapes)

    def reaches_top(self, n: np.ndarray, z: np.ndarray, shapes: Shapes) -> np.ndarray:
        return (z == n) & (shapes.second <= 1)

    def exact_interval(
        self, n: np.ndarray, z: np.ndarray, *, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Clopper and Pearson 1934."""
        from scipy.special import betaincinv

        tail, lost = (1 - level) / 2, n - z
        low = np.where(z > 0, betaincinv(np.maximum(z, 1), lost + 1, tail), 0.0)
        high = np.where(lost > 0, betaincinv(z + 1, np.maximum(lost, 1), 1 - tail), 1.0)
        return low, high

    def counts(self, n: float, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        from scipy.stats import binom

        if n > _EXACT:
            return None
        z = np.arange(int(n) + 1)
        return z, binom.pmf(z, int(n), theta[:, None])

    def count_quantile(self, n: np.ndarray, theta: np.ndarray, level: np.ndarray) -> np.ndarray:
        from scipy.special import bdtrik

        found = bdtrik(level, n, np.clip(theta, 1e-12, 1 - 1e-12))
        return np.clip(np.ceil(np.where(np.isfinite(found), found, 0.0)), 0, n)

    def unbiased_loss(
        self,
        n: np.ndarray,
        z: np.ndarray,
        rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """The squared error of the rule from n - 1 trials at the one left out, over all of them."""
        less = n - 1
        won, lost = rule(less, np.maximum(z - 1, 0.0)), rule(less, np.minimum(z, less))
        share = z / n
        return share * (1 - won) ** 2 + (1 - share) * lost**2 - share * (1 - share)

    def stabilize(self, theta: Any) -> Any:
        return np.arcsin(np.sqrt(theta))

    def destabilize(self, place: Any) -> Any:
        return np.sin(place) ** 2

    def mean_and_size(self, first: float, second: float, unit: float) -> tuple[float, float]:
        return first / (first + second), first + second

    def parameters(self, mean: float, size: float) -> dict[str, float]:
        return {
            "mean": mean,
            "concentration": size,
            "alpha": mean * size,
            "beta": (1 - mean) * size,
        }


def _times_log(total: float, rate: np.ndarray) -> np.ndarray:
    return total * np.log(rate) if total else np.zeros_like(rate)


def _chain(mean: Any, size: Any, first: Any, second: Any, won: Any, lost: Any) -> Derivatives:
    """From derivatives by (alpha, beta, M) to those by (mean, M), for a sum or for each row."""
    rest = 1 - mean
    return Derivatives(
        mean=size * (first[0] - first[1]) + won / mean - lost / rest,
        size=mean * first[0] + rest * first[1] - first[2],
        mean_mean=size**2 * (second[0] + second[1]) - won / mean**2 - lost / rest**2,
        mean_size=first[0] - first[1] + size * (mean * second[0] - rest * second[1]),
        size_size=mean**2 * second[0] + rest**2 * second[1] - second[2],
    )


BINOMIAL = BinomialFamily()
