"""The population's parameters, and steps that keep them within bounds."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedprior.regression.linear.structure import num_covariance_parameters
from fedprior.regression.result import Covariance
from fedprior.regression.rows import GroupedRows
from fedprior.regression.turn import TurnBack

# Bounds of a variance in units of 1 / mean square of its feature, so that they bound its
# contribution to the variance of the log odds. At the lower bound a group of mean size n has weight
# n / 4 * floor = 5e-6 on its own rows, which no data can distinguish from 0; for counts the mean
# of y is in place of 1 / 4. At the upper bound log odds of +-10 are common, which occurs only if
# nearly every group has a single class, or no events.
_LOW_A_GROUP = 5e-6
_HIGH = 100.0
_TOUCH = 1.001  # a variance within this factor of a bound counts as being on it
_VANISHED = 100.0  # times the lower bound: a weight of 5e-4, where a search may end before it
_LONGEST = 1.5  # a step changes variances by at most a factor of exp(1.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticGamma:
    """theta = mean + factor z, z ~ N(0, I): covariance = factor factor'; `fixed` for all groups."""

    mean: np.ndarray  # (D,)
    factor: np.ndarray  # (D, D), any square root
    fixed: np.ndarray  # (P,)

    @cached_property
    def covariance(self) -> np.ndarray:
        return self.factor @ self.factor.T


