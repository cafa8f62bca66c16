"""The noise, rounds or clients that a privacy budget allows."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import FINE, check_delta, epsilon, renyi_epsilon
from fedprior.privacy.events import Event, Relation

_TOLERANCE = 1e-4  # relative, of a noise multiplier
_QUIET = 100.0  # so much noise that accounting is quick
_MOST = 1e6  # no useful mechanism needs a larger noise multiplier
_MOST_ROUNDS = 1_000_000
_TOO_MUCH = 1e300  # epsilon if delta is exhausted; finite, for searches


def noise_multiplier(
    event: Event,
    *,
    target: float,
    delta: float,
    rounds: int,
    relation: Relation = "add-remove",
) -> float:
    """The smallest noise for `event`'s mechanism and sampling with epsilon at most `target`.

    A Renyi bound gives an upper bracket in milliseconds, loss distributions find the solution, and
    the result is verified with a ten times finer discretization and raised if it does not hold.
    """
    check.positive("noise_multiplier", target=target)
    check_delta("noise_multiplier", delta)
    check.count("noise_multiplier", rounds=rounds)

    def tight(noise: float) -> float:
        spent = [(replace(event, noise=noise), rounds)]
        return epsilon(spent, delta=delta, relation=relation)

    def loose(noise: float) -> float:
        plain = replace(event, noise=noise, overflow=0.0)
        return renyi_epsilon([(plain, rounds)], delta=delta, relation=shown)

    # There is no Renyi bound for Poisson sampling under replace-one. It needs about twice the noise
    # of add-remove; this is only a starting point for the search below.
    guessed = event.sampling == "poisson" and relation == "replace-one"
    shown: Relation = "add-remove" if guessed else relation
    tight(_QUIET)  # raises before the search if there is no proof
    start = _least(loose, target, low=0.5, high=1.0, tolerance=0.01) or 1.0
    high = 2 * start if guessed else start
    least = _least(tight, target, low=0.8 * high, high=high)
    if least is None:
        raise PrivacyError(
            f"noise_multiplier: target must be within reach, got epsilon {target:g} at delta "
            f"{delta:g} for {rounds} rounds. Raise epsilon or delta, or run fewer rounds."
        )
    while True:  # ends: epsilon falls with the noise
        spent = [(replace(event, noise=least), rounds)]
        if epsilon(spent, delta=delta, relation=relation, interval=FINE) <= target:
            return least
        least *= 1 + _TOLERANCE


def rounds_affordable(
    event: Event, *, target: float, delta: float, relation: Relation = "add-remove"
) -> int:
    """The largest number of rounds of `event`, up to a million, within `target`; may be 0."""
    check.positive("rounds_affordable", target=target)

    @cache
    def cost(rounds: int) -> float:
        if rounds * event.overflow >= delta:
            return _TOO_MUCH
        return epsilon([(event, rounds)], delta=delta, relation=relation)

    if cost(1) > target:
        return 0
    low, high = 1, 2
    while cost(high) <= target:
        if high == _MOST_ROUNDS:
            return high
        # Except for the first few rounds, epsilon grows at most linearly.
        step = min(max(2.0, target / max(cost(high), 1e-12)), 64.0)
        low, high = high, min(math.ceil(step * high), _MOST_ROUNDS)
    most = round(_crossing(lambda at: cost(round(at)), target, low, high, 0.25 / high))
    while cost(most) > target:
        most -= 1
    while cost(most + 1) <= target:
        most += 1
    return most


def clients_needed(
    *,
    noise: float,
    cohort_size: float,
    target: float,
    delta: float,
    rounds: int,
    relation: Relation = "add-remove",
) -> int:
    """The smallest number of clients for which Poisson cohorts of mean `cohort_size` meet `target`.

    With more clients and the same cohort size, each client is sampled less often.
    """
    check.positive("clients_needed", noise=noise, cohort_size=cohort_size, target=target)

    def spent(clients: float) -> float:
        rate = min(1.0, cohort_size / clients)
        event = Event(mechanism="gaussian", noise=noise, sampling="poisson", rate=rate)
        return epsilon([(event, rounds)], delta=delta, relation=relation)

    least = _least(spent, target, low=cohort_size, high=2 * cohort_size, most=1e12)
    if least is None:
        raise PrivacyError(
            f"clients_needed: target must be within reach, got epsilon {target:g} with noise "
            f"multiplier {noise:g}. Raise the noise."
        )
    return math.ceil(least)


def noise_to_signal(*, noise: float, num_parameters: int, rate: float, num_clients: int) -> float:
    """Z sqrt(d) / (q m): the norm of the noise on the mean upload, relative to the clip.

    Above 1 the mean upload is mostly noise, whatever the clients have learned (ERRATA 3.4).
    """
    check.positive("noise_to_signal", noise=noise)
    check.count("noise_to_signal", num_parameters=num_parameters, num_clients=num_clients)
    check.fraction("noise_to_signal", rate=rate)
    return noise * math.sqrt(num_parameters) / (rate * num_clients)


def _least(
    spent: Callable[[float], float],
    target: float,
    *,
    low: float,
    high: float,
    most: float = _MOST,
    tolerance: float = _TOLERANCE,
) -> float | None:
    """The smallest value with spent(value) <= target for decreasing `spent`; None above `most`.

    The result has relative accuracy `tolerance` and errs on the safe side.
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
    """The point between low and high where `spent` equals `target`, to relative `tolerance`.

    On logarithmic axes `spent` is almost linear, so a few evaluations suffice.
    """
    from scipy.optimize import brentq

    crossing = brentq(
        lambda at: math.log(max(spent(math.exp(at)), 1e-12) / target),
        math.log(low),
        math.log(high),
        xtol=tolerance,
    )
    return math.exp(crossing)
