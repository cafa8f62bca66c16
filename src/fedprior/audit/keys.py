"""Attacks on the keys of simulated draws: noise, answers and cohorts must never be used twice.

Two releases with the same noise differ by their messages alone. The probe releases the noise of
every round, client, seed, method and configuration, and all pairs are compared.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedprior.audit.bound import two_sided
from fedprior.audit.finding import POWER, Finding
from fedprior.audit.noise import deviations
from fedprior.audit.probe import in_turn, kept, members, probe, release, senders
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core.protocols import Cohort
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.client import take_part
from fedprior.exchange.server import close_round
from fedprior.privacy.cohort import Poisson

_SIZE = 1500
_ROUNDS = 12
_SEEDS = (0, 1, 2**31 - 1)
# Rounds of a deployment, which an engine would take long to reach.
_FAR = (0, 1, 2, 3, 8, 16, 50, 64, 100, 128, 255, 256, 257, 1000, 1024, 65_536, 2**20)


def check_central_keys(channel: CentralGaussian, *, confidence: float) -> Finding:
    """Compare the noise of all rounds of runs that differ in one respect each."""
    rows = np.zeros((2, _SIZE))
    method, other = probe(_SIZE, _ROUNDS), probe(_SIZE, _ROUNDS, name="another")
    scale = channel.clip * channel.noise_multiplier
    wider = replace(channel, clip=2 * channel.clip)
    runs = [release(channel, rows, rounds=_ROUNDS, method=method, seed=seed) for seed in _SEEDS]
    runs += [
        release(channel, rows, rounds=_ROUNDS, method=method, identity="another"),
        release(channel, rows, rounds=_ROUNDS, method=method, cohort=Poisson(rate=1.0, cap=2)),
        release(channel, rows, rounds=_ROUNDS, method=other),
    ]
    noise = [run.totals / scale for run in runs]
    noise.append(release(wider, rows, rounds=_ROUNDS, method=method).totals / (2 * scale))
    agreement = Agreement.of(method, senders(rows), channel=channel, seed=3)
    start = agreement.initial_state()
    noise += [kept(close_round(agreement, start, {}, round)).totals[:1] / scale for round in _FAR]
    what = f"{_ROUNDS} rounds of 7 runs of another seed, method or setting, and rounds up to 2^20"
    return _compared(channel, np.concatenate(noise), what, confidence)


def check_local_keys(channel: LocalGaussian, *, confidence: float) -> Finding:
    """Compare the noise of single clients' uploads over clients, rounds, seeds and methods."""
    rows = np.zeros((3, _SIZE))
    turns = in_turn((0, 1, 2))
    noise = []
    for method in (probe(_SIZE, _ROUNDS), probe(_SIZE, _ROUNDS, name="another")):
        for seed in _SEEDS[:2]:
            run = release(channel, rows, rounds=_ROUNDS, cohort=turns, method=method, seed=seed)
            noise.append(run.totals / channel.scale)
    # The clients of one round: a sum has the variance of independent terms.
    together = release(channel, rows, rounds=_ROUNDS, method=method).totals / channel.scale
    noise.append(together / math.sqrt(3))
    agreement = Agreement.of(method, senders(rows), channel=channel, seed=3)
    start, data = agreement.initial_state(), senders(rows).train
    for client, round in [(0, round) for round in _FAR] + [(1, 0), (1, 1), (2, 0)]:
        upload, _ = take_part(agreement, start, None, data.client(client), client, round)
        noise.append(upload[None] / channel.scale)
    what = "3 clients, alone, together and on their own machines, over rounds, seeds and methods"
    finding = _compared(channel, np.concatenate(noise), what, confidence / 2 + 0.5)
    faults = deviations(together, math.sqrt(3), alarm=(1 - confidence) / 2)
    if faults:
        faults = ("the clients of a round do not draw independently: " + faults[0],)
    return replace(finding, confidence=confidence, faults=(*finding.faults, *faults))


def _compared(channel: Any, noise: np.ndarray, what: str, confidence: float) -> Finding:
    """Compare all pairs of rows of unit noise by their correlation."""
    from scipy.stats import norm

    number, size = noise.shape
    pairs = number * (number - 1) // 2
    # Normal for 1,500 products; a tenth of half the level is left for their slightly heavier tails.
    limit = float(norm.isf((1 - confidence) / (40 * pairs))) / math.sqrt(size)
    products = noise @ noise.T / size
    norms = np.sqrt(np.maximum(np.diag(products), 1e-300))
    products = np.abs(products / np.outer(norms, norms))[np.triu_indices(number, 1)]
    worst = float(products.max())
    faults = []
    if worst > limit:
        repeated = int((products > limit).sum())
        faults.append(f"noise is used again: {repeated} pairs of releases are correlated, by up to "
                      f"{worst:.3f}")  # fmt: skip
    else:  # far rounds and single clients must have the stated scale, too
        faults += deviations(noise, 1.0, alarm=(1 - confidence) / 2)
    return Finding(
        family="keys",
        mechanism=f"{type(channel).__name__}, in the engine",
        detail=f"{what}: {pairs:,} pairs of releases of {size:,} numbers",
        detects=f"a correlation of {limit + float(norm.isf(1 - POWER)) / math.sqrt(size):.2f}",
        confidence=confidence,
        claim="independent noise in every release",
        measured=f"correlation at most {worst:.3f}",
        faults=tuple(faults),
    )


