"""What a request costs and how much of it a budget allows, given the lines of a ledger."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event
from fedprior.privacy.guarantee import Noise
from fedprior.privacy.records import Record, merged, reservations, spent_rounds
from fedprior.privacy.terms import Terms

Spent = list[tuple[Event, int]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Rounds of one source under one event; `count` is as in `Ledger.reserve`."""

    event: Event
    first: int
    rounds: int
    source: str
    noise: Noise
    draws: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        check.count("Ledger", least=0, first=self.first, rounds=self.rounds)
        if self.count is not None:
            check.count("Ledger", count=self.count)


@dataclass(frozen=True)
class Charge:
    """Rounds to be recorded, how often their event is composed, and epsilon after them."""

    first: int
    rounds: int
    count: int
    epsilon: float


def charges(
    records: list[Record], request: Request, terms: Terms, path: Path
) -> tuple[int, list[Charge]]:
    """Return how many of the rounds may run, and the charges to be recorded for them."""
    spent, found = spent_rounds(records), list[Charge]()
    for first, rounds in _unknown(records, request):
        part = replace(request, first=first, rounds=rounds)
        _check_draws(records, part, path)
        charge = _charge(spent, part, terms)
        if charge is None:
            return first - request.first, found
        found.append(charge)
        spent.append((request.event, charge.count))
        if charge.rounds < rounds:
            return first + charge.rounds - request.first, found
    return request.rounds, found


def total(records: list[Record], terms: Terms) -> float:
    """Recompute epsilon of all reserved rounds from their events."""
    return epsilon(merged(spent_rounds(records)), delta=terms.delta, relation=terms.relation)


def _unknown(records: list[Record], request: Request) -> Iterator[tuple[int, int]]:
    """Stretches (first, number) of rounds that are not on record as the same release."""
    first, end = request.first, request.first + request.rounds
    known = _known(records, request)
    if request.count is not None:  # one release, of which a part cannot be charged by itself
        if not known.issuperset(range(first, end)):
            yield first, end - first
        return
    while first < end:
        if first in known:
            first += 1
            continue
        stop = next((number for number in range(first, end) if number in known), end)
        yield first, stop - first
        first = stop


def _known(records: list[Record], request: Request) -> set[int]:
    """The rounds on record that a repetition would release again to the bit."""
    if request.noise != "simulated":
        return set()
    event = request.event.to_json()
    return {
        number
        for record in reservations(records)
        if record["source"] == request.source
        and record["event"] == event
        and record["noise"] == "simulated"
        for number in range(
            max(record["first"], request.first),
            min(record["first"] + record["rounds"], request.first + request.rounds),
        )
    }


def _check_draws(records: list[Record], request: Request, path: Path) -> None:
    """Refuse a second release with the same noise: their difference may contain none."""
    if request.draws is None:
        return
    for record in reservations(records):
        begin, end = record["first"], record["first"] + record["rounds"]
        overlap = begin < request.first + request.rounds and request.first < end
        if record["draws"] == request.draws and overlap:
            raise PrivacyError(
                f"ledger: the simulated noise of round {max(request.first, begin)} was already "
                f"used by another run in {path}. Choose another seed or identity. To repeat "
                "that run at no cost, leave it unchanged: the same options, data, device and "
                "version of JAX, and for a training its folder (--resume)."
            )


def _charge(spent: Spent, request: Request, terms: Terms) -> Charge | None:
    """The most that the budget allows, or None."""
    wanted = request.rounds if request.count is None else request.count
    count, after = _affordable(spent, request.event, wanted, terms)
    if request.count is not None and count < wanted:
        return None  # together or not at all
    if not count:
        return None
    rounds = count if request.count is None else request.rounds
    return Charge(request.first, rounds, count, after)


def _affordable(spent: Spent, event: Event, most: int, terms: Terms) -> tuple[int, float]:
    """How often the budget allows the event, at most `most` times, and epsilon after that."""

    def after(count: int) -> float:
        whole = merged([*spent, (event, count)])
        lost = math.fsum(event.overflow * rounds for event, rounds in whole)
        if lost and lost >= terms.delta:
            return math.inf  # the probability of a cohort above its cap has used up delta
        return epsilon(whole, delta=terms.delta, relation=terms.relation)

    budget = math.inf if terms.budget is None else terms.budget
    cost = after(most)
    if math.isfinite(cost) and cost <= budget:
        return most, cost
    low, high, best = 0, most, 0.0
    while high - low > 1:
        middle = (low + high) // 2
        cost = after(middle)
        if math.isfinite(cost) and cost <= budget:
            low, best = middle, cost
        else:
            high = middle
    return low, best
