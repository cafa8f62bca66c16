"""Maximization of the evidence over the population: Newton's method with scores, or EM."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fedprior.core import random
from fedprior.regression.logistic.gamma import LogisticGamma
from fedprior.regression.logistic.steps import (
    GROUPS_A_NUMBER,
    AscentPoint,
    EvidenceProblem,
    Step,
    em_step,
    far_step,
    promise,
    steps,
)
from fedprior.regression.logistic.totals import ScoreTotals

_HALVINGS = 12
_NEAR = 0.02  # gain per group of the last step below which the scores' outer product is used
_SAMPLE = 2000  # groups at least, from which a start for all of them is learned
_SAMPLE_TOLERANCE = 1e-4  # gain per group, below the sampling error of such a start
_PATIENCE = 10  # rounds
_LONGEST_STRIDE = 10.0  # steps at once, where they shrink by a steady factor


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
    stride = 1.0
    while len(history) <= max_rounds and not converged:
        near = abs(gain) < _NEAR * here.totals.num_groups
        least = best.value - problem.slack * here.totals.num_groups
        there = None
        for step in steps(problem, here, method=method, near=near):
            if stride > 1:
                there = _ahead(problem, here, step, stride, gain)
            if there is None:
                there = _kept(problem, here, step, least)
            if there is not None:
                break
        else:
            converged = short = True
            break
        before, gain = gain, there.value - here.value
        stride = _stride(before, gain) if stride == 1 else 1.0
        converged = min(abs(gain), promise(problem, here, there.gamma)) < enough
        here = there
        best = here if here.value >= best.value else best
        history.append(here.value)
        if not converged and _stalls(history, problem.slack * here.totals.num_groups):
            converged = short = True
    return Ascent(best.gamma, best.totals, best.memory, tuple(history), converged, short)


def begin(problem: EvidenceProblem, start: LogisticGamma) -> LogisticGamma:
    """A start learned from a sample of the groups, where they are many; else `start`."""
    groups = sum(len(part.groups) for part in problem.parts)
    numbers = len(problem.ridge) + problem.shape.num_scales
    wanted = max(_SAMPLE, GROUPS_A_NUMBER * numbers)
    if groups < 4 * wanted:
        return start
    draws = random.stream(0, "split")
    taken = (part.take(draws.random(len(part.groups)) < wanted / groups) for part in problem.parts)
    some = replace(problem, parts=[part for part in taken if len(part.groups)])
    sampled = ascend(
        some, start, method="default", max_rounds=_PATIENCE * 2, tolerance=_SAMPLE_TOLERANCE
    )
    return sampled.gamma


def settle(
    problem: EvidenceProblem, start: LogisticGamma, *, max_rounds: int, tolerance: float
) -> Ascent:
    """Find a zero of the score, for posteriors whose score is not the slope of their evidence.

    Newton's steps as long as each halves the predicted gain, else EM steps, which are slow where a
    variance tends to 0 but always converge.
    """
    here = _place(problem, start)
    history, enough = [here.value], tolerance * here.totals.num_groups
    step = far_step(problem, here)
    left = promise(problem, here, step(1.0))
    while len(history) <= max_rounds and left >= enough:
        there = _place(problem, step(1.0), here.memory)
        onward = far_step(problem, there)
        after = promise(problem, there, onward(1.0))
        if after > left / 2:
            there = _place(problem, em_step(problem, here)(1.0), here.memory)
            onward = far_step(problem, there)
            after = promise(problem, there, onward(1.0))
        here, step, left = there, onward, after
        history.append(here.value)
    done = left < enough
    return Ascent(here.gamma, here.totals, here.memory, tuple(history), done, False)


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


def _stride(before: float, gain: float) -> float:
    """How many steps to take at once, where gains shrink by a steady factor pace^2.

    Each step is then pace times the one before, so that 1 / (1 - pace) steps lead to the end. This
    happens where mean and covariance pull each other, because their steps are computed separately.
    """
    if not 0 < gain < before < np.inf:
        return 1.0
    return float(min(1 / (1 - np.sqrt(gain / before)), _LONGEST_STRIDE))


def _ahead(
    problem: EvidenceProblem, here: AscentPoint, step: Step, stride: float, gain: float
) -> AscentPoint | None:
    """The point `stride` steps ahead if it gains more than a single step is expected to."""
    there = _place(problem, step(stride), here.memory)
    expected = gain * (1 - 1 / stride) ** 2
    return there if there.value > here.value + expected else None


def _stalls(history: list[float], slack: float) -> bool:
    before, since = history[:-_PATIENCE], history[-_PATIENCE:]
    return bool(before) and max(since) - max(before) < slack / 100
