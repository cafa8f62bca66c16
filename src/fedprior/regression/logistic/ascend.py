"""Maximization of the evidence over the population: Newton's method with scores, or EM."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, step_gamma
from fedprior.regression.logistic.parts import ClassBlock
from fedprior.regression.logistic.posterior import Solve
from fedprior.regression.logistic.totals import ScoreTotals, survey

_HALVINGS = 12
_GROUPS_A_NUMBER = 20  # per parameter: then the scores' outer product is the information to 10%
_NEAR = 0.02  # gain per group of the last step below which that information is used

_PATIENCE = 10  # rounds
_SHORT = 1.0  # growth of a step near the maximum; `step_gamma` would cut it from 1.5 on


class Ascent(NamedTuple):
    """The best point of an ascent, the totals there, and the evidence after each round.

    `short` means that no step gained although one was predicted to, because the evidence is not
    known more precisely.
    """

    gamma: LogisticGamma
    totals: ScoreTotals
    memory: list[Any]
    history: tuple[float, ...]
    converged: bool
    short: bool


class AscentPoint(NamedTuple):
    """The value and the totals at gamma, and the memory of the parts."""

    gamma: LogisticGamma
    value: float
    totals: ScoreTotals
    memory: list[Any]


Step = Callable[[float], LogisticGamma]  # from a fraction of the step to the point it leads to


@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceProblem:
    """Maximize evidence(gamma) - sum ridge (mean, fixed)^2 / 2, `ridge` (D + P,).

    `slack` is the tolerated decrease of the evidence per group below its best. It exceeds rounding
    if the score is not exactly the slope of the evidence that `solve` computes.
    """

    parts: Sequence[ClassBlock]
    solve: Solve
    shape: CovarianceShape
    ridge: np.ndarray
    slack: float

    def at(
        self, gamma: LogisticGamma, memory: Sequence[Any] | None = None, *, sweeps: int = 3
    ) -> tuple[float, ScoreTotals, list[Any]]:
        """The value, the totals, and the memory of the parts."""
        known = [None] * len(self.parts) if memory is None else memory
        totals, kept = survey(self.parts, gamma, self.shape, self.solve, known, sweeps=sweeps)
        both = np.concatenate([gamma.mean, gamma.fixed])
        return totals.evidence - 0.5 * float(self.ridge @ both**2), totals, kept

    def penalized(
        self, gamma: LogisticGamma, totals: ScoreTotals
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The score, the information of mean and fixed, and the centered outer product of scores.

        Each includes the ridge.
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
    """Steps from `start` until the predicted or actual gain is below `tolerance` per group.

    A step that leads below the best value by more than the slack is halved. If that does not help,
    or if ten rounds improve the best by less than a hundredth of the slack, the best point is the
    maximum as precisely as the evidence is known. Both methods end at the same point, except that
    EM hardly leaves the bounds.
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
    """Find a zero of the score, for posteriors whose score is not the slope of their evidence.

    Newton's steps as long as each halves the predicted gain, else EM steps, which are slow where a
    variance tends to 0 but always converge.
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
    """The predicted gain of a Newton step, half of score times step, with bounds respected."""
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

    With fixed coefficients, mean and fixed are updated by Newton's step on the evidence instead.
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
    """The steps to try in order: those of EM, or of Newton's method.

    Near the maximum and with enough groups, Newton's step is outer^-1 score in all coordinates at
    once, unless it changes a variance by a large factor: then the variance tends to 0, where its
    logarithm has no quadratic approximation.
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
    """information^-1 score, separately for mean and fixed and for growth.

    The information of the growth is sum_i P_i (x) P_i / 2, as in a linear model; it is exact for
    one variance or one per feature. For a full covariance it is replaced by a multiple of mean P
    (x) mean P with the same trace, and the step is a straight line between covariances instead of
    along growth, so that a direction without variance can rotate.
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
    """The point after the step, halved until its value reaches `least`; None if it never does."""
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
