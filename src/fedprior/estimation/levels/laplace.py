"""Laplace's approximation for binomial and Poisson data with several factors."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from fedprior.estimation.levels.crossed import Crossed
from fedprior.estimation.levels.problem import (
    Factor,
    LevelRows,
    Normal,
    State,
    coefficients,
    eliminated,
    pulls,
    values_at,
)
from fedprior.estimation.levels.tree import Tree

_ROUNDS = 100
_CLOSE = 1e-7  # gain of a step below which the next would gain its square
_SHORTEST = 1e-9  # share of a step


class Likelihood(NamedTuple):
    """Log likelihood of each row but for `constant`, and its derivatives in the predictor."""

    value: np.ndarray
    score: np.ndarray
    weight: np.ndarray
    slope: np.ndarray  # of the weight


def likelihood(rows: LevelRows, predictor: np.ndarray) -> Likelihood:
    """Binomial with logits, or Poisson with logarithms of rates per unit of exposure."""
    y, size = rows.y, rows.size
    if rows.family == "binomial":
        tail = np.exp(-np.abs(predictor))
        rate = np.where(predictor < 0, tail, 1.0) / (1 + tail)
        weight = size * tail / (1 + tail) ** 2
        value = y * predictor - size * (np.maximum(predictor, 0) + np.log1p(tail))
        return Likelihood(value, y - size * rate, weight, weight * (1 - 2 * rate))
    expected = size * np.exp(predictor)
    return Likelihood(y * predictor - expected, y - expected, expected, expected)


def constant(rows: LevelRows) -> float:
    """What the log likelihood has beside the linear predictor."""
    y, size = rows.y, rows.size
    if rows.family == "binomial":
        choose = special.gammaln(size + 1) - special.gammaln(y + 1)
        return float((choose - special.gammaln(size - y + 1)).sum())
    return float((special.xlogy(y, size) - special.gammaln(y + 1)).sum())


class Mode(NamedTuple):
    """The mode of the effects (and of the coefficients, where they are not given).

    Effects are variance_k Z_k' `dual`, and `effects` their sums in every cell; at the mode, `dual`
    is the score of the cell. `value` is log p(y, u) but for constants of the variances: the log
    likelihood less half the sum of effect^2 / variance, which is dual . effects.
    """

    beta: np.ndarray
    dual: np.ndarray
    effects: np.ndarray
    value: float
    found: Likelihood


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceProblem:
    """Log p(y) = log p(y, u) - log |V w| / 2 at the mode of the effects u given coefficients.

    `warm` keeps the last mode as the start of the next search.
    """

    rows: LevelRows
    kernel: Tree | Crossed
    warm: dict[str, np.ndarray] = field(default_factory=dict)

    @cached_property
    def _constant(self) -> float:
        return constant(self.rows)

    def start(self) -> np.ndarray:
        """Deviations of a half, and the coefficients that go with them."""
        scales = np.full(len(self.rows.cells.sizes), 0.5)
        return np.concatenate([scales, self.mode(scales**2).beta])

    def objective(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """-2 log likelihood and its gradient in the standard deviations and the coefficients."""
        rows, number = self.rows, len(self.rows.cells.sizes)
        scales, beta = parameters[:number], parameters[number:]
        mode = self.mode(scales**2, beta)
        weight = self._weight(mode.found)
        factor = self.kernel.factorized(weight, scales**2)
        twice = factor.log_determinant - 2 * (mode.value + self._constant)
        # The determinant depends on the mode, which moves with the parameters.
        push = mode.found.slope * factor.spread().cells[rows.cell] / 2
        totals = rows.totals(push[None])
        moved = factor.solve(totals).cells[0]
        slope = rows.x.T @ (mode.found.score - push + mode.found.weight * moved[rows.cell])
        traces = factor.traces()
        for k, (place, size) in enumerate(zip(rows.cells.places, rows.cells.sizes, strict=True)):
            score = np.bincount(place, mode.dual, minlength=size)
            follow = np.bincount(place, totals[0] - weight * moved, minlength=size)
            traces[k] += float((2 * score * follow - score**2).sum())
        return twice, np.concatenate([traces * 2 * scales, -2 * slope])

    def density(self, ratios: np.ndarray) -> float:
        """The log likelihood with the coefficients integrated over."""
        return self._integrated(self.mode(ratios), ratios)[0]

    def _integrated(
        self, mode: Mode, ratios: np.ndarray
    ) -> tuple[float, Factor, np.ndarray, np.ndarray, np.ndarray]:
        """It, the elimination, the working sums, the coefficients and their covariance."""
        factor = self.kernel.factorized(self._weight(mode.found), np.asarray(ratios))
        totals, gram = self._working(mode)
        beta, covariance, fixed, _ = coefficients(eliminated(gram, totals, factor))
        density = mode.value + self._constant - (factor.log_determinant + fixed) / 2
        return density, factor, totals, beta, covariance

    def information(self, ratios: np.ndarray) -> np.ndarray:
        """Tr Z_k' V^-1 Z_k of each factor, at the mode."""
        weight = self._weight(self.mode(ratios).found)
        return self.kernel.factorized(weight, ratios).traces()

    def noise(self, ratios: np.ndarray) -> float:
        """Binomial and Poisson data have no noise variance of their own."""
        return 1.0

    def state(self, ratios: np.ndarray) -> State:
        """The mode moved to the mean, to first order: by -H^-1 times the slopes of log |H| / 2."""
        mode = self.mode(np.asarray(ratios))
        density, factor, totals, beta, covariance = self._integrated(mode, ratios)
        cells, nodes = values_at(factor, totals, beta, covariance, 1.0)
        push = mode.found.slope * self._doubt(factor, totals, covariance) / 2
        totals, gram = self._working(mode, push)
        beta = coefficients(eliminated(gram, totals, factor))[0]
        moved, nodes = values_at(factor, totals, beta, covariance, 1.0)
        rest = None
        if self.rows.num_fixed == 1:
            rest = self._rest(mode, cells, push, moved.location - cells.location)
        return State(
            log_density=density,
            variances=np.asarray(ratios),
            noise=1.0,
            freedom=np.inf,
            beta=beta,
            covariance=covariance,
            cells=moved,
            nodes=nodes,
            pulls=pulls(factor, self._weight(mode.found)),
            rest=rest,
        )

    def _doubt(self, factor: Factor, totals: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """The variance of the linear predictor of each row."""
        rows = self.rows
        table = rows.x.T - factor.solve(totals).cells[:-1].take(rows.cell, axis=1)
        doubt = (table * (covariance @ table)).sum(axis=0)
        return factor.spread().cells[rows.cell] + doubt

    def _rest(self, mode: Mode, cells: Normal, push: np.ndarray, moved: np.ndarray) -> Normal:
        """The normal law of each cell's predictor without the cell's own likelihood.

        Of the way from mode to mean, what the own likelihood is the cause of is left out.
        """
        columns = np.vstack([mode.found.score, mode.found.weight, push])
        score, weight, own = self.rows.totals(columns)
        precision = np.maximum(1 / cells.variance - weight, 1e-6 / cells.variance)
        shift = (moved / cells.variance + own - score) / precision
        return Normal(cells.location + shift, 1 / precision)

    def mode(self, variances: np.ndarray, beta: np.ndarray | None = None) -> Mode:
        """Newton steps with halving, each a weighted least squares fit (PIRLS)."""
        cells = self.rows.cells
        dual = self.warm.get("dual", np.zeros(cells.number))
        if len(dual) < cells.number:
            dual = np.append(dual, np.zeros(cells.number - len(dual)))
        warm = self.warm.get("beta") if beta is None else beta
        common = self._first() if beta is None else beta
        now = self._at(common, 0 * dual, 0 * dual)
        if warm is not None and dual.any():
            near = self._at(warm, dual, self._spread(dual, variances))
            now = near if near.value > now.value else now
        for _ in range(_ROUNDS):
            goal = self._step(now, variances, free=beta is None)
            share, after = 1.0, now
            while share > _SHORTEST:
                after = self._between(now, goal, share)
                if after.value >= now.value:
                    break
                share /= 2
            gained, now = after.value - now.value, (after if after.value >= now.value else now)
            if gained < _CLOSE:
                break
        self.warm["dual"] = now.dual
        if beta is None:
            self.warm["beta"] = now.beta
        return now

    def _first(self) -> np.ndarray:
        """The coefficients of one common rate."""
        rows, beta = self.rows, np.zeros(self.rows.num_fixed)
        rate = (rows.y.sum() + 0.5) / (rows.size.sum() + 1.0)
        beta[0] = special.logit(rate) if rows.family == "binomial" else np.log(rate)
        return beta

    def _spread(self, dual: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """The effects in every cell: sum_k variance_k Z_k Z_k' dual."""
        cells, found = self.rows.cells, np.zeros(len(dual))
        for variance, place, size in zip(variances, cells.places, cells.sizes, strict=True):
            found += variance * np.bincount(place, dual, minlength=size)[place]
        return found

    def _at(self, beta: np.ndarray, dual: np.ndarray, effects: np.ndarray) -> Mode:
        with np.errstate(over="ignore", invalid="ignore"):
            found = likelihood(self.rows, self.rows.x @ beta + effects[self.rows.cell])
            value = float(found.value.sum() - dual @ effects / 2)
        return Mode(beta, dual, effects, value if np.isfinite(value) else -np.inf, found)

    def _between(self, one: Mode, other: Mode, share: float) -> Mode:
        pairs = zip(one[:3], other[:3], strict=True)
        beta, dual, effects = (old + share * (new - old) for old, new in pairs)
        return self._at(beta, dual, effects)

    def _weight(self, found: Likelihood) -> np.ndarray:
        return self.rows.totals(found.weight[None])[0]

    def _working(self, mode: Mode, push: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Weighted sums of x and of the working response in each cell, and over all rows."""
        rows, found = self.rows, mode.found
        predictor = rows.x @ mode.beta + mode.effects[rows.cell]
        response = found.score - push + found.weight * predictor
        weighted = np.vstack([rows.x.T * found.weight, response])
        gram = rows.x.T @ weighted.T
        return rows.totals(weighted), np.vstack([gram, np.append(gram[:, -1], 0.0)])

    def _step(self, now: Mode, variances: np.ndarray, *, free: bool) -> Mode:
        """The weighted least squares fit at the present predictor, as a mode without a value."""
        weight = self._weight(now.found)
        factor = self.kernel.factorized(weight, variances)
        totals, gram = self._working(now)
        solved = factor.solve(totals).cells
        beta = now.beta
        if free:
            beta = coefficients(gram - totals @ solved.T)[0]
        effects = solved[-1] - beta @ solved[:-1]
        dual = totals[-1] - beta @ totals[:-1] - weight * effects
        return Mode(beta, dual, effects, np.nan, now.found)
