"""Rows of one-dimensional data: all that a population of any shape has to know of a family.

A member of a population is a conjugate one with mean `atoms[j]` and standard deviation `spread[j]`,
a point where the spread is 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

Rule = Callable[["FamilyRows"], tuple[np.ndarray, np.ndarray]]
"""Posterior mean and variance of theta for each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FamilyRows(ABC):
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
