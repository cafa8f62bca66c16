"""The population of largest evidence: Newton's method with the groups' scores, or plain EM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedprior.regression.logistic.gamma import Gamma, Shape, moved
from fedprior.regression.logistic.parts import Part
from fedprior.regression.logistic.posterior import Solve
from fedprior.regression.logistic.totals import Totals, survey

_HALVINGS = 12
_GROUPS_A_NUMBER = 20  # from so many on the scores' outer product is their information to 10%
_NEAR = 0.02  # gain a group of the last step, below which that information is trusted


class Found(NamedTuple):
    """Where the ascent ended, the totals there, and the evidence after each round."""

    gamma: Gamma
    totals: Totals
    memory: list[Any]
    history: tuple[float, ...]
    converged: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Maximize evidence(gamma) - sum ridge (mean, fixed)^2 / 2, `ridge` (D + P,).

    `slack` is the fall of the evidence a group that is still taken for none: more than rounding
    where the totals' score is not quite the slope of the evidence that `solve` gives.
    """

    parts: Sequence[Part]
    solve: Solve
    shape: Shape
    ridge: np.ndarray
    slack: float

    def at(
        self, gamma: Gamma, memory: Sequence[Any] | None = None, *, sweeps: int = 3
    ) -> tuple[float, Totals, list[Any]]:
        """The value, the totals, and what the parts remember."""
        known = [None] * len(self.parts) if memory is None else memory
        totals, kept = survey(self.parts, gamma, self.shape, self.solve, known, sweeps=sweeps)
        both = np.concatenate([gamma.mean, gamma.fixed])
        return totals.evidence - 0.5 * float(self.ridge @ both**2), totals, kept

    def penalized(self, gamma: Gamma, totals: Totals) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
    problem: Problem,
    start: Gamma,
    *,
    method: Literal["default", "em"],
    max_rounds: int,
    tolerance: float,
) -> Found:
    """Steps from `start` until one promises or gains less than `tolerance` of evidence a group.

    A step that lowers the evidence is halved. Both methods end at the same point.
    """
    gamma, gain, converged = start, np.inf, False
    value, totals, memory = problem.at(gamma)
    history = [value]
    for _ in range(max_rounds):
        if method == "em":
            step = em_step(problem, gamma, totals)
        else:
            near = abs(gain) < _NEAR * totals.num_groups
            step = newton_step(problem, gamma, totals, near=near)
        for _ in range(_HALVINGS):
            trial = moved(gamma, problem.shape, step)
            reached, found, kept = problem.at(trial, memory)
            if reached >= value - problem.slack * totals.num_groups:
                break
            step = step / 2
        promise = _promise(problem, gamma, totals, trial, step)
        gain, value = reached - value, reached
        gamma, totals, memory = trial, found, kept
        history.append(value)
        if min(abs(gain), promise) < tolerance * totals.num_groups:
            converged = True
            break
    return Found(gamma, totals, memory, tuple(history), converged)


def newton_step(problem: Problem, gamma: Gamma, totals: Totals, *, near: bool) -> np.ndarray:
    """information^-1 score: in all coordinates at once near the maximum, with groups enough.

    Elsewhere by mean and fixed and by growth apart. The growth's information is then sum_i P_i (x)
    P_i / 2, as in a linear model: exactly that where growth is one number or one a feature; where
    it is full, a multiple of mean P (x) mean P with the same trace.
    """
    score, information, outer = problem.penalized(gamma, totals)
    inside = not any(problem.shape.at_bounds(gamma.covariance))
    if near and inside and totals.num_groups >= _GROUPS_A_NUMBER * len(score):
        return np.linalg.solve(outer, score)
    step = np.linalg.solve(information, score[: len(information)])
    return np.concatenate([step, _growth(problem.shape, totals)])


def em_step(problem: Problem, gamma: Gamma, totals: Totals) -> np.ndarray:
    """EM: mean <- mean of E theta_i, covariance <- mean of E (theta_i - m)(theta_i - m)'.

    With fixed coefficients, mean and fixed take Newton's step on the evidence instead.
    """
    score, information, _ = problem.penalized(gamma, totals)
    both, width = len(information), totals.width
    step = score[:width] / totals.num_groups
    if both > width or problem.ridge.any():
        step = np.linalg.solve(information, score[:both])
    second = totals.moment / totals.num_groups + np.eye(width)
    middle = totals.score[:width] / totals.num_groups
    return np.concatenate([step, problem.shape.logarithm(second - np.outer(middle, middle))])


def _promise(
    problem: Problem, gamma: Gamma, totals: Totals, trial: Gamma, step: np.ndarray
) -> float:
    """Half of score times step, what a Newton step gains; a covariance on its bound gains none."""
    score = problem.penalized(gamma, totals)[0]
    both = len(totals.information)
    promise = float(score[:both] @ step[:both])
    if not np.allclose(gamma.covariance, trial.covariance, rtol=1e-6, atol=0.0):
        promise += float(score[both:] @ step[both:])
    return abs(promise) / 2


def _growth(shape: Shape, totals: Totals) -> np.ndarray:
    if shape.kind == "isotropic":
        return np.array([np.trace(totals.moment) / totals.square.sum()])
    if shape.kind == "diagonal":
        return np.linalg.solve(totals.square, np.diag(totals.moment))
    room = totals.information[: totals.width, : totals.width] / totals.num_groups
    excess = totals.square.sum() / totals.num_groups / (room**2).sum()
    half = np.linalg.solve(room, totals.moment / totals.num_groups)
    return np.linalg.solve(room, half.T)[np.tril_indices(totals.width)] / excess
