"""The face of a family: outcomes whose variance V is a function of their mean, and its conjugate.

theta ~ the conjugate population with `mean` and `concentration` M; z | theta has mean n theta and
variance n V(theta). Then E[theta | z] = (z + mean M) / (n + M), Var theta = V(mean) / (M + excess)
and E V(theta) = V(mean) - excess Var theta (Morris 1983).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np


class Derivatives(NamedTuple):
    """First and second derivatives of a log-likelihood by the mean and by the concentration."""

    mean: Any
    size: Any
    mean_mean: Any
    mean_size: Any
    size_size: Any


class Shapes(NamedTuple):
    """The two parameters of a member of the conjugate population."""

    first: np.ndarray
    second: np.ndarray


class CountFamily(ABC):
    """Outcomes with variance function V(mean) = mean - excess mean^2.

    `top` is the largest mean. The link maps a mean to the real line, with slope 1 / V.
    """

    owner: ClassVar[str]  # the public function that estimates from such data
    population: ClassVar[str]
    link_name: ClassVar[str]
    tied: ClassVar[float]  # where the mean varies, log M falls by this times the linked mean
    excess: ClassVar[float]
    top: ClassVar[float]

    def variance(self, mean: Any) -> Any:
        """V(mean), of one outcome (one trial, one unit of exposure)."""
        return mean * (1 - self.excess * mean)

    def bend(self, mean: Any) -> Any:
        """The derivative of V by the mean."""
        return 1 - 2 * self.excess * mean

    def expected_variance(self, mean: Any, variance: Any) -> Any:
        """E V(theta) for theta with this mean and variance."""
        return np.maximum(self.variance(mean) - self.excess * variance, 0.0)

    @abstractmethod
    def link(self, mean: Any) -> Any:
        """The mean on the real line."""

    @abstractmethod
    def unlink(self, place: Any) -> Any:
        """The mean at this place of the real line."""

    @abstractmethod
    def prior_factor(self, mean: np.ndarray) -> np.ndarray:
        """The factor k in the prior of the concentration, which is one on v = 1/sqrt(1 + k M)."""

    @abstractmethod
    def log_likelihood(self, data: Any, mean: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Log p(z | n) of a `Tally` at each (mean, M), up to a constant."""

    @abstractmethod
    def derivatives(self, data: Any, mean: float, size: float) -> Derivatives:
        """Derivatives of `log_likelihood` at one point."""

    @abstractmethod
    def row_log_likelihood(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> np.ndarray:
        """Log p(z | n) of each row under a population of its own, up to `log_ways`."""

    @abstractmethod
    def row_derivatives(
        self, n: np.ndarray, z: np.ndarray, mean: np.ndarray, size: np.ndarray
    ) -> Derivatives:
        """Derivatives of `row_log_likelihood`."""

    @abstractmethod
    def log_ways(self, n: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The log of the factor of p(z | n, theta) that is free of theta."""

    @abstractmethod
    def log_table(self, n: np.ndarray, z: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Log p(z | n, theta) without `log_ways`, for each row and each theta."""

    @abstractmethod
    def posterior_of_common(self, z: Any, n: Any) -> Shapes:
        """The posterior of one common mean under Jeffreys' prior, V(mean)^(-1/2)."""

    @abstractmethod
    def matched(self, mean: np.ndarray, variance: np.ndarray) -> Shapes:
        """The conjugate member with this mean and variance (clipped if there is none)."""

    @abstractmethod
    def mean_of(self, shapes: Shapes) -> np.ndarray:
        """The mean of a conjugate member."""

    @abstractmethod
    def quantile(self, shapes: Shapes, level: Any) -> np.ndarray:
        """Its quantile."""

    @abstractmethod
    def below(self, shapes: Shapes, theta: Any) -> np.ndarray:
        """P(theta' <= theta) for a member's theta'."""

    @abstractmethod
    def log_density(self, shapes: Shapes, theta: Any) -> np.ndarray:
        """Its log density."""

    @abstractmethod
    def reaches_top(self, n: np.ndarray, z: np.ndarray, shapes: Shapes) -> np.ndarray:
        """Whether an interval ends at `top`: the data are extreme and the density is highest."""

    @abstractmethod
    def exact_interval(
        self, n: np.ndarray, z: np.ndarray, *, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The interval of a single group that covers at every theta."""

    @abstractmethod
    def counts(self, n: float, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Possible z and their probabilities (theta, z); None where there are too many of them."""

    @abstractmethod
    def count_quantile(self, n: np.ndarray, theta: np.ndarray, level: np.ndarray) -> np.ndarray:
        """The least z with P(z' <= z | n, theta) >= level."""

    @abstractmethod
    def unbiased_loss(
        self,
        n: np.ndarray,
        z: np.ndarray,
        rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """An unbiased estimate of (rule(n, z) - theta)^2, up to a term free of the rule."""

    @abstractmethod
    def stabilize(self, theta: Any) -> Any:
        """The scale on which a raw value of size n has variance 1 / (4 n)."""

    @abstractmethod
    def destabilize(self, place: Any) -> Any:
        """The inverse of `stabilize`."""

    @abstractmethod
    def mean_and_size(self, first: float, second: float, unit: float) -> tuple[float, float]:
        """(mean, M) of the population of these two parameters, for sizes in units of `unit`."""

    @abstractmethod
    def parameters(self, mean: float, size: float) -> dict[str, float]:
        """The population's parameters under their usual names."""


def common_mean(family: CountFamily, z: float, n: float) -> tuple[float, float]:
    """Posterior mean and variance of one common mean, under Jeffreys' prior."""
    total = n + family.excess
    mean = (z + 0.5) / total
    return mean, family.variance(mean) / (total + family.excess)