def check_answer_keys(channel: KaryResponse | OneBit, *, confidence: float) -> Finding:
    """Compare the answers of clients in several rounds, seeds and methods: which symbol or
    coordinate is reported is nearly uniform, and independent answers seldom agree.
    """
    size = channel.num_symbols if isinstance(channel, KaryResponse) else 600
    clients, rounds = 3, 30
    rows = np.tile(np.eye(size)[0], (clients, 1))
    answers: list[np.ndarray] = []
    middle = 0.5 if isinstance(channel, OneBit) else 0.0
    for method in (probe(size, rounds), probe(size, rounds, name="another")):
        for seed in _SEEDS[:2]:
            turns = in_turn(range(clients))
            run = release(channel, rows, rounds=rounds, cohort=turns, method=method, seed=seed)
            answers.append(np.abs(run.totals - middle).argmax(axis=1))
    known = np.concatenate(answers)
    chance = _agreement(channel, size)
    pairs = math.comb(len(known), 2)
    agree = sum(math.comb(int(count), 2) for count in np.bincount(known))
    faults = []
    # Pairs that share an answer are only nearly independent: half the exponent is left for that.
    if two_sided(np.array([agree]), pairs, chance) < (1 - confidence) ** 2:
        faults.append(f"answers are used again: {agree} of {pairs:,} pairs agree, "
                      f"{pairs * chance:.0f} are expected")  # fmt: skip
    return Finding(
        family="keys",
        mechanism=f"{type(channel).__name__}, {size} answers, in the engine",
        detail=f"{len(known)} reports of {clients} clients, 2 seeds and 2 methods",
        detects="answers that repeat in one of ten reports",
        confidence=confidence,
        claim="independent answers in every report",
        measured=f"{agree} of {pairs:,} pairs agree, {pairs * chance:.0f} expected",
        faults=tuple(faults),
    )


def _agreement(channel: KaryResponse | OneBit, size: int) -> float:
    if isinstance(channel, OneBit):
        return 1 / size
    keep = channel.keep
    first = keep + (1 - keep) / size
    return first**2 + (1 - first) ** 2 / (size - 1)


def check_cohort_keys(*, confidence: float) -> Finding:
    """Check that simulated cohorts differ between rounds, seeds, methods and configurations."""
    size = 64
    agreements = _agreements(np.eye(size), Poisson(rate=0.5))
    flat = np.concatenate([members(agreement.draw, 8, size) for agreement in agreements])
    same = len(flat) - len(np.unique(flat, axis=0))
    agree = (flat[:, None] == flat[None]).sum(axis=-1)[np.triu_indices(len(flat), 1)]
    faults = []
    if same:
        faults.append(f"{same} cohorts of other rounds, seeds or methods are used again")
    elif two_sided(agree, size, 0.5) < 1 - confidence:
        faults.append("cohorts of other rounds, seeds or methods are alike")
    return Finding(
        family="keys",
        mechanism="Poisson cohorts of a simulated run",
        detail=f"{len(flat)} cohorts of {size} clients, over rounds, seeds, methods and settings",
        detects="a cohort that is used twice",
        confidence=confidence,
        claim="independent cohorts",
        measured=f"{agree.min()} to {agree.max()} of {size} clients in common",
        faults=tuple(faults),
    )


def _agreements(rows: np.ndarray, cohort: Cohort) -> Iterator[Agreement]:
    federation = senders(rows)
    channel = CentralGaussian(clip=1.0, noise_multiplier=1.0)
    method, other = probe(rows.shape[1], 8), probe(rows.shape[1], 8, name="another")
    fields: dict[str, Any] = {"channel": channel, "cohort": cohort}
    for seed in _SEEDS:
        yield Agreement.of(method, federation, seed=seed, **fields)
    yield Agreement.of(method, federation, identity="another", **fields)
    yield Agreement.of(other, federation, **fields)
    yield Agreement.of(method, federation, **fields | {"channel": replace(channel, clip=2.0)})
