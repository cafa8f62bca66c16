"""The law of a row's target given its log odds or log rate a: a class, or a count.

Everything else in this room is written once for both. Log-likelihoods leave out terms that are free
of a.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from fedprior.regression.logistic import rate
from fedprior.regression.logistic.sigmoid import Tilt, averaged, averaged_softplus, tilted


class LikelihoodTerms(NamedTuple):
    """For each group: sum of log p(y); its slope and the expected y at each a, (g, n, c)."""

    log_likelihood: np.ndarray
    pull: np.ndarray
    expected: np.ndarray


class RowLaw(ABC):
    """p(y | a). The likelihood is log-concave in a, (g, n, c); y has the same shape.

    `points_an_axis` are those of a product rule in so many dimensions.
    """

    points_an_axis: ClassVar[dict[int, int]]

    @abstractmethod
    def terms(self, a: np.ndarray, y: np.ndarray) -> LikelihoodTerms:
        """The log-likelihood of each group, its slope y - expected, and the expected y."""

    @abstractmethod
    def weighed(self, expected: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Minus the curvature within a row times columns: (g, n, c) on (g, n, c, q)."""

    @abstractmethod
    def smooth_value(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> np.ndarray:
        """E log p(y | a + sqrt(v) t), t ~ N(0, 1), for a single a per row, (g, n)."""

    @abstractmethod
    def smooth_terms(self, a: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The expected y, averaged over N(a, v), and its slope by a, (g, n) each."""

    @abstractmethod
    def tilted(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Tilt:
        """Log E p(y | a + sqrt(v) t) with its derivatives by a, (g, n) each."""

    @abstractmethod
    def at_points(self, a: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """sum_n (y a - log p(y | a)) (g, K), and the expected y (g, K, n) of each class."""


class SoftmaxLaw(RowLaw):
    """P(y = k) = exp(a_k) / (1 + sum exp(a)), y one-hot over all classes but the first."""

    points_an_axis: ClassVar[dict[int, int]] = {1: 21, 2: 9, 3: 7}

    def terms(self, a: np.ndarray, y: np.ndarray) -> LikelihoodTerms:
        return terms_at(a, y)

    def weighed(self, expected: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return weighed(expected, columns)

    def smooth_value(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y * a - averaged_softplus(a, variance)

    def smooth_terms(self, a: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope, _ = averaged(a, variance)
        return value, slope

    def tilted(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Tilt:
        sign = 2 * y - 1
        found = tilted(sign * a, variance)
        return found._replace(pull=sign * found.pull)

    def at_points(self, a: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        most = np.maximum.reduce([np.zeros_like(a[0]), *a])
        weight = [np.exp(each - most) for each in a]
        total = np.exp(-most) + np.sum(weight, axis=0)
        return (most + np.log(total)).sum(axis=-1), [each / total for each in weight]


class PoissonLaw(RowLaw):
    """P(y) = exp(y a - exp(a)) / y!, Poisson with rate exp(a).

    Posteriors of few events are skewed: a product rule needs more points than for classes.
    """

    points_an_axis: ClassVar[dict[int, int]] = {1: 31, 2: 15, 3: 11}

    def terms(self, a: np.ndarray, y: np.ndarray) -> LikelihoodTerms:
        expected = rate.expected(a)
        log_likelihood = (y * a - expected).sum(axis=(-2, -1))
        return LikelihoodTerms(log_likelihood, y - expected, expected)

    def weighed(self, expected: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return expected[..., None] * columns

    def smooth_value(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y * a - rate.expected(a + variance / 2)

    def smooth_terms(self, a: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = rate.expected(a + variance / 2)
        return value, value

    def tilted(self, a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Tilt:
        return rate.tilted(a, variance, y)

    def at_points(self, a: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        expected = rate.expected(a[0])
        return expected.sum(axis=-1), [expected]


CLASSES, COUNTS = SoftmaxLaw(), PoissonLaw()


def terms_at(odds: np.ndarray, y: np.ndarray) -> LikelihoodTerms:
    """Softmax over (0, odds), without overflow for large log odds."""
    most = np.maximum(odds.max(axis=-1, keepdims=True), 0.0)
    weight = np.exp(odds - most)
    total = np.exp(-most) + weight.sum(axis=-1, keepdims=True)
    probability = weight / total
    log_likelihood = (y * odds).sum(axis=-1) - (most + np.log(total))[..., 0]
    return LikelihoodTerms(log_likelihood.sum(axis=-1), y - probability, probability)


def weighed(probability: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(diag p - p p') columns: (g, n, c) on (g, n, c, q)."""
    own = probability[..., None] * columns
    return own - probability[..., None] * own.sum(axis=-2, keepdims=True)
