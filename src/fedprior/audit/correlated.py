"""Attacks on noise that is correlated over rounds: the matrix mechanism in the engine.

C, its sensitivity and the worst pattern of participation are computed here from the coefficients.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np

from fedprior.audit.finding import Finding
from fedprior.audit.losses import epsilon_from_below
from fedprior.audit.noise import detects, deviations
from fedprior.audit.prices import sampled
from fedprior.audit.probe import NOBODY, in_turn, ledger_of, probe, release, senders
from fedprior.audit.sources import opendp
from fedprior.channels.matrix_gaussian import MatrixGaussian
from fedprior.core.check import PrivacyError
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.server import open_round
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.cohort import Cyclic
from fedprior.privacy.events import gaussian
from fedprior.privacy.participation import Participation
from fedprior.privacy.strategy import Banded, Buffered, Strategy

_DELTA = 1e-6


def matrix(strategy: Strategy, rounds: int) -> np.ndarray:
    """Return C, from the definition of the strategy."""
    if isinstance(strategy, Banded):
        first = [*strategy.coefficients, *[0.0] * rounds][:rounds]
    else:
        pairs = list(zip(strategy.scales, strategy.decays, strict=True))
        first = [1.0] + [
            math.fsum(scale * decay ** (place - 1) for scale, decay in pairs)
            for place in range(1, rounds)
        ]
    return np.array(
        [[first[row - column] if row >= column else 0.0 for column in range(rounds)]
         for row in range(rounds)]
    )  # fmt: skip


def worst(whole: np.ndarray, rule: Participation) -> float:
    """Return the largest norm of C x over all patterns that the rule allows, tried one by one."""
    rounds = range(len(whole))
    most = 0.0
    for count in range(1, rule.most + 1):
        for turns in combinations(rounds, count):
            if all(later - turn >= rule.apart for turn, later in pairwise(turns)):
                most = max(most, float(np.linalg.norm(whole[:, list(turns)].sum(axis=1))))
    return most


def check_matrix(channel: MatrixGaussian, *, confidence: float, seed: int) -> Finding:
    """Attack a run of the mechanism: the path of its noise, its price, its rule and its charge."""
    rule, size = channel.participation, 4000
    whole = matrix(channel.strategy, rule.rounds)
    reach = worst(whole, rule)
    scale = channel.clip * channel.noise_multiplier
    turns = [
        round % rule.apart if round // rule.apart < rule.most else NOBODY
        for round in range(rule.rounds)
    ]
    rows = 1e3 * np.eye(rule.apart, size)
    paths = []
    for number in (seed, seed + 1):
        paths.append(release(channel, 0 * rows, rounds=rule.rounds, seed=number,
                             cohort=in_turn(turns)).totals)  # fmt: skip
    noise = np.concatenate([whole @ path for path in paths])
    faults = list(deviations(noise, scale, alarm=1 - confidence))
    heard = release(channel, rows, rounds=rule.rounds, seed=seed, cohort=in_turn(turns)).totals
    sent = whole @ (heard - paths[0])
    moved = float(np.linalg.norm(sent[:, 0])) / channel.clip  # client 0 in all of its turns
    if moved > reach * (1 + 1e-3):
        faults.append(f"a client moves C x by {moved:.4g} clips, {reach:.4g} is the most allowed")
    least = epsilon_from_below(
        [(gaussian(channel.noise_multiplier / reach), 1)], delta=_DELTA, relation="add-remove"
    )
    claimed = epsilon([(channel.event(size), 1)], delta=_DELTA)
    faults += [*_refused(channel), *_charged(channel, least)]
    return Finding(
        family="runs",
        mechanism=f"MatrixGaussian, {type(channel.strategy).__name__.lower()}, in the engine",
        detail=f"paths of {rule.rounds} rounds in {size:,} dimensions, whitened; rule and charge",
        detects=f"{detects(2 * rule.rounds, size, alarm=1 - confidence)}; a broken rule",
        confidence=confidence,
        claimed=claimed,
        lower_bound=least * (1 - 1e-9),
        delta=_DELTA,
        relation="add-remove",
        measured=f"a client in all of its turns moves C x by {moved:.4f} clips",
        faults=tuple(faults),
    )


def check_secure_matrix(*, confidence: float) -> Finding:
    """Attack the mechanism with secure noise: two runs of one seed, traced to OpenDP."""
    channel = replace(BANDED, noise="secure")
    rule, size = channel.participation, 300
    whole = matrix(channel.strategy, rule.rounds)
    nothing = np.zeros((rule.apart, size))
    turns = in_turn([NOBODY])
    with opendp() as delivered:
        paths = [
            release(channel, nothing, rounds=rule.rounds, cohort=turns).totals for _ in range(2)
        ]
    noise = np.concatenate([whole @ path for path in paths])
    faults = list(deviations(noise, channel.clip * channel.noise_multiplier, alarm=1 - confidence))
    if sum(map(len, delivered)) < noise.size:
        faults.append("noise that OpenDP did not draw")
    return Finding(
        family="randomness",
        mechanism="MatrixGaussian, secure noise, in the engine",
        detail=f"two runs of one seed, {rule.rounds} rounds in {size} dimensions, whitened",
        detects=f"{detects(len(noise), size, alarm=1 - confidence)}; noise that is used twice",
        confidence=confidence,
        claim="fresh draws of OpenDP",
        faults=tuple(faults),
    )


def _refused(channel: MatrixGaussian) -> Iterator[str]:
    """A client that comes too early, and a round after the last one, must be refused."""
    rule = channel.participation
    rows = np.zeros((2, 3))
    if rule.apart > 1:
        try:
            release(channel, rows, rounds=rule.rounds, cohort=in_turn((0,)))
            yield f"a client takes part in every round, {rule.apart} apart are allowed"
        except PrivacyError:
            pass
    agreement = Agreement.of(
        probe(3, 1), senders(rows), channel=channel, cohort=in_turn((0, *[1] * rule.rounds))
    )
    try:
        agreement.attendance().admit(rule.rounds, np.array([0]))
        yield "a round after the last one that was paid for is played"
    except PrivacyError:
        pass


def _charged(channel: MatrixGaussian, least: float) -> Iterator[str]:
    """The whole run is on the ledger before its first round."""
    rule = channel.participation
    clients = 4 * rule.apart
    for cohort, price in (
        (Cyclic(parts=rule.apart), least),
        (Cyclic(parts=rule.apart, rate=0.5), _amplified(channel, 0.5)),
    ):
        agreement = Agreement.of(
            probe(3, rule.rounds), senders(np.zeros((clients, 3))), channel=channel, cohort=cohort
        )
        with ledger_of(channel, delta=_DELTA) as ledger:
            open_round(
                agreement, 0, ledger=ledger, source="audit", attendance=agreement.attendance()
            )
            if ledger.spent < price * (1 - 1e-9):
                yield (
                    f"epsilon {ledger.spent:.4g} is charged before the first round of {cohort!r}, "
                    f"at least {price:.4g} is spent"
                )


def _amplified(channel: MatrixGaussian, rate: float) -> float:
    """A lower bound on the cost with a secret sampled cohort: each turn by itself."""
    rule = channel.participation
    column = float(np.linalg.norm(matrix(channel.strategy, rule.rounds)[:, 0]))
    event = sampled(gaussian(channel.noise_multiplier / column), rate)
    turns = min(rule.rounds // rule.apart, rule.most)
    return epsilon_from_below([(event, turns)], delta=_DELTA, relation="add-remove")


BANDED = MatrixGaussian(
    clip=0.5,
    noise_multiplier=2.0,
    strategy=Banded((1.0, 0.5, 0.25)),
    participation=Participation(rounds=12, apart=3),
)
BUFFERED = MatrixGaussian(
    clip=0.5,
    noise_multiplier=2.0,
    strategy=Buffered((0.9, 0.3), (0.4, 0.3)),
    participation=Participation(rounds=12, apart=3, most=2),
)
