"""Attacks on what is recorded: whole private runs, whose releases are counted and priced here."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from fedprior.audit.bound import lower_bound, two_sided
from fedprior.audit.finding import Finding
from fedprior.audit.losses import GAP, epsilon_from_below
from fedprior.audit.noise import deviations
from fedprior.audit.prices import sampled
from fedprior.audit.probe import kept, ledger_of, probe, senders
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core.check import PrivacyError
from fedprior.engines.simulate import simulate
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.batch import Batch
from fedprior.exchange.server import close_round, open_round
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Poisson
from fedprior.privacy.events import Event, Relation, gaussian, response
from fedprior.privacy.ledger import Ledger

_DELTA = 1e-6
_DETECTS = f"an epsilon that is {GAP:.0%} too small, or one release that is not on record"


def check_whole_run(store: Literal["device", "disk"], *, confidence: float, seed: int) -> Finding:
    """Run a private training from beginning to end, and price what it released.

    Its clients send zeros, so that each release is the noise of one round.
    """
    clients, size, rounds, rate, noise = 30, 200, 41, 0.3, 1.0
    channel = CentralGaussian(clip=0.5, noise_multiplier=noise)
    with ledger_of(channel, delta=_DELTA) as ledger:
        result = simulate(
            probe(size, rounds), senders(np.zeros((clients, size))), rounds=rounds,
            channel=channel, cohort=Poisson(rate=rate), seed=seed, ledger=ledger, store=store,
            test=False,
        )  # fmt: skip
        released = kept(result.state)
        faults = list(_recorded(ledger, rounds))
        claimed = ledger.spent
    alarm = (1 - confidence) / 2
    faults += deviations(released.totals, 0.5 * noise, alarm=alarm)
    present = np.array([entry["clients"] for entry in result.history]).sum()
    if two_sided(present, rounds * clients, rate) < alarm:
        faults.append(f"clients took part at a rate of {present / rounds / clients:.3g}, {rate} is "
                      "accounted for")  # fmt: skip
    if not np.allclose(released.weights, rate * clients, rtol=1e-6):
        faults.append("the divisor is not the public expected size")
    event = sampled(gaussian(noise), rate)
    least = _least((event, rounds))
    return Finding(
        family="counting",
        mechanism=f"a whole private run, memories on {store}",
        detail=f"{rounds} rounds with their ledger: releases, noise and clients as recorded",
        detects=_DETECTS,
        confidence=confidence,
        claimed=claimed,
        lower_bound=least * (1 - 1e-9),
        delta=_DELTA,
        relation="add-remove",
        faults=tuple(faults),
    )


def check_budget(*, seed: int) -> Finding:
    """Run until the budget ends the run, and price what was released until then."""
    size, planned, noise, rate = 12, 60, 1.0, 0.5
    channel = CentralGaussian(clip=1.0, noise_multiplier=noise)
    event = sampled(gaussian(noise), rate)
    budget = 1.02 * _least((event, 9))
    with ledger_of(channel, budget=budget, delta=_DELTA) as ledger:
        result = simulate(
            probe(size, planned), senders(np.zeros((3, size))), rounds=planned, channel=channel,
            cohort=Poisson(rate=rate), seed=seed, ledger=ledger, test=False,
        )  # fmt: skip
        faults = list(_recorded(ledger, result.rounds))
    count = int(kept(result.state).totals.any(axis=1).sum())
    spent = _least((event, count))
    if count != result.rounds:
        faults.append(f"{count} rounds were released, {result.rounds} are reported")
    return Finding(
        family="counting",
        mechanism="a private run with a budget",
        detail=f"{planned} rounds were asked for, {count} were released before the budget ended",
        detects=_DETECTS,
        confidence=1.0,
        claimed=budget,
        lower_bound=spent * (1 - 1e-9),
        delta=_DELTA,
        relation="add-remove",
        faults=tuple(faults),
    )


def _recorded(ledger: Ledger, rounds: int) -> Iterator[str]:
    """Compare the lines of the file, read here, with the number of rounds that were released."""
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines() if line]
    known = [
        range(line["first"], line["first"] + line["rounds"])
        for line in lines
        if line["kind"] == "reserve"
    ]
    numbers = {number for each in known for number in each}
    if missing := set(range(rounds)) - numbers:
        yield f"{len(missing)} of {rounds} released rounds are not on record"


def check_ledger() -> Finding:
    """Charge a ledger in every way that counts, and price each of them here."""
    faults = [*_one_by_one(), *_replayed(), *_different(), *_batch(), *_local()]
    return Finding(
        family="counting",
        mechanism="ledgers",
        detail="rounds one by one, secure replays, other runs, several events, batches, reopened",
        detects=_DETECTS,
        confidence=1.0,
        claim="all releases are on record, each at its price",
        faults=tuple(faults),
    )


def _least(*spent: tuple[Event, int], relation: Relation = "add-remove") -> float:
    return epsilon_from_below(spent, delta=_DELTA, relation=relation)


def _less(name: str, spent: float, least: float) -> Iterator[str]:
    if spent < least * (1 - 1e-9):
        yield f"{name}: epsilon {spent:.4g} is recorded, at least {least:.4g} is spent"


def _one_by_one() -> Iterator[str]:
    """Twenty rounds as a deployment plays them; the last one is never committed."""
    channel = CentralGaussian(clip=1.0, noise_multiplier=2.0)
    agreement = Agreement.of(
        probe(5, 20), senders(np.zeros((4, 5))), channel=channel, cohort=Poisson(rate=0.5, cap=4)
    )
    state = agreement.initial_state()
    with ledger_of(channel, delta=_DELTA) as ledger:
        for round in range(20):
            open_round(agreement, round, ledger=ledger, source="one")
            state = close_round(agreement, state, {}, round)
            if round < 19:
                ledger.commit()
        spent = ledger.spent
        with Ledger(ledger.path, ledger.terms) as again:
            reopened = again.spent
        yield from _recorded(ledger, 20)
    least = _least((sampled(gaussian(2.0), 0.5), 20))
    yield from _less("rounds one by one", spent, least)
    yield from _less("a ledger that was reopened", reopened, least)


def _replayed() -> Iterator[str]:
    """A round that is played again with secure noise is a second release; so is another run's."""
    channel = CentralGaussian(clip=1.0, noise_multiplier=3.0)
    one = gaussian(3.0)
    with ledger_of(replace(channel, noise="secure"), delta=_DELTA) as ledger:
        for _ in range(3):
            ledger.reserve(one, first=0, rounds=2, source="a run")
        least = _least((one, 6))
        yield from _less("rounds replayed with secure noise", ledger.spent, least)
    with ledger_of(channel, delta=_DELTA) as ledger:
        for source in ("a run", "another"):
            ledger.reserve(one, first=0, rounds=4, source=source, draws=source)
        least = _least((one, 8))
        yield from _less("two runs on one ledger", ledger.spent, least)
        try:
            ledger.reserve(one, first=0, rounds=4, source="a third", draws="a run")
            yield "a second release with the same simulated noise is granted"
        except PrivacyError:
            pass


