"""The population of largest evidence: Newton's method with the groups' scores, or plain EM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, step_gamma
from fedprior.regression.logistic.parts import ClassBlock
from fedprior.regression.logistic.posterior import Solve
from fedprior.regression.logistic.totals import ScoreTotals, survey

_HALVINGS = 12
_GROUPS_A_NUMBER = 20  # from so many on the scores' outer product is their information to 10%
_NEAR = 0.02  # gain per group of the last step, below which that information is trusted

_PATIENCE = 10  # rounds
_SHORT = 1.0  # growth of a step near the maximum; `step_gamma` would cut it from 1.5 on


class Ascent(NamedTuple):
    """The best of an ascent, the totals there, and the evidence after each round.

    `short` says that it ended where no step gained although one promised to: the evidence is
    not known any closer.
    """

    gamma: LogisticGamma
    totals: ScoreTotals
    memory: list[Any]
    history: tuple[float, ...]
    converged: bool
    short: bool


class AscentPoint(NamedTuple):
    """The value and the totals at gamma, and what the parts remember."""

    gamma: LogisticGamma
    value: float
    totals: ScoreTotals
    memory: list[Any]


Step = Callable[[float], LogisticGamma]  # where that share of a step leads


@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceProblem:
    """Maximize evidence(gamma) - sum ridge (mean, fixed)^2 / 2, `ridge` (D + P,).

    `slack` is the fall of the evidence per group, from its best, that is still taken for none: more
    than rounding where the totals' score is not quite the slope of the evidence that `solve` gives.
    """

    parts: Sequence[ClassBlock]
    solve: Solve
    shape: CovarianceShape
    ridge: np.ndarray
    slack: float

    def at(
        self, gamma: LogisticGamma, memory: Sequence[Any] | None = None, *, sweeps: int = 3
    ) -> tuple[float, ScoreTotals, list[Any]]:
        """The value, the totals, and what the parts remember."""
        known = [None] * len(self.parts) if memory is None else memory
        totals, kept = survey(self.parts, gamma, self.shape, self.solve, known, sweeps=sweeps)
        both = np.concatenate([gamma.mean, gamma.fixed])
        return totals.evidence - 0.5 * float(self.ridge @ both**2), totals, kept

    def penalized(
        self, gamma: LogisticGamma, totals: ScoreTotals
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The score, the information by mean and fixed, and the scores' outer product about their
        mean, each with the ridge's part.
        """
        both, width = len(totals.information), totals.width
        chart = np.eye(both)
        chart[:width, :width] = gamma.factor
        score, outer = totals.score.copy(), totals.outer.copy()
        score[:both] -= chart.T @ (self.ridge * np.concatenate([gamma.mean, gamma.fixed]))
        extra = chart.T @ (self.ridge[:, None] * chart)
        outer -= np.outer(totals.score, totals.score) / totals.num_groups
        outer[:both, :both] += extra
        return score, totals.information + extra, outer


def ascend(
    problem: EvidenceProblem,
    start: LogisticGamma,
    *,
    method: Literal["default", "em"],
    max_rounds: int,
    tolerance: float,
) -> Ascent:
    """Steps from `start` until one promises or gains less than `tolerance` of evidence per group.

    A step that leads below the best so far, by more than the slack, is halved; where that does not
    help either, or ten rounds raise the best by less than a hundredth of the slack, the best is the
    maximum as closely as the evidence is known. Both methods end at the same point, save that EM
    hardly leaves the bounds.
    """
    here = best = _place(problem, start)
    history, gain, enough = [here.value], np.inf, tolerance * here.totals.num_groups
    converged = short = False
    while len(history) <= max_rounds and not converged:
        near = abs(gain) < _NEAR * here.totals.num_groups
        least = best.value - problem.slack * here.totals.num_groups
        for step in _steps(problem, here, method=method, near=near):
            there = _kept(problem, here, step, least)
            if there is not None:
                break
        else:
            converged = short = True
            break
        gain = there.value - here.value
        converged = min(abs(gain), promise(problem, here, there.gamma)) < enough
        here = there
        best = here if here.value >= best.value else best
        history.append(here.value)
        if not converged and _stalls(history, problem.slack * here.totals.num_groups):
            converged = short = True
    return Ascent(best.gamma, best.totals, best.memory, tuple(history), converged, short)


def settle(
    problem: EvidenceProblem, start: LogisticGamma, *, max_rounds: int, tolerance: float
) -> Ascent:
    """Where the score is 0, for posteriors whose score is not the slope of their evidence.

    Newton's steps as long as each halves the promise of the next, EM's otherwise: those creep where
    a variance goes to 0, but are sure to settle.
    """
    here = _place(problem, start)
    history, enough = [here.value], tolerance * here.totals.num_groups
    step = _far_step(problem, here)
    left = promise(problem, here, step(1.0))
    while len(history) <= max_rounds and left >= enough:
        there = _place(problem, step(1.0), here.memory)
        onward = _far_step(problem, there)
        after = promise(problem, there, onward(1.0))
        if after > left / 2:
            there = _place(problem, em_step(problem, here)(1.0), here.memory)
            onward = _far_step(problem, there)
            after = promise(problem, there, onward(1.0))
        here, step, left = there, onward, after
        history.append(here.value)
    done = left < enough
    return Ascent(here.gamma, here.totals, here.memory, tuple(history), done, False)


