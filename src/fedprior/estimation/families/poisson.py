"""Events over an exposure, with rates from a Gamma population."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fedprior.estimation.families.family import CountFamily, Derivatives, Shapes
from fedprior.estimation.families.quantiles import gamma_quantile
from fedprior.estimation.families.rising import rising, rising_slopes

_EXACT = 2000  # expected events up to which the distribution of the count is summed
_TINY = 1e-300  # replaces a rate of 0 in a logarithm, so that 0 * log(rate) is 0


class PoissonFamily(CountFamily):
    """z ~ Poisson(n theta), theta ~ Gamma with shape mean M and rate M, V(theta) = theta.

    n is the exposure, in a unit in which theta is near 1 (`statistics.collapse_events`): then no
    result depends on whether exposure comes in days or in years.
    """

    owner: ClassVar[str] = "estimate_events"
    population: ClassVar[str] = "gamma"
    link_name: ClassVar[str] = "log"
    tied: ClassVar[float] = 1.0  # a common coefficient of variation: 1/sqrt(mean M)
    excess: ClassVar[float] = 0.0
    top: ClassVar[float] = np.inf

    def link(self, mean: Any) -> Any:
        return np.log(mean)

    def unlink(self, place: Any) -> Any:
        return np.exp(np.clip(place, -600.0, 600.0))

    def prior_factor(self, mean: np.ndarray) -> np.ndarray:
        """The mean, by which v = 1/sqrt(1 + 1 / c^2), c the coefficient of variation of theta."""
        return mean

    def log_likelihood(self, data: Any, mean: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Sum rising(mean M, z) + z log mean - (z + mean M) log(1 + n / M), from histograms.

        As M grows this is smooth, and in the limit that of one common rate.
        """
        logs = np.log1p(data.n / size[:, None])
        return (
            rising((mean * size)[:, None], data.successes) @ data.successes_count
            + (data.total_successes * np.log(mean) if data.total_successes else 0.0)
            - logs @ data.won
            - mean * size * (logs @ data.n_count)
        )

    def derivatives(self, data: Any, mean: float, size: float) -> Derivatives:
        slopes = rising_slopes(mean * size, data.successes)
        first, second = (each @ data.successes_count for each in slopes)
        sums = _exposures(data.n, size)
        by_count = [data.n_count @ each for each in sums[:3]]
        by_won = [data.won @ each for each in sums[3:]]
        return _chain(mean, size, first, second, data.total_successes, *by_count, *by_won)

    def row_log_likelihood(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> np.ndarray:
        return rising(mean * size, z) + z * np.log(mean) - (z + mean * size) * np.log1p(n / size)

    def row_derivatives(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> Derivatives:
        first, second = rising_slopes(mean * size, z)
        sums = _exposures(n, size)
        return _chain(mean, size, first, second, z, *sums[:3], *(z * each for each in sums[3:]))

    def log_ways(self, n: np.ndarray, z: np.ndarray) -> np.ndarray:
        from scipy.special import gammaln

        return z * np.log(np.maximum(n, _TINY)) - gammaln(z + 1.0)

    def log_table(self, n: np.ndarray, z: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return z[:, None] * np.log(np.maximum(theta, _TINY)) - n[:, None] * theta

    def posterior_of_common(self, z: Any, n: Any) -> Shapes:
        return Shapes(0.5 + z, np.maximum(n, _TINY))

    def matched(self, mean: np.ndarray, variance: np.ndarray) -> Shapes:
        mean = np.maximum(mean, 1e-290)
        rate = mean / np.clip(variance, 1e-15 * mean**2, 1e15 * mean**2)
        return Shapes(mean * rate, rate)

    def mean_of(self, shapes: Shapes) -> np.ndarray:
        return shapes.first / shapes.second

    def quantile(self, shapes: Shapes, level: Any) -> np.ndarray:
        return gamma_quantile(shapes.first, level) / shapes.second

    def below(self, shapes: Shapes, theta: Any) -> np.ndarray:
        from scipy.special import gammainc

        return gammainc(shapes.first, shapes.second * theta)

    def log_density(self, shapes: Shapes, theta: Any) -> np.ndarray:
        from scipy.special import gammaln

        first, second = shapes
        log = (first - 1) * np.log(theta) - second * theta
        return log + first * np.log(second) - gammaln(first)

    def reaches_top(self, n: np.ndarray, z: np.ndarray, shapes: Shapes) -> np.ndarray:
        return np.zeros(len(z), bool)

    def exact_interval(
        self, n: np.ndarray, z: np.ndarray, *, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Garwood 1936."""
        from scipy.special import gammaincinv

        tail = (1 - level) / 2
        low = np.where(z > 0, gammaincinv(np.maximum(z, 1), tail), 0.0)
        return low / n, gammaincinv(z + 1, 1 - tail) / n

    def counts(self, n: float, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        from scipy.stats import poisson

        most = n * float(theta.max())
        if most > _EXACT:
            return None
        z = np.arange(int(most + 10 * np.sqrt(most) + 20))
        return z, poisson.pmf(z, n * theta[:, None])

    def count_quantile(self, n: np.ndarray, theta: np.ndarray, level: np.ndarray) -> np.ndarray:
        from scipy.special import pdtrik

        found = pdtrik(level, np.maximum(n * theta, 1e-12))
        return np.maximum(np.ceil(np.where(np.isfinite(found), found, 0.0)), 0)

    def unbiased_loss(
        self,
        n: np.ndarray,
        z: np.ndarray,
        rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """The estimate d(z)^2 - 2 (z / n) d(z - 1): E[z d(z - 1)] = n theta E[d(z)] (Chen 1975)."""
        return rule(n, z) ** 2 - 2 * z / n * rule(n, np.maximum(z - 1, 0.0))

    def stabilize(self, theta: Any) -> Any:
        return np.sqrt(theta)

    def destabilize(self, place: Any) -> Any:
        return np.maximum(place, 0.0) ** 2

    def mean_and_size(self, first: float, second: float, unit: float) -> tuple[float, float]:
        return first / second * unit, second / unit

    def parameters(self, mean: float, size: float) -> dict[str, float]:
        return {"mean": mean, "concentration": size, "shape": mean * size, "rate": size}


def _exposures(n: np.ndarray, size: Any) -> tuple[np.ndarray, ...]:
    """Terms of n / M in the derivatives: three for each group, two for each event."""
    ratio = n / size
    total = n + size
    logs = np.log1p(ratio)
    # log(1 + x) - x / (1 + x); its series where the difference would cancel
    series = ratio**2 * (0.5 - ratio * (2 / 3 - ratio * (0.75 - ratio * 0.8)))
    rest = np.where(ratio < 1e-3, series, logs - ratio / (1 + ratio))
    return (
        logs,
        rest,
        n**2 / (size * total**2),
        n / (size * total),
        n * (2 * size + n) / (size * total) ** 2,
    )


def _chain(
    mean: Any,
    size: Any,
    first: Any,
    second: Any,
    events: Any,
    logs: Any,
    rest: Any,
    square: Any,
    won: Any,
    won_twice: Any,
) -> Derivatives:
    """From derivatives by the shape mean M, and sums over exposures, to those by (mean, M)."""
    return Derivatives(
        mean=size * (first - logs) + events / mean,
        size=mean * (first - rest) + won,
        mean_mean=size**2 * second - events / mean**2,
        mean_size=first - rest + mean * size * second,
        size_size=mean**2 * second + mean * square - won_twice,
    )


POISSON = PoissonFamily()
