"""EM, accelerated by extrapolation (SQUAREM, Varadhan and Roland 2008)."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

Parameters = TypeVar("Parameters")


class Climb(NamedTuple, Generic[Parameters]):
    """Where EM ended; `history` is the log-likelihood before each round.

    `level` is the log-likelihood that the last round reached before its last step.
    """

    parameters: Parameters
    level: float
    history: tuple[float, ...]
    converged: bool


def accelerated_em(
    step: Callable[[Parameters], tuple[Parameters, float]],
    ahead: Callable[[Parameters, Parameters, Parameters], Parameters | None],
    start: Parameters,
    *,
    most_rounds: int,
    tolerance: float,
) -> Climb[Parameters]:
    """EM from `start` until a step changes the log-likelihood by less than `tolerance`.

    `step` returns the next parameters and the log-likelihood of those it was given; `ahead`
    extrapolates from three successive points, or returns None. A round is two EM steps and a third
    from the extrapolated point, kept only where that point is already better. So the likelihood of
    an exact EM never falls, and overlapping components take tens of rounds instead of thousands.
    """
    parameters, level = start, -np.inf
    history: list[float] = []
    converged = False
    while not converged and len(history) < most_rounds:
        first, before = step(parameters)
        second, level = step(first)
        history.append(before)
        converged = abs(level - before) < tolerance
        guess = None if converged else ahead(parameters, first, second)
        parameters = second
        if guess is not None:
            third, reached = step(guess)
            parameters = third if reached > level else second
    return Climb(parameters, level, tuple(history), converged)


def extrapolated(start: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """x0 + 2 a r + a^2 v with r = x1 - x0, v = x2 - 2 x1 + x0, a = |r| / |v|, at least 1.

    At a = 1, and where the path is straight, this is x2 itself.
    """
    change = first - start
    bend = second - first - change
    length = float(np.linalg.norm(bend))
    if length == 0:
        return second
    reach = max(float(np.linalg.norm(change)) / length, 1.0)
    return start + 2 * reach * change + reach**2 * bend
