"""The cost of a private run before it runs, with advice."""

import math
from dataclasses import dataclass, replace
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.core.plain import picked
from fedprior.privacy import planning
from fedprior.privacy.accounting import Spent, check_delta, epsilon
from fedprior.privacy.cohort import Poisson
from fedprior.privacy.events import Event, Relation, gaussian
from fedprior.privacy.guarantee import shown
from fedprior.privacy.paper import paper_bound

FORMAT = 1
# Noise to signal of a whole run. Shares of the gain over local training that FedAvg with
# fine-tuning kept (writers of MNIST, logistic and mlp): at 0.1 about 90%, at 0.25 70%, at 0.6 40%;
# at 1.3 (embedded digits) nothing. docs/explanation/private-figures.md.
WORKABLE, HARD = 0.1, 0.3


@dataclass(frozen=True, kw_only=True)
class View:
    """The epsilon against one kind of adversary; None means unbounded."""

    view: str
    relation: Relation
    epsilon: float | None
    delta: float
    explanation: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The noise for a target, epsilon against each adversary, and whether any signal is left."""

    noise_multiplier: float
    rounds: int
    views: tuple[View, ...]
    paper_bound: float | None
    noise_to_signal: float | None
    verdict: str

    def describe(self) -> dict[str, Any]:
        """Return the plan as a JSON object, as printed by `fedprior privacy plan --json`."""
        names = ("view", "relation", "epsilon", "delta")
        return {
            "format": FORMAT,
            **picked(self, "noise_multiplier", "rounds"),
            "views": [picked(view, *names) for view in self.views],
            **picked(self, "paper_bound", "noise_to_signal", "verdict"),
        }


def plan(
    *,
    delta: float,
    num_clients: int,
    rate: float = 1.0,
    rounds: int | None = None,
    target: float | None = None,
    noise_multiplier: float | None = None,
    num_parameters: int | None = None,
    local_steps: int | None = None,
    allow_delta: bool = False,
) -> Plan:
    """Compute the third of `target` (epsilon), `noise_multiplier` and `rounds` from the other two.

    The target is for the central view under add-remove, with Poisson sampling at `rate`. A delta
    of 1/m or more would admit a mechanism that publishes one client's data outright, and is refused
    unless `allow_delta`.
    """
    owner = "plan"
    check_delta(owner, delta)
    check.count(owner, num_clients=num_clients)
    check.fraction(owner, rate=rate)
    check_delta_below(delta, num_clients, allowed=allow_delta)
    num_given = sum(value is not None for value in (target, noise_multiplier, rounds))
    sentence = "give at least two of epsilon, noise multiplier and rounds."
    check.expect(num_given >= 2, owner, sentence)
    cohort = Poisson(rate=rate)
    one = cohort.amplify(gaussian(noise_multiplier or 1.0), num_clients)
    noise, rounds = _solve(one, target, noise_multiplier, rounds, delta)
    event = replace(one, noise=noise)
    printed = None
    if local_steps is not None:
        printed = paper_bound(
            noise_multiplier=noise, rate=rate, rounds=rounds, local_steps=local_steps, delta=delta
        )
    signal, advice = None, "Use --parameters to see whether the noise leaves any signal."
    if num_parameters is not None:
        signal = planning.noise_to_signal(
            noise=noise,
            num_parameters=num_parameters,
            rate=rate,
            num_clients=num_clients,
            rounds=rounds,
        )
        advice = verdict(signal, num_parameters=num_parameters, num_clients=num_clients)
    return Plan(
        noise_multiplier=noise,
        rounds=rounds,
        views=_views(event, rounds, delta),
        paper_bound=printed,
        noise_to_signal=signal,
        verdict=advice,
    )


def check_delta_below(delta: float, num_clients: int, *, allowed: bool) -> None:
    """Raise PrivacyError if delta >= 1/m, which would admit publishing one client's data."""
    if delta >= 1 / num_clients and not allowed:
        raise PrivacyError(
            f"privacy: delta must be below 1 / clients = {1 / num_clients:g}, got {delta:g}. "
            "Choose a smaller one, or use --allow-delta (privacy.allow_delta=true)."
        )


def _solve(
    event: Event,
    target: float | None,
    noise: float | None,
    rounds: int | None,
    delta: float,
) -> tuple[float, int]:
    """Return noise multiplier and rounds, solving for the missing one."""
    if target is not None:
        check.positive("plan", epsilon=target)
    if noise is None:
        assert target is not None
        assert rounds is not None
        return planning.noise_multiplier(event, target=target, delta=delta, rounds=rounds), rounds
    if rounds is None:
        assert target is not None
        rounds = planning.rounds_affordable(event, target=target, delta=delta)
        if rounds == 0:
            raise PrivacyError(
                "plan: epsilon must cover at least one round, which costs "
                f"{shown(epsilon([(event, 1)], delta=delta), digits=4)} with noise multiplier "
                f"{noise:.12g}, got "
                f"{target:g}. Raise the noise or the budget."
            )
    check.count("plan", rounds=rounds)
    return noise, rounds


def _views(event: Event, rounds: int, delta: float) -> tuple[View, ...]:
    spent = [(event, rounds)]
    plain = [(gaussian(event.noise), rounds)]

    def view(name: str, relation: Relation, cost: Spent | None, words: str) -> View:
        bound = None if cost is None else epsilon(cost, delta=delta, relation=relation)
        return View(view=name, relation=relation, epsilon=bound, delta=delta, explanation=words)

    seen = "the noisy models but not the cohorts; a client is present or absent"
    known = "also who took part in which round; no amplification by sampling"
    return (
        view("central", "add-remove", spent, seen),
        view("central", "replace-one", spent, "the same; a client's data are replaced by others"),
        view("cohorts-known", "add-remove", plain, known),
        view("server", "replace-one", None, "the uploads before the noise; no protection at all"),
    )


def verdict(ratio: float, *, num_parameters: int, num_clients: int) -> str:
    """Return what a noise-to-signal ratio over a whole run means, and what would lower it."""
    shown = f"{float(f'{ratio:.2g}'):,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    fact = (
        f"over all rounds, the noise is {shown} times as large as the sum of the updates can "
        "possibly be"
    )
    if ratio <= WORKABLE:
        return f"Workable: {fact}."
    clients = math.ceil(num_clients * ratio / WORKABLE)
    smaller = math.floor(num_parameters * (WORKABLE / ratio) ** 2)
    fewer = f", or {smaller:,} parameters," if smaller >= 10 else ""
    advice = (
        f"At this noise and sampling rate, {clients:,} clients{fewer} would lower it to {WORKABLE}."
    )
    if ratio <= HARD:
        return f"Hard: {fact}, so a part of the gain is lost. {advice}"
    if ratio <= 1:
        return f"Mostly noise: {fact}, so most of the gain is lost. {advice}"
    return f"Pure noise: {fact}, so the shared model learns nothing. {advice}"
