"""The evidence as a problem of maximization, and the steps toward its maximum."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import linalg

from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, step_gamma
from fedprior.regression.logistic.parts import ClassBlock
from fedprior.regression.logistic.posterior import Solve
from fedprior.regression.logistic.totals import ScoreTotals, survey

GROUPS_A_NUMBER = 20  # per parameter: then the scores' outer product is the information to 10%
_FEWEST_A_NUMBER = 4  # from here on, the scores' outer product has a part in the information
_SHORT = 1.0  # growth of a step near the maximum; `step_gamma` would cut it from 1.5 on


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


def steps(
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
    score, information, outer = problem.penalized(here.gamma, here.totals)
    inside = not any(problem.shape.at_bounds(here.gamma.covariance))
    kind, groups = problem.shape.kind, here.totals.num_groups
    most = GROUPS_A_NUMBER if kind == "full" else _FEWEST_A_NUMBER
    if near and inside and groups >= most * len(score):
        if kind != "full":
            share = groups / (groups + _FEWEST_A_NUMBER * len(score))
            outer = share * outer + (1 - share) * _separate(problem, information, here.totals)
        step = np.linalg.solve(outer, score)
        growth = problem.shape.growth(step[len(here.totals.information) :])
        if np.abs(np.linalg.eigvalsh(growth)).max() < _SHORT:
            yield _along(problem, here, step)
    yield far_step(problem, here)


def _separate(problem: EvidenceProblem, information: np.ndarray, totals: ScoreTotals) -> np.ndarray:
    """The information of `far_step` for one variance or one per feature, as one matrix."""
    growth = totals.square if problem.shape.kind == "diagonal" else totals.square.sum()[None, None]
    return linalg.block_diag(information, growth / 2)


def far_step(problem: EvidenceProblem, here: AscentPoint) -> Step:
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


def _growth(shape: CovarianceShape, gamma: LogisticGamma, totals: ScoreTotals) -> np.ndarray:
    if shape.kind == "isotropic":
        return np.array([np.trace(totals.moment) / totals.square.sum()])
    toward = np.diag(totals.moment)
    low, high = shape.features_at_bounds(gamma.covariance)
    free = ~((low & (toward < 0)) | (high & (toward > 0)))  # the others' steps would not be taken
    growth = np.zeros_like(toward)
    growth[free] = np.linalg.solve(totals.square[np.ix_(free, free)], toward[free])
    return growth
