"""The likelihood of normal data with several factors, profiled over coefficients and noise."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedprior.estimation.levels.crossed import Crossed
from fedprior.estimation.levels.problem import LevelRows, State, coefficients, pulls, values_at
from fedprior.estimation.levels.tree import Tree, summed

_LOG_TAU = float(np.log(2 * np.pi))


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianProblem:
    """y ~ N(X beta, noise V), V = 1 / size + sum_k ratio_k Z_k Z_k'; `restricted` is REML."""

    rows: LevelRows
    kernel: Tree | Crossed
    restricted: bool = True

    @cached_property
    def _both(self) -> np.ndarray:
        return np.vstack([self.rows.x.T, self.rows.y])

    @cached_property
    def _totals(self) -> np.ndarray:
        return self.rows.totals(self._both * self.rows.size)

    @cached_property
    def _scatter(self) -> np.ndarray:
        """Sums of products of rows about the means of their cells."""
        weight = self.weight
        mean = np.divide(self._totals, weight, out=0 * self._totals, where=weight > 0)
        apart = self._both - mean.take(self.rows.cell, axis=1)
        table = apart @ (apart * self.rows.size).T
        table[-1, -1] += self.rows.within
        return table

    @cached_property
    def weight(self) -> np.ndarray:
        return self.rows.totals(self.rows.size[None])[0]

    def _freedom(self, restricted: bool) -> int:
        return self.rows.num_rows - self.rows.num_fixed * restricted

    def start(self) -> np.ndarray:
        """Ratios of standard deviations as if each factor had the variance of the noise."""
        deviation = 1.0
        if self.rows.known:
            deviation = float(np.std(self.rows.y)) or 1.0
        return np.full(len(self.rows.cells.sizes), deviation / np.sqrt(len(self.rows.cells.sizes)))

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """-2 log likelihood and its gradient in the ratios of standard deviations."""
        factor = self.kernel.factorized(self.weight, parameters**2)
        table = factor.reduced(self._scatter, self._totals)
        beta, inverse, log_determinant, left = coefficients(table)
        twice, noise = self._twice(factor.log_determinant, log_determinant, left, self.restricted)
        residual = factor.residual(self._totals)
        score = np.append(-beta, 1.0)
        slope = factor.traces()
        for k, (place, size) in enumerate(
            zip(self.rows.cells.places, self.rows.cells.sizes, strict=True)
        ):
            projected = summed(place, residual, size)
            slope[k] -= float(((score @ projected) ** 2).sum()) / noise
            if self.restricted:
                columns = projected[:-1]
                slope[k] -= float((inverse * (columns @ columns.T)).sum())
        return twice, slope * 2 * parameters

    def _twice(
        self, random: float, fixed: float, left: float, restricted: bool
    ) -> tuple[float, float]:
        """-2 log likelihood and the noise variance."""
        freedom = self._freedom(restricted)
        noise = 1.0 if self.rows.known else max(left, 1e-300) / freedom
        constant = float(np.log(self.rows.size).sum()) if self.rows.known else 0.0
        twice = random + fixed * restricted - constant + left / noise
        return twice + freedom * (_LOG_TAU + np.log(noise)), noise

    def density(self, ratios: np.ndarray) -> float:
        """The restricted log likelihood; that of noise with a prior 1 / noise, integrated."""
        factor = self.kernel.factorized(self.weight, ratios)
        *_, fixed, left = coefficients(factor.reduced(self._scatter, self._totals))
        return -self._twice(factor.log_determinant, fixed, left, True)[0] / 2

    def information(self, ratios: np.ndarray) -> np.ndarray:
        """Tr Z_k' V^-1 Z_k of each factor."""
        return self.kernel.factorized(self.weight, ratios).traces()

    def noise(self, ratios: np.ndarray) -> float:
        """The noise variance that goes with the ratios."""
        factor = self.kernel.factorized(self.weight, ratios)
        *_, fixed, left = coefficients(factor.reduced(self._scatter, self._totals))
        return self._twice(factor.log_determinant, fixed, left, self.restricted)[1]

    def state(self, ratios: np.ndarray) -> State:
        factor = self.kernel.factorized(self.weight, ratios)
        table = factor.reduced(self._scatter, self._totals)
        beta, inverse, log_determinant, left = coefficients(table)
        twice, noise = self._twice(factor.log_determinant, log_determinant, left, True)
        covariance = noise * inverse
        cells, nodes = values_at(factor, self._totals, beta, covariance, noise)
        return State(
            log_density=-twice / 2,
            variances=noise * np.asarray(ratios),
            noise=noise,
            freedom=np.inf if self.rows.known else self._freedom(True),
            beta=beta,
            covariance=covariance,
            cells=cells,
            nodes=nodes,
            pulls=pulls(factor, self.weight),
        )
