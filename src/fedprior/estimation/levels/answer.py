"""Values of every level of every factor: estimates and intervals over the plausible variances."""

from dataclasses import dataclass, replace

import numpy as np

from fedprior.estimation.intervals import mixture_interval
from fedprior.estimation.levels.hyper import Hyper
from fedprior.estimation.levels.links import moments
from fedprior.estimation.levels.own import own_rates
from fedprior.estimation.levels.problem import LevelRows, Normal, Problem, State
from fedprior.estimation.levels.result import Values
from fedprior.estimation.levels.tree import summed

_CHUNK = 1 << 21  # numbers at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelAnswers:
    """Values of the `whole` (one row), of the levels of each factor, and of the cells.

    `location` is the linear predictor of the whole.
    """

    whole: Values
    levels: tuple[Values, ...]
    cells: Values
    location: float


def answers(problem: Problem, hyper: Hyper, *, center: float, level: float) -> LevelAnswers:
    """The states at the points of `hyper`, averaged; `center` is added to means."""
    states = [problem.state(point) for point in hyper.ratios]
    rows = problem.rows
    single = states[0].rest is not None
    fitted = _Averaged(rows, states, hyper.probability, center, level)
    below = np.array([state.variances for state in states])
    chain = rows.cells.nested
    found = []
    for factor in range(len(rows.cells.sizes)):
        # A level stands for all that is below it or, where factors cross, beside it.
        other = below[:, factor + 1 :] if chain else np.delete(below, factor, axis=1)
        parts = [state.nodes[factor] for state in states]
        place, size = rows.cells.places[factor], rows.cells.sizes[factor]
        found.append(fitted.values(parts, other.sum(axis=1), place, size))
    number = rows.cells.number
    if not chain:
        alone = np.zeros(len(states))
        parts = [state.cells for state in states]
        found.append(fitted.values(parts, alone, np.arange(number), number))
    if single:
        found[-1] = _own(rows, states, hyper.probability, found[-1], level)
    for k, each in enumerate(found):
        pull = hyper.probability @ np.array([state.pulls[k] for state in states])
        found[k] = replace(each, weight=np.clip(pull, 0.0, 1.0))
    parts = [Normal(state.beta[:1], state.covariance[:1, 0]) for state in states]
    whole = fitted.values(parts, below.sum(axis=1), np.zeros(number, np.int64), 1)
    levels = tuple(found if chain else found[:-1])
    location = float(hyper.probability @ np.array([state.beta[0] for state in states]))
    return LevelAnswers(whole=whole, levels=levels, cells=found[-1], location=location)


def _own(
    rows: LevelRows, states: list[State], probability: np.ndarray, values: Values, level: float
) -> Values:
    """Rates of cells by their own likelihood instead of its normal approximation."""
    rest = [state.rest for state in states if state.rest is not None]
    near = [state.cells for state in states]
    personal, scale, lower, upper = own_rates(rows, rest, near, probability, level)
    return replace(values, personal=personal, scale=scale, lower=lower, upper=upper)


@dataclass(frozen=True, eq=False)
class _Averaged:
    rows: LevelRows
    states: list[State]
    probability: np.ndarray
    center: float
    level: float

    def values(
        self, parts: list[Normal], below: np.ndarray, place: np.ndarray, size: int
    ) -> Values:
        """Averages over the states of values that stand for others with variances `below`."""
        n, raw = self._raw(place, size)
        personal, scale, lower, upper = (np.empty(size) for _ in range(4))
        step = max(1, _CHUNK // len(parts))
        for low in range(0, size, step):
            part = slice(low, min(low + step, size))
            location = np.array([each.location[part] for each in parts])
            variance = np.array([each.variance[part] for each in parts])
            personal[part], scale[part] = self._moments(location, variance, below)
            lower[part], upper[part] = self._interval(location, variance, below)
        nowhere = np.full(size, np.nan)
        return Values(
            n=n,
            raw=raw + self.center,
            personal=personal + self.center,
            scale=scale,
            weight=nowhere,
            lower=lower + self.center,
            upper=upper + self.center,
        )

    def _raw(self, place: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rows
        observed = rows.y * rows.size if rows.family == "gaussian" else rows.y
        count = rows.size if rows.counts is None else rows.counts
        sums = rows.totals(np.vstack([rows.size, observed, count]))
        weight, total, n = summed(place, sums, size)
        with np.errstate(invalid="ignore", divide="ignore"):
            return n, total / weight

    def _moments(
        self, location: np.ndarray, variance: np.ndarray, below: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        freedom = self.states[0].freedom
        inflation = 1.0 if np.isinf(freedom) else freedom / max(freedom - 2, 1.0)
        if self.rows.family == "gaussian":
            mean, spread = location, inflation * variance
        else:
            mean, _ = moments(self.rows.family, location, variance + below[:, None])
            apart = 0.0 if not below.any() else below[:, None]
            spread = _between(self.rows.family, location, variance, apart)
        middle = self.probability @ mean
        return middle, np.sqrt(self.probability @ (spread + (mean - middle) ** 2))

    def _interval(
        self, location: np.ndarray, variance: np.ndarray, below: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        scale = np.sqrt(np.maximum(variance, 1e-300))
        freedom = self.states[0].freedom
        ends = mixture_interval(self.level, self.probability, location, scale, freedom=freedom)
        if self.rows.family == "gaussian":
            return ends
        other = np.full(location.shape[1], float(self.probability @ np.minimum(below, 4.0)))
        low, high = (moments(self.rows.family, end, other).mean for end in ends)
        return low, high


def _between(
    family: str, location: np.ndarray, variance: np.ndarray, apart: np.ndarray | float
) -> np.ndarray:
    """The posterior variance of a rate; where it is a mean over others, by its slope."""
    if np.ndim(apart) == 0:
        return moments(family, location, variance).variance
    step = 1e-4
    other = np.broadcast_to(apart, location.shape)
    ends = (moments(family, location + side * step, other).mean for side in (1, -1))
    up, down = ends
    return ((up - down) / (2 * step)) ** 2 * variance
