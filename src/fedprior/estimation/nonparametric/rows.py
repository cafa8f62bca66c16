"""Rows of one-dimensional data: all that a population of any shape has to know of a family.

A member of a population is a conjugate one with mean `atoms[j]` and standard deviation `spread[j]`,
a point where the spread is 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedprior.estimation.families.family import CountFamily, Shapes
from fedprior.estimation.nonparametric.grid import averages
from fedprior.estimation.statistics import Pairs

Rule = Callable[["Rows"], tuple[np.ndarray, np.ndarray]]
"""Posterior mean and variance of theta for each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows(ABC):
    """Distinct rows of data, each of which stands for `count` groups."""

    count: np.ndarray

    @property
    @abstractmethod
    def member(self) -> str:
        """The name of the conjugate population."""

    @property
    @abstractmethod
    def held(self) -> np.ndarray:
        """Whether a row has data."""

    @property
    @abstractmethod
    def raw(self) -> np.ndarray:
        """The raw value of each row; 0 without data."""

    @property
    @abstractmethod
    def angle_variance(self) -> np.ndarray:
        """The sampling variance of `stabilize(raw)`, whatever theta is."""

    @abstractmethod
    def stabilize(self, theta: Any) -> Any:
        """The coordinate in which a row's likelihood is a bump of known variance."""

    @abstractmethod
    def destabilize(self, place: Any) -> Any:
        """The inverse of `stabilize`."""

    @abstractmethod
    def slope(self, theta: Any) -> Any:
        """D theta / d place."""

    @property
    @abstractmethod
    def limits(self) -> tuple[float, float]:
        """The range of theta."""

    @abstractmethod
    def take(self, rows: Any) -> Self:
        """Some of the rows."""

    @abstractmethod
    def averaged(self, place: np.ndarray) -> Self:
        """One row per bin, at the average of its rows."""

    @abstractmethod
    def fit_member(self) -> tuple[float, float]:
        """Mean and spread of the conjugate population by likelihood; a spread of 0 is a point."""

    @abstractmethod
    def member_quantile(self, level: np.ndarray, mean: float, spread: float) -> np.ndarray:
        """Quantiles of the conjugate member of this mean and spread."""

    @abstractmethod
    def widest(self, mean: float) -> float:
        """The largest spread of a member with this mean."""

    @abstractmethod
    def log_table(self, atoms: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Log p(row | member), up to `log_constant`, (rows, members)."""

    @property
    @abstractmethod
    def log_constant(self) -> np.ndarray:
        """What `log_table` leaves out of each row."""

    @abstractmethod
    def inner(self, atoms: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of theta given the row and its member, (rows, members)."""

    @abstractmethod
    def below(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """P(theta' <= theta) for the conjugate member of these moments, variance above 0."""

    @abstractmethod
    def drawn(self, theta: np.ndarray, level: np.ndarray) -> Self:
        """New data of one group for each row: the quantile at `level`, given theta."""

    @abstractmethod
    def noise(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The expected sampling variance of a raw value, from the moments of theta."""

    @abstractmethod
    def loss(self, rule: Rule) -> np.ndarray:
        """An unbiased estimate of (rule - theta)^2, up to a term that is the same for all rules."""

    def with_count(self, count: np.ndarray) -> Self:
        """The same rows for other numbers of groups, without rows that stand for none."""
        return replace(self, count=np.asarray(count, np.float64)).take(count > 0)

    @property
    def num_groups(self) -> float:
        return float(self.count[self.held].sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalRows(Rows):
    """value ~ N(theta, variance); an infinite variance is a row without data."""

    value: np.ndarray
    variance: np.ndarray

    @property
    def member(self) -> str:
        return "gaussian"

    @property
    def held(self) -> np.ndarray:
        return np.isfinite(self.variance)

    @property
    def raw(self) -> np.ndarray:
        return np.where(self.held, self.value, 0.0)  # a row without data may hold NaN

    @property
    def angle_variance(self) -> np.ndarray:
        return self.variance

    def stabilize(self, theta: Any) -> Any:
        return theta

    def destabilize(self, place: Any) -> Any:
        return place

    def slope(self, theta: Any) -> Any:
        return np.ones_like(theta)

    @property
    def limits(self) -> tuple[float, float]:
        return -np.inf, np.inf

    def take(self, rows: Any) -> Self:
        return replace(
            self, value=self.value[rows], variance=self.variance[rows], count=self.count[rows]
        )

    def averaged(self, place: np.ndarray) -> Self:
        count, value, variance = averages(place, self.count, self.value, self.variance)
        return replace(self, value=value, variance=variance, count=count)

    def fit_member(self) -> tuple[float, float]:
        """Restricted likelihood over the spread; the mean has weights 1 / (variance + spread^2)."""
        from fedprior.estimation.gaussian.fit import grid_argmax

        value, variance, count = self.value, self.variance, self.count

        def mean_at(spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            weight = count / (variance + spread[:, None])
            return weight @ value / weight.sum(axis=1), weight

        def log_likelihood(spread: np.ndarray) -> np.ndarray:
            mean, weight = mean_at(spread)
            squares = (weight * (value - mean[:, None]) ** 2).sum(axis=1)
            logs = np.log(variance + spread[:, None]) @ count
            return -(squares + logs + np.log(weight.sum(axis=1))) / 2

        middle = float(count @ value / count.sum())
        most = 4 * float(count @ (value - middle) ** 2) / max(float(count.sum()) - 1, 1.0)
        step = float(np.median(variance))
        found = grid_argmax(log_likelihood, low=0.0, high=most, step=step) if most > 0 else 0.0
        return float(mean_at(np.array([found]))[0][0]), float(np.sqrt(found))

    def member_quantile(self, level: np.ndarray, mean: float, spread: float) -> np.ndarray:
        from scipy.special import ndtri

        return mean + spread * ndtri(level)

    def widest(self, mean: float) -> float:
        some = self.held
        return float(np.abs(self.value[some] - mean).max(initial=0.0))

    def log_table(self, atoms: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Log N(value; atom, variance + spread^2); 0 for an infinite variance."""
        table = (self.raw[:, None] - atoms) ** 2
        if not spread.any():
            table *= (-0.5 / self.variance)[:, None]
            return table
        extra = spread**2 / self.variance[:, None]
        table *= -0.5 / (self.variance[:, None] * (1 + extra))
        return table - 0.5 * np.log1p(extra)

    @property
    def log_constant(self) -> np.ndarray:
        return np.where(
            self.held, -0.5 * np.log(2 * np.pi * np.where(self.held, self.variance, 1.0)), 0.0
        )

    def inner(self, atoms: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = spread**2 / (self.variance[:, None] + spread**2)
        return atoms + own * (self.raw[:, None] - atoms), spread**2 * (1 - own)

    def below(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        from scipy.special import ndtr

        return ndtr((theta - mean) / np.sqrt(variance))

    def drawn(self, theta: np.ndarray, level: np.ndarray) -> Self:
        from scipy.special import ndtri

        value = theta + np.sqrt(self.variance) * ndtri(level)
        return replace(self, value=value, count=np.ones(len(theta)))

    def noise(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return self.variance

    def loss(self, rule: Rule) -> np.ndarray:
        """(d - x)^2 + 2 v d' (Stein 1981), v d' the posterior variance (Tweedie)."""
        mean, variance = rule(self)
        return (mean - self.value) ** 2 + 2 * variance


@dataclass(frozen=True, kw_only=True, eq=False)
class CountRows(Rows):
    """`z` of `n` trials, or events over the exposure n, of a family of counts."""

    n: np.ndarray
    z: np.ndarray
    family: CountFamily

    @property
    def member(self) -> str:
        return self.family.population

    @property
    def held(self) -> np.ndarray:
        return self.n > 0

    @property
    def raw(self) -> np.ndarray:
        return self.z / np.where(self.held, self.n, 1.0)

    @property
    def angle_variance(self) -> np.ndarray:
        return 1 / (4 * self.n)

    def stabilize(self, theta: Any) -> Any:
        return self.family.stabilize(theta)

    def destabilize(self, place: Any) -> Any:
        return self.family.destabilize(place)

    def slope(self, theta: Any) -> Any:
        return 2 * np.sqrt(self.family.variance(theta))

    @property
    def limits(self) -> tuple[float, float]:
        return 0.0, self.family.top

    def take(self, rows: Any) -> Self:
        return replace(self, n=self.n[rows], z=self.z[rows], count=self.count[rows])

    def averaged(self, place: np.ndarray) -> Self:
        count, n, z = averages(place, self.count, self.n, self.z)
        return replace(self, n=n, z=z, count=count)

    def fit_member(self) -> tuple[float, float]:
        from fedprior.estimation.conjugate.fit import by_likelihood
        from fedprior.estimation.conjugate.likelihood import tally

        pairs = Pairs(self.n, self.z, self.count, np.arange(0), self.family)
        fitted = by_likelihood(tally(pairs))
        return fitted.mean, float(np.sqrt(fitted.variance))

    def member_quantile(self, level: np.ndarray, mean: float, spread: float) -> np.ndarray:
        shapes = self.family.matched(np.array(mean), np.array(spread**2))
        return self.family.quantile(shapes, level)

    def widest(self, mean: float) -> float:
        """Where M is 0.02: nearly all mass at the bounds, or at 0 and far away."""
        return float(np.sqrt(self.family.variance(mean) / (0.02 + self.family.excess)))

    def log_table(self, atoms: np.ndarray, spread: np.ndarray) -> np.ndarray:
        family, table = self.family, self.family.log_table(self.n, self.z, atoms)
        size, point = self._concentration(atoms, spread)
        if not point.all():
            row, atom = np.nonzero(self._blurred(atoms, size) & ~point)
            table[row, atom] = family.row_log_likelihood(
                self.n[row], self.z[row], atoms[atom], size[atom]
            )
        return table

    @property
    def log_constant(self) -> np.ndarray:
        return self.family.log_ways(self.n, self.z)

    def inner(self, atoms: np.ndarray, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        size, point = self._concentration(atoms, spread)
        own = self.n[:, None] + size
        mean = np.where(point, atoms, (self.z[:, None] + size * atoms) / own)
        variance = self.family.variance(mean) / (own + self.family.excess)
        return mean, np.where(point, 0.0, variance)

    def below(self, theta: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        return self.family.below(Shapes(*self.family.matched(mean, variance)), theta)

    def drawn(self, theta: np.ndarray, level: np.ndarray) -> Self:
        n = np.rint(self.n) if self.family.excess else self.n
        z = self.family.count_quantile(n, theta, level)
        return replace(self, n=n, z=z, count=np.ones(len(theta)))

    def noise(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        spread = self.family.expected_variance(mean, variance)
        return np.where(self.held, spread / np.where(self.held, self.n, 1.0), np.inf)

    def loss(self, rule: Rule) -> np.ndarray:
        def at(n: np.ndarray, z: np.ndarray) -> np.ndarray:
            return rule(replace(self, n=n, z=z))[0]

        return self.family.unbiased_loss(self.n, self.z, at)

    def _concentration(
        self, atoms: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """M of the member with the atom's mean and spread, and a mask of points."""
        point = (spread <= 0) | (self.family.variance(atoms) <= 0)
        variance = np.where(point, 1.0, spread**2)
        size = self.family.variance(atoms) / variance - self.family.excess
        return np.where(point, 1.0, np.maximum(size, 1e-3)), point

    def _blurred(self, atoms: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Mask of rows and members for which the width of the member matters.

        A row whose variance is 200 times that of the member cannot distinguish it from a point at
        its mean. The score by the angle overstates the decrease of the log-likelihood at most
        twofold, so a member 60 below the nearest one has less than exp(-30) of the row's mass.
        """
        some = np.where(self.held, self.n, 1.0)[:, None]
        angle = self.stabilize(self.raw)[:, None] - self.stabilize(atoms)
        score = 2 * angle**2 / (1 / some + 1 / (size + self.family.excess))
        near = score <= score.min(axis=1, keepdims=True) + 60
        return near & (200 * self.n[:, None] > size)


def count_rows(pairs: Pairs) -> CountRows:
    """The rows of distinct pairs, in their order."""
    n, z, count = (np.asarray(each, np.float64) for each in (pairs.n, pairs.successes, pairs.count))
    return CountRows(n=n, z=z, count=count, family=pairs.family)


def normal_rows(
    value: np.ndarray, variance: np.ndarray, count: np.ndarray | None = None
) -> NormalRows:
    """Values with known sampling variances."""
    value, variance = np.asarray(value, np.float64), np.asarray(variance, np.float64)
    count = np.ones(len(value)) if count is None else np.asarray(count, np.float64)
    return NormalRows(value=value, variance=variance, count=count)
