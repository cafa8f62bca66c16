"""The noise, the rounds or the number of clients that a privacy budget affords."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import check_delta, epsilon, renyi_epsilon
from fedprior.privacy.composition import LOOSENESS
from fedprior.privacy.events import Event, Relation
from fedprior.privacy.guarantee import shown

_TOLERANCE = 1e-4  # relative, of a noise multiplier
# Epsilon grows with the rounds except for its looseness, which depends on their number. A plan that
# is below the target by more than that also holds at every round before the last.
_TARGET = 1 - 3 * LOOSENESS
_DIGITS = 5  # significant ones, of a noise multiplier
_QUIET = 100.0  # enough noise for the accounting to be fast
_MOST = 1e6  # no useful mechanism needs a larger noise multiplier
_MOST_ROUNDS = 1_000_000
_TOO_MUCH = 1e300  # epsilon if delta is used up; finite, for root finding


def noise_multiplier(
    event: Event,
    *,
    target: float,
    delta: float,
    rounds: int,
    relation: Relation = "add-remove",
) -> float:
    """Return the smallest noise multiplier with epsilon(`rounds` rounds of `event`) <= target.

    The noise of `event` itself is ignored. The result has at most five significant digits, so that
    it can be printed as it is: whoever types it in again gets an epsilon within the target.
    """
    check.positive("noise_multiplier", target=target)
    check_delta("noise_multiplier", delta)
    check.count("noise_multiplier", rounds=rounds)

    def tight(noise: float) -> float:
        spent = [(replace(event, noise=noise), rounds)]
        return epsilon(spent, delta=delta, relation=relation)

    def guess(noise: float) -> float:
        plain = replace(event, noise=noise, overflow=0.0)
        if event.sampling == "fixed":
            rate = event.size / event.num_clients if event.amplified else 1.0
            plain = replace(plain, sampling="poisson", rate=rate)
        return renyi_epsilon([(plain, rounds)], delta=delta)

    tight(_QUIET)  # raises for events without a proof, before any search
    # The Renyi bound is fast. Replace-one takes about twice the noise of add-remove, and the search
    # does not rely on this guess.
    start = _least(guess, target, low=0.5, high=1.0, tolerance=0.01) or 1.0
    high = 2 * start if relation == "replace-one" else start
    aim = _TARGET * target
    multiplier = _least(tight, aim, low=0.8 * high, high=high)
    if multiplier is None:
        raise PrivacyError(
            f"noise_multiplier: epsilon {target:g} at delta {delta:g} cannot be reached in "
            f"{rounds} rounds. Raise epsilon or delta, or run fewer rounds."
        )
    while True:  # terminates, because epsilon decreases with the noise
        multiplier = float(shown(multiplier, digits=_DIGITS))
        if tight(multiplier) <= aim:
            return multiplier
        multiplier *= 1 + _TOLERANCE


def rounds_affordable(
    event: Event, *, target: float, delta: float, relation: Relation = "add-remove"
) -> int:
    """Return the largest number of rounds of `event`, up to a million, within `target`, or 0."""
    check.positive("rounds_affordable", target=target)

    @cache
    def cost(rounds: int) -> float:
        if rounds * event.overflow >= delta:
            return _TOO_MUCH
        return epsilon([(event, rounds)], delta=delta, relation=relation)

    if cost(1) > target:
        return 0
    aim = max(_TARGET * target, cost(1))
    low, high = 1, 2
    while cost(high) <= aim:
        if high == _MOST_ROUNDS:
            return high
        # After the first few rounds, epsilon grows at most linearly: extrapolate to the target.
        step = min(max(2.0, aim / max(cost(high), 1e-12)), 64.0)
        low, high = high, min(math.ceil(step * high), _MOST_ROUNDS)
    rounds = round(_crossing(lambda at: cost(round(at)), aim, low, high, 0.25 / high))
    while cost(rounds) > aim:
        rounds -= 1
    while cost(rounds + 1) <= aim:
        rounds += 1
    return rounds


def clients_needed(
    *,
    noise: float,
    cohort_size: float,
    target: float,
    delta: float,
    rounds: int,
    relation: Relation = "add-remove",
) -> int:
    """Return the smallest number of clients for which cohorts of `cohort_size` stay within target.

    Cohorts are Poisson samples of `cohort_size` clients on average: with more clients, each one is
    sampled less often.
    """
    check.positive("clients_needed", noise=noise, cohort_size=cohort_size, target=target)

    def spent(clients: float) -> float:
        rate = min(1.0, cohort_size / clients)
        event = Event(mechanism="gaussian", noise=noise, sampling="poisson", rate=rate)
        return epsilon([(event, rounds)], delta=delta, relation=relation)

    clients = _least(spent, target, low=cohort_size, high=2 * cohort_size, most=1e12)
    if clients is None:
        raise PrivacyError(
            f"clients_needed: epsilon {target:g} cannot be reached with noise multiplier "
            f"{noise:g}. Raise the noise."
        )
    fewest = math.ceil(clients)
    while spent(fewest) > target:
        fewest = math.ceil(fewest * (1 + _TOLERANCE))
    return fewest


def noise_to_signal(
    *, noise: float, num_parameters: int, rate: float, num_clients: int, rounds: int = 1
) -> float:
    """Return z sqrt(d) / (q m sqrt(T)): the noise in a sum of T mean uploads, divided by T clips.

    T clips are the longest that the sum can be. Above 1, it is mostly noise, regardless of what
    clients learn (ERRATA 3.4 has one round); below 0.1, hardly anything of a gain is lost.
    """
    owner = "noise_to_signal"
    check.positive(owner, noise=noise)
    check.count(owner, num_parameters=num_parameters, num_clients=num_clients, rounds=rounds)
    check.fraction(owner, rate=rate)
    return noise * math.sqrt(num_parameters / rounds) / (rate * num_clients)


def _least(
    spent: Callable[[float], float],
    target: float,
    *,
    low: float,
    high: float,
    most: float = _MOST,
    tolerance: float = _TOLERANCE,
) -> float | None:
    """The smallest value with spent(value) <= target, for decreasing `spent`; None above `most`.

    Accurate to a relative `tolerance`, and on the safe side except for rounding in the search.
    """
    step = 2.0
    while spent(high) > target:
        if high >= most:
            return None
        low, high, step = high, min(step * high, most), 2 * step
    while spent(low) <= target:
        low, high = 0.8 * low, low
        if low < 1e-6:
            return high
    crossing = _crossing(spent, target, low, high, tolerance / 2)
    return min(high, crossing * math.exp(tolerance / 2))


def _crossing(
    spent: Callable[[float], float], target: float, low: float, high: float, tolerance: float
) -> float:
    """The point between low and high where `spent` crosses `target`, to a relative `tolerance`.

    `spent` is almost linear on logarithmic axes, so a few evaluations suffice.
    """
    from scipy.optimize import brentq

    logarithm = brentq(
        lambda at: math.log(max(spent(math.exp(at)), 1e-12) / target),
        math.log(low),
        math.log(high),
        xtol=tolerance,
    )
    return math.exp(logarithm)
