"""Rows of values with known sampling variances."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedprior.estimation.nonparametric.grid import averages
from fedprior.estimation.nonparametric.rows import FamilyRows, Rule


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalRows(FamilyRows):
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


def normal_rows(
    value: np.ndarray, variance: np.ndarray, count: np.ndarray | None = None
) -> NormalRows:
    """Values with known sampling variances."""
    value, variance = np.asarray(value, np.float64), np.asarray(variance, np.float64)
    count = np.ones(len(value)) if count is None else np.asarray(count, np.float64)
    return NormalRows(value=value, variance=variance, count=count)
