"""Epsilon of composed events: the smallest of all bounds that are proven for them.

The bounds are closed forms, privacy loss distributions (`losses`, `composition`) and Renyi
divergences. The pairs of distributions and the divergences are dp-accounting's. An event without a
proof raises PrivacyError; nothing falls back silently to a weaker guarantee.
"""

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy import losses
from fedprior.privacy.composition import composed_epsilon
from fedprior.privacy.events import RELATIONS, Event, Relation

Spent = Sequence[tuple[Event, int]]  # events and the number of rounds of each

# Integer orders have a closed form; fractional ones take a hundred times as long.
_FEW_ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 256, 512)


def epsilon(spent: Spent, *, delta: float, relation: Relation = "add-remove") -> float:
    """Return the smallest proven epsilon at `delta` of all rounds in `spent`, per client.

    `add-remove`: a client is present or absent; `replace-one`: its data are replaced by others.
    The overflow probability of capped cohorts is subtracted from delta first. With delta = 0, all
    events must be randomized responses, whose epsilons add up.
    """
    check.choice("epsilon", "relation", relation, RELATIONS)
    for _, rounds in spent:
        check.count("epsilon", least=0, rounds=rounds)
    if delta == 0 and all(
        event.mechanism == "response" and not event.overflow for event, _ in spent
    ):
        return math.fsum(rounds * event.noise for event, rounds in spent)
    check_delta("epsilon", delta)
    spent = [(_as_everyone(event), rounds) for event, rounds in spent if rounds]
    left = delta - math.fsum(rounds * event.overflow for event, rounds in spent)
    if left <= 0:
        raise PrivacyError(
            "epsilon: delta must exceed the probability that a cohort exceeds its cap "
            f"({delta - left:g}), got {delta}. Raise the cap of the cohort."
        )
    if not spent:
        return 0.0
    with _quiet():
        bounds = list(_closed(spent, left, relation))
        kinds = {(event.mechanism, event.sampling) for event, _ in spent}
        if kinds == {("gaussian", "everyone")}:
            return bounds[0]  # exact; a discretized distribution could only be larger
        composed = [*filter(math.isfinite, _distribution(spent, left, relation))]
        bounds += composed
        # The Renyi bound of subsets of a fixed size takes seconds and is always larger.
        if not composed or all(event.sampling != "fixed" for event, _ in spent):
            bounds += _renyi(spent, left, relation, _FEW_ORDERS if bounds else None)
    if not bounds and len(spent) > 1:
        # Basic composition: every event has its own epsilon, at a share of delta.
        share = left / len(spent)
        whole = [(replace(event, overflow=0.0), rounds) for event, rounds in spent]
        bounds = [math.fsum(epsilon([one], delta=share, relation=relation) for one in whole)]
    if not bounds:
        names = {f"{event.mechanism} with {event.sampling} sampling" for event, _ in spent}
        raise PrivacyError(
            f"epsilon: events must have a proof under {relation}, got {', '.join(sorted(names))}. "
            "Sampling a fixed number of clients has one under replace-one, Poisson under both."
        )
    return float(min(bounds))


def renyi_epsilon(spent: Spent, *, delta: float) -> float:
    """Return epsilon by Renyi accounting alone, at a few integer orders: looser, much faster.

    For add-remove; infinite if there is no Renyi bound for the events.
    """
    check_delta("renyi_epsilon", delta)
    with _quiet():
        return min([*_renyi(spent, delta, "add-remove", _FEW_ORDERS), math.inf])


def epsilon_from_renyi(order: float, divergence: float, *, delta: float) -> float:
    """Return divergence + log((order-1)/order) - (log delta + log order)/(order - 1).

    Converts (order, divergence)-Renyi DP to (epsilon, delta)-DP (paper L1571, correct: ERRATA 53).
    """
    check.require(order > 1, "epsilon_from_renyi", "order", "above 1", order)
    check.nonnegative("epsilon_from_renyi", divergence=divergence)
    check_delta("epsilon_from_renyi", delta)
    shift = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    return max(0.0, divergence + shift)


def check_delta(owner: str, delta: Any) -> None:
    """Check that delta is in (0, 1); it never has a default."""
    check.positive(owner, delta=delta)
    check.require(delta < 1, owner, "delta", "below 1", delta)


