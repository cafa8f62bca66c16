"""Rows of trials, or of events over an exposure."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fedprior.estimation.families.family import CountFamily, Shapes
from fedprior.estimation.nonparametric.grid import averages
from fedprior.estimation.nonparametric.rows import FamilyRows, Rule
from fedprior.estimation.statistics import Pairs


@dataclass(frozen=True, kw_only=True, eq=False)
class CountRows(FamilyRows):
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
