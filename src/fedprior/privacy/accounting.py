"""Epsilon of composed events, from privacy loss distributions if available, else Renyi bounds.

All guarantees come from dp-accounting; this module selects the tightest and states the relation.
It never falls back silently to a weaker guarantee: an event without a proof raises PrivacyError.
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
from fedprior.privacy.events import RELATIONS, Event, Relation

Spent = Sequence[tuple[Event, int]]  # events and the number of rounds of each

# Privacy losses are rounded up to multiples of the interval: a smaller one is tighter and slower.
# The interval is widened if the losses of one round span more than _WIDE_ROUND, or those of all
# rounds more than _WIDE, which happens with little noise: the time is proportional to the number
# of multiples (about 25 us each for one round). Epsilon is then in the tens or more.
INTERVAL = 1e-3
FINE = 1e-4
_WIDE_ROUND = 12.0
_WIDE = 500.0
# No distribution is computed if the maximal loss of one round, or the mean loss of all, is larger:
# nothing is hidden then, whether epsilon is this or several times as much.
_HOPELESS = 1e5
_TAIL = 10.0  # standard deviations; a normal exceeds them with probability 1e-23
# Integer orders have a closed form; fractional ones take a hundred times as long.
_FEW_ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 256, 512)


def epsilon(
    spent: Spent, *, delta: float, relation: Relation = "add-remove", interval: float = INTERVAL
) -> float:
    """Return the smallest proven epsilon at `delta` of all rounds in `spent`, per client.

    `add-remove`: a client is present or absent; `replace-one`: its data are replaced by others.
    The overflow probability of capped cohorts is subtracted from delta first. With delta = 0, all
    events must be randomized responses, whose epsilons add up.
    """
    check.choice("epsilon", "relation", relation, RELATIONS)
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
        bounds += _distribution(spent, left, relation, interval)
        if not bounds or any(event.sampling == "fixed" for event, _ in spent):
            bounds += _renyi(spent, left, relation)
    if not bounds:
        raise PrivacyError(
            f"epsilon: events must have a proof under {relation}, got "
            f"{', '.join(sorted({_name(event) for event, _ in spent}))}. "
            "Sampling a fixed number of clients has one under replace-one, Poisson under both."
        )
    return float(min(bounds))


def renyi_epsilon(spent: Spent, *, delta: float, relation: Relation = "add-remove") -> float:
    """Return epsilon by Renyi accounting alone, at a few integer orders: looser, much faster.

    Infinite if there is no Renyi bound for the events.
    """
    check_delta("renyi_epsilon", delta)
    with _quiet():
        return min([*_renyi(spent, delta, relation, _FEW_ORDERS), math.inf])


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


def _name(event: Event) -> str:
    return f"{event.mechanism} with {event.sampling} sampling"


def _closed(spent: Spent, delta: float, relation: Relation) -> Iterator[float]:
    """Exact bounds: unsampled Gaussians compose to one Gaussian; pure epsilons add up."""
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    kinds = {event.mechanism for event, _ in spent}
    if kinds == {"response"}:
        yield math.fsum(rounds * event.noise for event, rounds in spent)
    if kinds == {"gaussian"} and not _displacing(spent, relation):
        # Computed as if everyone took part. This is also a bound for Poisson sampling, and for a
        # fixed size if the cohorts of two neighbors can be the same.
        sensitivity = _sensitivity(relation)
        ratio = math.sqrt(math.fsum(rounds / event.noise**2 for event, rounds in spent))
        yield float(get_epsilon_gaussian(1 / (sensitivity * ratio), delta))


def _displacing(spent: Spent, relation: Relation) -> bool:
    """Whether an absent client would be replaced by another: fixed size under add-remove."""
    return relation == "add-remove" and any(event.sampling == "fixed" for event, _ in spent)


def _sensitivity(relation: Relation) -> int:
    """The change of a sum of messages bounded by 1 if one client changes."""
    return 2 if relation == "replace-one" else 1


def _distribution(
    spent: Spent, delta: float, relation: Relation, interval: float
) -> Iterator[float]:
    """The bound from composed privacy loss distributions, if every event has one."""
    average = math.fsum(rounds * _average(event) for event, rounds in spent)
    if max(average, *(_reach(event, relation) for event, _ in spent)) > _HOPELESS:
        return
    from dp_accounting.pld import privacy_loss_distribution as distributions

    interval *= _coarser(spent, relation)
    parts = [_loss(event, rounds, relation, interval, distributions) for event, rounds in spent]
    if any(part is None for part in parts):
        return
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    yield float(total.get_epsilon_for_delta(delta))


def _reach(event: Event, relation: Relation) -> float:
    """The largest loss of one round, except for a negligible tail."""
    if event.mechanism == "response":
        return event.noise
    noise = event.noise / _sensitivity(relation)
    return 1 / (2 * noise**2) + _TAIL / noise if event.mechanism == "gaussian" else 1 / noise


def _average(event: Event) -> float:
    """A lower bound on the mean loss of one round of sampled Gaussians.

    P = (1 - q) Q + q N is at least either part, so KL(P, Q) >= q (KL(N, Q) + log q) + (1 - q)
    log(1 - q).
    """
    if event.mechanism != "gaussian":
        return 0.0
    rate = event.rate
    absent = (1 - rate) * math.log1p(-rate) if rate < 1 else 0.0
    return rate * (1 / (2 * event.noise**2) + math.log(rate)) + absent


def _coarser(spent: Spent, relation: Relation) -> float:
    """The factor, at least 1, by which the interval is widened for wide distributions.

    A round in which a client takes part costs it about 1/(2 z^2) + log q +- 1/z; the number of
    such rounds is binomial.
    """
    widest = max(_reach(event, relation) for event, _ in spent)
    variance = 0.0
    for event, rounds in spent:
        noise, rate = event.noise / _sensitivity(relation), event.rate
        typical = event.noise if event.mechanism == "response" else 1 / noise
        if event.mechanism == "gaussian":
            typical += max(0.0, 1 / (2 * noise**2) + math.log(rate))
        variance += rounds * rate * ((1 - rate) * typical**2 + min(typical, 1 / noise) ** 2)
    return max(1.0, widest / _WIDE_ROUND, (widest + _TAIL * math.sqrt(variance)) / _WIDE)


def _loss(
    event: Event, rounds: int, relation: Relation, interval: float, distributions: Any
) -> Any:
    """The loss distribution of `rounds` rounds, or None if the library has none."""
    from dp_accounting import NeighboringRelation

    if event.sampling == "fixed":
        return None
    if event.mechanism == "gaussian":
        neighbors = (
            NeighboringRelation.REPLACE_ONE
            if relation == "replace-one"
            else NeighboringRelation.ADD_OR_REMOVE_ONE
        )
        scale = event.noise
        if event.sampling == "everyone":
            scale, rounds = scale / math.sqrt(rounds), 1
        one = distributions.from_gaussian_mechanism(
            standard_deviation=scale,
            value_discretization_interval=interval,
            sampling_prob=event.rate,
            neighboring_relation=neighbors,
        )
    elif event.mechanism == "laplace":
        if relation == "replace-one":
            if event.sampling != "everyone":
                return None
            scale = event.noise / 2  # two messages bounded by 1 differ by at most 2
        else:
            scale = event.noise
        one = distributions.from_laplace_mechanism(
            parameter=scale, value_discretization_interval=interval, sampling_prob=event.rate
        )
    else:
        if event.sampling != "everyone":
            return None  # the sender of a single report is known, so there is no amplification
        # Two outputs with ratio e^epsilon dominate every pure epsilon-DP mechanism.
        one = distributions.from_randomized_response(
            noise_parameter=2 / (1 + math.exp(event.noise)),
            num_buckets=2,
            value_discretization_interval=interval,
        )
    return one.self_compose(rounds) if rounds > 1 else one


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
