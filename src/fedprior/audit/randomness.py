"""Attacks on secure draws: they come from the operating system, and nothing can repeat them.

A generator in memory gives itself away in three ways: the same call returns the same numbers, a
forked process continues with the numbers of its parent, and what is released is not what the
operating system or OpenDP delivered.
"""

import math
from typing import Any

import jax
import numpy as np

from fedprior.audit.bound import two_sided
from fedprior.audit.finding import Finding
from fedprior.audit.noise import correlation
from fedprior.audit.probe import members, probe, release, senders
from fedprior.audit.sources import delivered, off_grid, opendp, repeats, system_bytes
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.client import Learned, encode
from fedprior.privacy import secure
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.scores import MeanScore

_SECURE: dict[str, Any] = {"clip": 0.5, "noise_multiplier": 1.0, "noise": "secure"}


def check_stream(*, confidence: float) -> Finding:
    """Attack `random.secure()`: repetition, forks, its source, and the fairness of every bit."""
    draws = 20_000
    faults = list(repeats(lambda: random.secure().random((64,))))
    with system_bytes() as given:
        values = random.secure().random((draws,))
    if sum(map(len, given)) * 8 < 53 * draws:
        faults.append("draws that the operating system did not deliver")
    words = np.floor(np.asarray(values) * 2.0**53).astype(np.uint64)
    bits = ((words[:, None] >> np.arange(53, dtype=np.uint64)) & np.uint64(1)).astype(np.int64)
    pairs = (bits[:-1] ^ bits[1:]).sum(axis=0)
    together = bits.T @ bits  # pairs of bits of one draw
    both = together[np.triu_indices(53, 1)]
    alarm = (1 - confidence) / 3
    if two_sided(bits.sum(axis=0), draws, 0.5) < alarm:
        faults.append("bits that are not fair")
    if two_sided(pairs, draws - 1, 0.5) < alarm or two_sided(both, draws, 0.25) < alarm:
        faults.append("bits that depend on each other")
    if not ((values >= 0) & (values < 1)).all():
        faults.append("draws outside [0, 1)")
    return _finding(
        "random.secure()",
        f"repeated, forked, traced to the operating system; 53 bits of {draws:,} draws",
        f"a bit with probability {0.5 + 4.5 / math.sqrt(draws):.3f}, a generator in memory",
        faults,
        confidence,
    )


def check_noise_source(*, size: int = 4000) -> Finding:
    """Attack the noise of real releases: repetition, forks, its source, its grid and its cost."""
    channel = CentralGaussian(**_SECURE)
    nothing = secure.add_exactly(np.zeros((1, size), np.float32), clip=channel.clip)

    def draw() -> np.ndarray:
        return np.asarray(channel.decode(nothing, None))

    faults = list(repeats(draw))
    with opendp() as drawn_by:
        noise = np.asarray(draw(), np.float64)
    if not delivered(noise, drawn_by):
        faults.append("noise that OpenDP did not draw")
    faults += off_grid(noise, channel.clip * channel.noise_multiplier)
    exact = np.asarray(
        secure.add_gaussian(np.zeros(size), clip=channel.clip, noise_multiplier=1.0), np.float64
    )
    faults += off_grid(exact, channel.clip)
    rho = 1 / (2 * channel.noise_multiplier**2)
    claims = [mechanism.map(channel.clip) for mechanism in drawn_by.mechanisms]
    if any(cost > rho * (1 + 1e-9) for cost in claims):
        faults.append(f"OpenDP states a cost of rho = {max(claims):.4g}, {rho:.4g} is claimed")
    return _finding(
        "CentralGaussian, secure noise",
        f"repeated, forked, traced to OpenDP, on its grid, {size:,} numbers",
        "any number that OpenDP did not draw, a generator in memory",
        faults,
        1.0,
    )


def check_secure_run(*, confidence: float) -> Finding:
    """Attack a secure run in the engine: two runs of one seed share neither noise nor cohorts."""
    size, rounds = 24, 40
    channel = CentralGaussian(clip=1.0, noise_multiplier=0.02, noise="secure")
    rows = np.eye(size)
    method = probe(size, rounds)
    cohort = Poisson(rate=0.5)
    with opendp() as drawn_by:
        runs = [
            release(channel, rows, rounds=rounds, cohort=cohort, method=method).totals
            for _ in range(2)
        ]
    faults = []
    if not all(delivered(run, drawn_by) for run in runs):
        faults.append("releases that OpenDP did not draw")
    drawn = np.array([run > 0.5 for run in runs])
    noise = np.array([run - there for run, there in zip(runs, drawn, strict=True)])
    flat = np.concatenate(list(noise))
    if len(np.unique(flat.ravel())) < 0.9 * flat.size or correlation(flat.T) < 1 - confidence:
        faults.append("noise is used again in a second run")
    alarm = (1 - confidence) / 4
    same = (drawn[0] == drawn[1]).sum()
    if two_sided(same, drawn[0].size, 0.5) < alarm:
        faults.append("a second run draws the same cohorts")
    simulated = Agreement.of(
        method, senders(rows), channel=CentralGaussian(clip=1.0, noise_multiplier=0.02),
        cohort=cohort,
    )  # fmt: skip
    for guess in (lambda round: cohort.draw(0, round, size), simulated.draw):
        known = members(guess, rounds, size)
        if two_sided((known[None] == drawn).sum(axis=(1, 2)), known.size, 0.5) < alarm:
            faults.append("cohorts that follow from the public seed")
    return _finding(
        "a secure run, in the engine",
        f"two runs of one seed, {rounds} rounds, {size} clients that can be seen in the sum",
        "a cohort or noise that is used twice, or a cohort that follows from the seed",
        faults,
        confidence,
    )