def _as_everyone(event: Event) -> Event:
    """Treat Poisson sampling at rate 1 as no sampling, which has an exact bound."""
    unsampled = event.sampling == "poisson" and event.rate == 1
    return replace(event, sampling="everyone") if unsampled else event


def _closed(spent: Spent, delta: float, relation: Relation) -> Iterator[float]:
    """Exact bounds: unsampled Gaussians compose to one Gaussian; pure epsilons add up."""
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    kinds = {event.mechanism for event, _ in spent}
    if kinds == {"response"} or ("gaussian" not in kinds and not _displacing(spent, relation)):
        yield math.fsum(rounds * _pure(event, relation) for event, rounds in spent)
    if kinds == {"gaussian"} and not _displacing(spent, relation):
        # Computed as if everyone took part. This is also a bound for Poisson sampling, and for a
        # fixed size if the cohorts of two neighbors can be the same.
        sensitivity = _sensitivity(relation)
        ratio = math.sqrt(math.fsum(rounds / event.noise**2 for event, rounds in spent))
        yield float(get_epsilon_gaussian(1 / (sensitivity * ratio), delta))


def _pure(event: Event, relation: Relation) -> float:
    """The epsilon of a round without delta, which sampling does not increase."""
    return event.noise if event.mechanism == "response" else _sensitivity(relation) / event.noise


def _displacing(spent: Spent, relation: Relation) -> bool:
    """Whether an absent client would be replaced by another: fixed size under add-remove."""
    return relation == "add-remove" and any(event.sampling == "fixed" for event, _ in spent)


def _sensitivity(relation: Relation) -> int:
    """The change of a sum of messages bounded by 1 if one client changes."""
    return 2 if relation == "replace-one" else 1


def _distribution(spent: Spent, delta: float, relation: Relation) -> Iterator[float]:
    """The bound from composed privacy loss distributions, if every event has one."""
    single = [_unsampled_as_one(event, rounds) for event, rounds in spent]
    ways = [losses.directions(event, relation) for event, _ in single]
    known = [way for way in ways if way is not None]
    if len(known) < len(ways):
        return
    worst = 0.0
    for direction in max(known, key=len):
        parts = [
            (event, rounds, direction if direction in way else way[0])
            for (event, rounds), way in zip(single, known, strict=True)
        ]
        worst = max(worst, _directed(parts, delta, relation))
    yield worst


def _directed(parts: Sequence[tuple[Event, int, str]], delta: float, relation: Relation) -> float:
    """The bound in one direction."""

    def rounded(grid: float) -> list[tuple[losses.RoundLoss, int]]:
        return [(losses.rounded(event, relation, way, grid), count) for event, count, way in parts]

    known = [(losses.approximate(event, relation, way), count) for event, count, way in parts]
    return composed_epsilon(rounded, known, delta=delta)


def _unsampled_as_one(event: Event, rounds: int) -> tuple[Event, int]:
    """Gaussians without amplification compose to one Gaussian, exactly."""
    sampled = event.sampling == "poisson" or (event.sampling == "fixed" and event.amplified)
    if event.mechanism != "gaussian" or sampled:
        return event, rounds
    return replace(event, noise=event.noise / math.sqrt(rounds)), 1


def _renyi(
    spent: Spent, delta: float, relation: Relation, orders: Sequence[float] | None = None
) -> Iterator[float]:
    """The bound from Renyi divergences, if every event has one."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    if _displacing(spent, relation):
        return
    neighbors = (
        dp_accounting.NeighboringRelation.REPLACE_ONE
        if relation == "replace-one"
        else dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    accountant = RdpAccountant(orders, neighboring_relation=neighbors)
    for event, rounds in spent:
        # The library's Renyi code expects sigma / sensitivity under either relation.
        scale = event.noise / _sensitivity(relation)
        if event.mechanism == "gaussian":
            plain = dp_accounting.GaussianDpEvent(scale)
        elif event.mechanism == "laplace":
            plain = dp_accounting.LaplaceDpEvent(scale)
        else:
            return
        if event.sampling == "poisson":
            plain = dp_accounting.PoissonSampledDpEvent(event.rate, plain)
        elif event.sampling == "fixed" and event.amplified:
            plain = dp_accounting.SampledWithoutReplacementDpEvent(
                event.num_clients, event.size, plain
            )
        if not accountant.supports(plain):
            return
        accountant.compose(plain, rounds)
    yield float(accountant.get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's log of dropped orders; the bound is valid without them."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        logger.setLevel(before)