@dataclass(frozen=True, kw_only=True, eq=False)
class CovarianceShape:
    """The kind of covariance, and the smallest and largest variance of a feature.

    `unit` (D,) is the mean square of each feature, repeated for each class.
    """

    kind: Covariance
    unit: np.ndarray
    num_features: int
    low: float
    high: float = _HIGH

    @classmethod
    def of(
        cls, rows: GroupedRows, kind: Covariance, num_classes: int, *, weight: float = 0.25
    ) -> "CovarianceShape":
        """The shape for these rows; `weight` is the information of a row on its log odds."""
        unit = np.maximum((rows.x**2).mean(axis=0), 1e-300)
        mean_size = rows.num_rows / max(int((rows.sizes > 0).sum()), 1)
        return cls(
            kind=kind,
            unit=np.tile(unit, num_classes - 1),
            num_features=rows.num_features,
            low=_LOW_A_GROUP / (mean_size * weight),
        )

    @property
    def num_scales(self) -> int:
        """The number of free parameters of the covariance."""
        return num_covariance_parameters(self.kind, len(self.unit))

    def gather(self, excess: np.ndarray) -> np.ndarray:
        """trace(excess G_k) for each direction G_k of growth: (g, D, D) to (g, num_scales)."""
        if self.kind == "isotropic":
            return np.trace(excess, axis1=1, axis2=2)[:, None]
        if self.kind == "diagonal":
            return np.diagonal(excess, axis1=1, axis2=2)
        rows, columns = np.tril_indices(excess.shape[-1])
        return excess[:, rows, columns] * np.where(rows == columns, 1.0, 2.0)

    def growth(self, amounts: np.ndarray) -> np.ndarray:
        """sum_k amount_k G_k, (D, D); G is I, or one matrix per feature or pair of features."""
        width = len(self.unit)
        if self.kind == "isotropic":
            return np.eye(width) * amounts[0]
        if self.kind == "diagonal":
            return np.diag(amounts)
        rows, columns = np.tril_indices(width)
        matrix = np.zeros((width, width))
        matrix[rows, columns] = matrix[columns, rows] = amounts
        return matrix

    def logarithm(self, ratio: np.ndarray) -> np.ndarray:
        """The amounts of growth that multiply the covariance by `ratio`, in terms of its factor."""
        if self.kind == "isotropic":
            return np.log([np.trace(ratio) / len(ratio)])
        if self.kind == "diagonal":
            return np.log(np.diag(ratio))
        values, vectors = np.linalg.eigh(ratio)
        logarithm = (vectors * np.log(np.maximum(values, 1e-300))) @ vectors.T
        return logarithm[np.tril_indices(len(ratio))]

    def bounded(self, covariance: np.ndarray) -> np.ndarray:
        """The nearest covariance of this kind, with scaled variances clipped to [low, high]."""
        if self.kind == "isotropic":
            unit = float(self.unit.mean())
            variance = float(np.trace(covariance)) / len(covariance)
            return np.eye(len(covariance)) * np.clip(variance * unit, self.low, self.high) / unit
        if self.kind == "diagonal":
            return np.diag(
                np.clip(np.diag(covariance) * self.unit, self.low, self.high) / self.unit
            )
        root = np.sqrt(self.unit)
        values, vectors = np.linalg.eigh(covariance * np.outer(root, root))
        cut = (vectors * np.clip(values, self.low, self.high)) @ vectors.T
        return cut / np.outer(root, root)

    def projected(self, gamma: LogisticGamma, ratio: np.ndarray, metric: np.ndarray) -> np.ndarray:
        """The covariance nearest to factor ratio factor' that respects the lower bound.

        The distance is |root' (ratio - other) root| with root root' = `metric` (D, D), so that the
        result maximizes, within the bound, a quadratic function with this curvature and its maximum
        at `ratio`.
        """
        floor = np.linalg.solve(gamma.factor, np.diag(np.sqrt(self.low / self.unit)))
        least = floor @ floor.T
        root = np.linalg.cholesky(metric)
        values, vectors = np.linalg.eigh(root.T @ (ratio - least) @ root)
        turn = gamma.factor @ np.linalg.solve(root.T, vectors)
        above = (turn * np.maximum(values, 0.0)) @ turn.T
        return above + np.diag(self.low / self.unit)

    def at_bounds(self, covariance: np.ndarray) -> tuple[bool, bool]:
        """Whether some variance is next to the lower bound, and whether some is at the upper."""
        unit = self.unit.mean() if self.kind == "isotropic" else self.unit
        root = np.sqrt(np.broadcast_to(unit, self.unit.shape))
        values = np.linalg.eigvalsh(covariance * np.outer(root, root))
        return bool(values[0] <= self.low * _VANISHED), bool(values[-1] >= self.high / _TOUCH)

    def features_at_bounds(self, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the features whose variances are at the lower and at the upper bound."""
        variance = np.diag(covariance) * self.unit
        return variance <= self.low * _TOUCH, variance >= self.high / _TOUCH


def outward(gamma: LogisticGamma, back: TurnBack) -> LogisticGamma:
    """The population in the original basis."""
    mean, fixed = back.out(gamma.mean, gamma.fixed)
    return LogisticGamma(mean=mean, factor=back.x @ gamma.factor, fixed=fixed)


def inward(gamma: LogisticGamma, back: TurnBack) -> LogisticGamma:
    """The population in the new basis."""
    mean, fixed = back.into(gamma.mean, gamma.fixed)
    return LogisticGamma(mean=mean, factor=np.linalg.solve(back.x, gamma.factor), fixed=fixed)


def step_gamma(gamma: LogisticGamma, shape: CovarianceShape, step: np.ndarray) -> LogisticGamma:
    """One step: mean + factor step, fixed + step, factor exp(growth) factor', within bounds.

    `step` (D + P + q,) contains the three in order; eigenvalues of the growth are clipped to
    [-1.5, 1.5].
    """
    width, others = len(gamma.mean), len(gamma.fixed)
    values, vectors = np.linalg.eigh(shape.growth(step[width + others :]))
    grown = (vectors * np.exp(np.clip(values, -_LONGEST, _LONGEST))) @ vectors.T
    covariance = shape.bounded(gamma.factor @ grown @ gamma.factor.T)
    return LogisticGamma(
        mean=gamma.mean + gamma.factor @ step[:width],
        fixed=gamma.fixed + step[width : width + others],
        factor=np.linalg.cholesky(covariance),
    )