def _different() -> Iterator[str]:
    """Events that differ in one field each, under replace-one."""
    events = [(gaussian(2.0), 3), (gaussian(2.5), 2), (response(0.4), 3)]
    with ledger_of(LocalGaussian(clip=1.0, scale=2.0), delta=_DELTA) as ledger:
        for place, (event, rounds) in enumerate(events):
            ledger.reserve(event, first=0, rounds=rounds, source=str(place))
        least = _least(*events, relation="replace-one")
        yield from _less("different events under replace-one", ledger.spent, least)
    capped = sampled(gaussian(1.0), 0.5, _DELTA / 12)
    with ledger_of(CentralGaussian(clip=1.0, noise_multiplier=1.0), delta=_DELTA) as ledger:
        ledger.reserve(capped, first=0, rounds=10, source="capped")
        least = _least((capped, 10))
        yield from _less("cohorts that may exceed their cap", ledger.spent, least)


def _local() -> Iterator[str]:
    """Uploads that a server sees are not amplified by sampling."""
    channel = LocalGaussian(clip=1.0, scale=4.0)
    agreement = Agreement.of(
        probe(5, 6), senders(np.zeros((9, 5))), channel=channel, cohort=Poisson(rate=0.2)
    )
    with ledger_of(channel, delta=_DELTA) as ledger:
        for round in range(6):
            open_round(agreement, round, ledger=ledger, source="one")
        least = _least((gaussian(4.0), 6), relation="replace-one")
        yield from _less("a local channel under sampling", ledger.spent, least)


def _batch() -> Iterator[str]:
    """The rounds of a private estimate."""
    channel = CentralGaussian(clip=1.0, noise_multiplier=2.0)
    batch = Batch.of(
        "audit", channel, 3, num_clients=50, delta=_DELTA, rounds=7, relation="add-remove"
    )
    with ledger_of(channel, delta=_DELTA) as ledger:
        with batch.charged(ledger, content=[1]) as rounds:
            key = rounds.key("decode")
            rounds.add(channel, [np.zeros((50, 3))], key, dimension=3)
        least = _least((gaussian(2.0), 7))
        yield from _less("a private estimate", min(ledger.spent, batch.epsilon), least)


def check_canaries(*, confidence: float, seed: int, delta: float) -> Finding:
    """Distinguish a thousand clients with a message from a thousand without, in one run.

    The canaries are orthogonal, so that each coordinate of each release is one attack on one
    client; the cost of one round, as the ledger states it, is the claim.
    """
    clients, rounds, rate, noise = 600, 60, 0.5, 1.0
    rows = np.eye(clients)
    rows[clients // 2 :] = 0
    channel = CentralGaussian(clip=1.0, noise_multiplier=noise)
    with ledger_of(channel, delta=1e-4) as ledger:
        result = simulate(
            probe(clients, rounds), senders(rows), rounds=rounds, channel=channel,
            cohort=Poisson(rate=rate), seed=seed, ledger=ledger, test=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in ledger.path.read_text().splitlines() if line]
        recorded = next(line["event"] for line in lines if line["kind"] == "reserve")
    totals = kept(result.state).totals
    scores = totals[:, : clients // 2].ravel(), totals[:, clients // 2 :].ravel()
    bound = lower_bound(*scores, delta=delta, confidence=confidence)
    return Finding(
        family="runs",
        mechanism="a private run with 300 canaries",
        detail=f"{len(scores[0]):,} orthogonal canaries and as many without a message, in one run",
        detects="about twice the claimed epsilon",
        confidence=confidence,
        claimed=epsilon([(Event.from_json(recorded), 1)], delta=delta),
        lower_bound=bound.epsilon,
        delta=delta,
        relation="add-remove",
    )