def check_cohort_source() -> Finding:
    """Attack the cohorts of secure runs, as a server draws them: repeated, forked, traced."""
    clients = 200
    federation = senders(np.zeros((clients, 3)))
    faults = []
    for cohort in (Poisson(rate=0.5), FixedSize(size=100)):
        agreement = Agreement.of(
            probe(3, 1), federation, channel=CentralGaussian(**_SECURE), cohort=cohort
        )

        def draw(agreement: Agreement = agreement) -> np.ndarray:
            return members(agreement.draw, 1, clients)[0]

        name = type(cohort).__name__
        faults += [f"{name}: {fault}" for fault in repeats(draw)]
        with system_bytes() as given:
            draw()
        if sum(map(len, given)) < 16:
            faults.append(f"{name}: a cohort that the operating system did not seed")
    return _finding(
        "cohorts of a secure run",
        f"one round of {clients} clients repeated, forked, traced to the operating system",
        "a generator in memory, a seed of less than 128 bits",
        faults,
        1.0,
    )


def check_local_source() -> Finding:
    """Attack secure reports of one client: repeated and forked, with 53 bits for each draw."""
    size, faults = 500, []
    channels = (
        KaryResponse(epsilon=0.1, num_symbols=size, noise="secure"),
        OneBit(epsilon=0.1, noise="secure"),
    )
    federation = senders(np.tile(np.eye(size)[0], (2, 1)))
    for channel in channels:
        agreement = Agreement.of(probe(size, 1), federation, channel=channel)
        blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), agreement.message)
        learned = Learned(blank, None, np.True_)

        def draw(agreement: Agreement = agreement, learned: Learned = learned) -> np.ndarray:
            return np.concatenate([encode(agreement, learned, 0, 0) for _ in range(12)])

        name = type(channel).__name__
        faults += [f"{name}: {fault}" for fault in repeats(draw)]
        with system_bytes() as given:
            draw()
        if sum(map(len, given)) * 8 < 12 * 2 * 53:
            faults.append(f"{name}: answers that the operating system did not deliver")
    return _finding(
        "secure reports of a client",
        "12 reports of the same message in the same round, repeated, forked and traced",
        "a generator in memory",
        faults,
        1.0,
    )


def check_score_source() -> Finding:
    """Attack the noise of a released mean score: repeated, forked, traced to OpenDP."""
    mean = MeanScore(epsilon=1.0, relation="replace-one", noise="secure")
    scores = np.full(3, 0.5)

    def draw() -> np.ndarray:
        return np.array([mean.release(scores) for _ in range(8)])

    faults = list(repeats(draw))
    with opendp() as drawn_by:
        released = draw()
    known = np.concatenate([*drawn_by, np.zeros(1)])
    noise = (released - 0.5) * 3  # in scores; OpenDP draws whole numbers of a smaller unit
    ratio = np.abs(known[:-1]).max(initial=0) / max(np.abs(noise).max(), 1e-300)
    if len(drawn_by) < 8 or not np.allclose(known[:-1] / max(ratio, 1e-300), noise, atol=1e-9):
        faults.append("noise that OpenDP did not draw")
    return _finding(
        "MeanScore, secure noise",
        "8 releases repeated, forked and traced to OpenDP",
        "any number that OpenDP did not draw, a generator in memory",
        faults,
        1.0,
    )


def check_exact_sums(*, seed: int) -> Finding:
    """Check that a client changes a secure sum by its own message, to the last bit."""
    draws = random.stream(seed, "encode")
    faults = []
    for size, clients in ((7, 5), (300, 60)):
        rows = draws.standard_normal((clients, size)).astype(np.float32)
        rows *= 0.5 / np.linalg.norm(rows, axis=1, keepdims=True)
        rows[1] *= 1e-6
        channel = CentralGaussian(**_SECURE)
        for add in (channel.add, jax.jit(channel.add)):
            parts = [np.asarray(add(row[None]), np.int64) for row in rows]
            whole, turned = (np.asarray(add(each)) for each in (rows, rows[::-1].copy()))
            if not np.issubdtype(whole.dtype, np.integer):
                faults.append("a sum in floating point, which depends on the order of its terms")
                continue
            if (np.sum(parts, axis=0) != whole).any() or (whole != turned).any():
                faults.append("a client changes the sum by more than its own message")
            alone = secure.value(parts[0].astype(np.int32), clip=channel.clip)
            if np.linalg.norm(alone) > 0.5 * (1 + 1e-6):
                faults.append("rounding to the grid lengthens a message")
    return _finding(
        "secure sums",
        "up to 60 messages added in any order",
        "one bit",
        sorted(set(faults)),
        1.0,
        claim="exact sums, in which a client changes its own term only",
    )


def _finding(
    name: str,
    detail: str,
    detects: str,
    faults: list[str],
    confidence: float,
    *,
    claim: str = "fresh draws of the operating system",
) -> Finding:
    return Finding(
        family="randomness",
        mechanism=name,
        detail=detail,
        detects=detects,
        confidence=confidence,
        claim=claim,
        faults=tuple(faults),
    )
