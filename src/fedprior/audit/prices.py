"""Prices of known events, against an independent computation."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedprior.audit.finding import Finding
from fedprior.audit.losses import GAP, epsilon_from_below
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core.check import PrivacyError
from fedprior.privacy import accounting, calibrate
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.events import Event, Relation, gaussian, laplace, response
from fedprior.privacy.guarantee import shown
from fedprior.privacy.plans import plan

# Both numbers are rounded: the claim to the last bits, the independent one downwards.
_ROUNDING = 1e-9


class Case(NamedTuple):
    """Events with their numbers of rounds, and the terms of their price."""

    spent: Sequence[tuple[Event, int]]
    delta: float
    relation: Relation


def sampled(event: Event, rate: float, overflow: float = 0.0) -> Event:
    """Return the event under Poisson sampling, built here and not by a cohort."""
    return replace(event, sampling="poisson", rate=rate, overflow=overflow)


def fixed(event: Event, size: int, num_clients: int, *, amplified: bool) -> Event:
    """Return the event for cohorts of a fixed size."""
    return replace(event, sampling="fixed", size=size, num_clients=num_clients, amplified=amplified)


_BOTH: tuple[Relation, ...] = ("add-remove", "replace-one")
CASES: dict[str, tuple[Case, ...]] = {
    "Gaussian noise, everyone": tuple(
        Case([(gaussian(noise), rounds)], delta, relation)
        for noise, rounds, delta in ((1.0, 1, 1e-5), (5.0, 100, 1e-6), (0.5, 3, 1e-2))
        for relation in _BOTH
    ),
    "Gaussian noise, Poisson sampling": tuple(
        Case([(sampled(gaussian(noise), rate), rounds)], delta, relation)
        for noise, rate, rounds, delta in (
            (1.0, 0.5, 3, 1e-2),
            (4.0, 0.2, 200, 1e-5),
            (1.0, 0.01, 100, 1e-5),
        )
        for relation in _BOTH
    ),
    "Gaussian noise, a sampling rate of 0.0001": (
        Case([(sampled(gaussian(0.8), 1e-4), 20)], 1e-7, "add-remove"),
    ),
    "Gaussian noise, cohorts of a fixed size": (
        Case([(fixed(gaussian(2.0), 50, 1000, amplified=True), 20)], 1e-5, "replace-one"),
        Case([(fixed(gaussian(1.0), 5, 10, amplified=True), 1)], 1e-3, "replace-one"),
        Case([(fixed(gaussian(2.0), 50, 1000, amplified=False), 20)], 1e-5, "replace-one"),
    ),
    "Laplace noise": (
        *(Case([(laplace(1.0), 5)], 1e-5, relation) for relation in _BOTH),
        Case([(sampled(laplace(1.0), 0.1), 5)], 1e-5, "add-remove"),
    ),
    "randomized responses": (
        Case([(response(0.5), 7)], 1e-5, "replace-one"),
        Case([(response(0.1), 100)], 1e-5, "replace-one"),
    ),
    "different events together": (
        Case([(response(0.5), 3), (sampled(gaussian(1.0), 0.1), 20), (gaussian(3.0), 2)],
             1e-5, "add-remove"),
        Case([(gaussian(2.0), 3), (gaussian(3.0), 4)], 1e-5, "replace-one"),
    ),
    "cohorts that may exceed their cap": (
        Case([(sampled(gaussian(1.0), 0.5, 1.9e-6), 5)], 1e-5, "add-remove"),
        Case([(sampled(gaussian(2.0), 1.0, 9e-7), 10)], 1e-5, "replace-one"),
    ),
}  # fmt: skip


def check_prices(name: str) -> Finding:
    """Compare `accounting.epsilon` with the independent lower bound for each of `CASES[name]`."""
    faults, ratios = [], []
    for spent, delta, relation in CASES[name]:
        claimed = accounting.epsilon(spent, delta=delta, relation=relation)
        least = epsilon_from_below(spent, delta=delta, relation=relation)
        ratios.append(claimed / least)
        if claimed < least * (1 - _ROUNDING):
            faults.append(f"epsilon {claimed:.4g} is claimed under {relation}, at least {least:.4g}"
                          " is spent")  # fmt: skip
    settings = "1 setting" if len(ratios) == 1 else f"{len(ratios)} settings"
    detail = f"{settings} priced from the densities"
    return _finding(
        name, detail, f"{min(ratios):.4f} to {max(ratios):.4f} times the independent one", faults
    )


def check_caps() -> Finding:
    """Check that cohorts charge delta with the probability of exceeding their cap, summed here."""
    faults, most = [], 0.0
    for rate, cap, clients in ((0.5, 4, 6), (0.05, 8, 40), (0.1, 130, 1000), (0.3, None, 50)):
        cohort = Poisson(rate=rate, cap=cap)
        event = cohort.amplify(gaussian(1.0), clients)
        capacity = cohort.capacity(clients)
        tail = math.fsum(
            math.exp(
                math.lgamma(clients + 1) - math.lgamma(size + 1) - math.lgamma(clients - size + 1)
                + size * math.log(rate) + (clients - size) * math.log1p(-rate)
            )
            for size in range(capacity + 1, clients + 1)
        )  # fmt: skip
        most = max(most, tail)
        if event.rate < rate * (1 - _ROUNDING):
            faults.append(f"rate {event.rate:g} is accounted for, {rate:g} is drawn")
        if event.overflow < tail * (1 - 1e-6):
            faults.append(f"a cap of {capacity} is exceeded with probability {tail:.3g}, and "
                          f"{event.overflow:.3g} is charged")  # fmt: skip
    event = FixedSize(size=5).amplify(gaussian(1.0), 10)
    if event.amplified or event.sampling != "fixed":
        faults.append("cohorts of a fixed size claim an amplification that nobody asked for")
    detail = "the events of four capped cohorts, against the binomial tail"
    return _finding(
        "cohorts that may exceed their cap",
        detail,
        f"exceeded with probability {most:.3g} at most",
        faults,
    )


def check_stated() -> Finding:
    """Check what is stated outside the accountant: guarantees, calibrations, plans, refusals."""
    faults = list(_stated())
    detail = "guarantees, calibrated scales, plans, rounding in print, and events without a proof"
    return _finding("statements beside the accountant", detail, "", faults)


def _stated() -> Iterator[str]:
    for clip, scale, rounds, delta in ((1.0, 1.0, 1, 1e-2), (0.5, 4.0, 9, 1e-6)):
        channel = LocalGaussian(clip=clip, scale=scale)
        least = epsilon_from_below([(gaussian(scale / clip), rounds)], delta=delta,
                                   relation="replace-one")  # fmt: skip
        by_event = accounting.epsilon([(channel.event(3), rounds)], delta=delta,
                                      relation="replace-one")  # fmt: skip
        by_hand = channel.guarantee(delta=delta, rounds=rounds).epsilon
        if min(by_event, by_hand) < least * (1 - _ROUNDING):
            yield "LocalGaussian states less than two messages 2 clips apart cost"
        target = 1.3
        noise = calibrate.gaussian_scale(target, delta, sensitivity=2 * clip, rounds=rounds) / clip
        cost = epsilon_from_below([(gaussian(noise), rounds)], delta=delta, relation="replace-one")
        if cost > target * (1 + 1e-6):
            yield f"noise calibrated to epsilon {target} costs {cost:.4g}"
    made = plan(delta=1e-6, num_clients=1000, rate=0.1, rounds=50, target=2.0)
    spent = [(sampled(gaussian(made.noise_multiplier), 0.1), 50)]
    cost = epsilon_from_below(spent, delta=1e-6, relation="add-remove")
    if cost > 2.0:
        yield f"a plan for epsilon 2 costs {cost:.4g}"
    for exact in (3.6041, 0.99999, 12.3456):
        if float(shown(exact, digits=3)) < exact:
            yield f"epsilon {exact:g} is printed as {shown(exact, digits=3)}"
    try:
        accounting.epsilon([(fixed(gaussian(1.0), 5, 10, amplified=True), 1)], delta=1e-5)
        yield "cohorts of a fixed size have a price under add-remove, where none is proven"
    except PrivacyError:
        pass


def _finding(name: str, detail: str, measured: str, faults: list[str]) -> Finding:
    return Finding(
        family="prices",
        mechanism=name,
        detail=detail,
        detects=f"an epsilon that is {GAP:.0%} too small",
        confidence=1.0,
        claim="an epsilon that is not below the independent one",
        measured=measured,
        faults=tuple(faults),
    )