def promise(problem: EvidenceProblem, here: AscentPoint, trial: LogisticGamma) -> float:
    """Half of score times step, what a Newton step gains; a bound that holds it back counts."""
    gamma, totals = here.gamma, here.totals
    score = problem.penalized(gamma, totals)[0]
    mean = np.linalg.solve(gamma.factor, trial.mean - gamma.mean)
    moved_by = np.concatenate([mean, trial.fixed - gamma.fixed])
    half = np.linalg.solve(gamma.factor, trial.covariance - gamma.covariance)
    growth = np.linalg.solve(gamma.factor, half.T)
    gain = float(score[: len(moved_by)] @ moved_by) + 0.5 * float((totals.moment * growth).sum())
    return abs(gain) / 2


def em_step(problem: EvidenceProblem, here: AscentPoint) -> Step:
    """EM: mean <- mean of E theta_i, covariance <- mean of E (theta_i - m)(theta_i - m)'.

    With fixed coefficients, mean and fixed take Newton's step on the evidence instead.
    """
    totals = here.totals
    score, information, _ = problem.penalized(here.gamma, totals)
    both, width = len(information), totals.width
    step = score[:width] / totals.num_groups
    if both > width or problem.ridge.any():
        step = np.linalg.solve(information, score[:both])
    second = totals.moment / totals.num_groups + np.eye(width)
    middle = totals.score[:width] / totals.num_groups
    growth = problem.shape.logarithm(second - np.outer(middle, middle))
    return _along(problem, here, np.concatenate([step, growth]))


def _steps(
    problem: EvidenceProblem, here: AscentPoint, *, method: Literal["default", "em"], near: bool
) -> Iterator[Step]:
    """The steps to try, in turn: EM's, or Newton's.

    Near the maximum, with groups enough, that is outer^-1 score in all coordinates at once, unless
    it multiplies a variance by far: the maximum has none there, and its logarithm no parabola.
    """
    if method == "em":
        yield em_step(problem, here)
        return
    score, _, outer = problem.penalized(here.gamma, here.totals)
    inside = not any(problem.shape.at_bounds(here.gamma.covariance))
    if near and inside and here.totals.num_groups >= _GROUPS_A_NUMBER * len(score):
        step = np.linalg.solve(outer, score)
        growth = problem.shape.growth(step[len(here.totals.information) :])
        if np.abs(np.linalg.eigvalsh(growth)).max() < _SHORT:
            yield _along(problem, here, step)
    yield _far_step(problem, here)


def _far_step(problem: EvidenceProblem, here: AscentPoint) -> Step:
    """information^-1 score, by mean and fixed and by growth apart.

    The growth's information is sum_i P_i (x) P_i / 2, as in a linear model: exactly that where
    growth is one number or one per feature. Where it is full, it is a multiple of mean P (x) mean P
    with the same trace, and the step goes straight to where it leads among covariances, not along
    growth: a direction without variance may then turn.
    """
    gamma, totals, shape = here.gamma, here.totals, problem.shape
    score, information, _ = problem.penalized(gamma, totals)
    step = np.linalg.solve(information, score[: len(information)])
    if shape.kind != "full":
        return _along(problem, here, np.concatenate([step, _growth(shape, gamma, totals)]))
    width = totals.width
    room = totals.information[:width, :width] / totals.num_groups
    excess = totals.square.sum() / totals.num_groups / (room**2).sum()
    half = np.linalg.solve(room, totals.moment / totals.num_groups)
    ratio = np.eye(width) + np.linalg.solve(room, half.T) / excess
    change = shape.projected(gamma, ratio, room) - gamma.covariance

    def lead(share: float) -> LogisticGamma:
        covariance = shape.bounded(gamma.covariance + share * change)
        return LogisticGamma(
            mean=gamma.mean + share * gamma.factor @ step[:width],
            fixed=gamma.fixed + share * step[width:],
            factor=np.linalg.cholesky(covariance),
        )

    return lead


def _along(problem: EvidenceProblem, here: AscentPoint, step: np.ndarray) -> Step:
    return lambda share: step_gamma(here.gamma, problem.shape, share * step)


def _place(
    problem: EvidenceProblem, gamma: LogisticGamma, memory: Sequence[Any] | None = None
) -> AscentPoint:
    return AscentPoint(gamma, *problem.at(gamma, memory))


def _kept(
    problem: EvidenceProblem, here: AscentPoint, step: Step, least: float
) -> AscentPoint | None:
    """Where the step, or the first half of it and so on, reaches `least`; None where none does."""
    for halving in range(_HALVINGS):
        there = _place(problem, step(0.5**halving), here.memory)
        if there.value >= least:
            return there
    return None


def _stalls(history: list[float], slack: float) -> bool:
    before, since = history[:-_PATIENCE], history[-_PATIENCE:]
    return bool(before) and max(since) - max(before) < slack / 100


def _growth(shape: CovarianceShape, gamma: LogisticGamma, totals: ScoreTotals) -> np.ndarray:
    if shape.kind == "isotropic":
        return np.array([np.trace(totals.moment) / totals.square.sum()])
    toward = np.diag(totals.moment)
    low, high = shape.features_at_bounds(gamma.covariance)
    free = ~((low & (toward < 0)) | (high & (toward > 0)))  # the others' steps would not be taken
    growth = np.zeros_like(toward)
    growth[free] = np.linalg.solve(totals.square[np.ix_(free, free)], toward[free])
    return growth
