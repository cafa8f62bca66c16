"""Whole runs, many at once, and the attack on what they release."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.audit.bound import lower_bound
from fedprior.audit.finding import Finding
from fedprior.audit.subject import Subject
from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, State
from fedprior.core.protocols import Channel
from fedprior.data.federation import ClientData
from fedprior.engines.device import play_rounds
from fedprior.engines.run import Run
from fedprior.privacy.accounting import epsilon

BATCH = 1000  # runs of one call: always so many, so that one program serves all checks


def attack(subject: Subject, *, runs: int, seed: int, confidence: float, delta: float) -> Finding:
    """The canary takes part in the rounds that draw it, or in none; what is released tells which.

    Each run has its own keys and cohorts. With Poisson sampling, runs whose draws leave the canary
    out have the law of runs without that client. The score is the log likelihood ratio of all
    released increments, sum over rounds of log(1 - q + q exp((y - 1/2) / z^2)), y the increment
    along the canary's upload in clips, q and z those of the accounted event.
    """
    run = subject.run
    seeds = run_seeds(seed, runs)
    there = drawn(run, seeds)
    gone = there.copy()
    gone[:, :, subject.canary] = False
    upload = _upload(subject, int(seeds[0]))
    strength = float(np.linalg.norm(upload))
    along = upload / strength
    scores = [_score(subject, play(run, seeds, present), along) for present in (there, gone)]
    found = lower_bound(*scores, delta=delta, confidence=confidence)
    event = run.event
    return Finding(
        mechanism=f"{subject.name}, end to end, multiplier {event.noise:g}, rate {event.rate:g}",
        kind="attack",
        claimed=epsilon([(event, run.rounds)], delta=delta),
        lower_bound=found.epsilon,
        delta=delta,
        relation="add-remove",
        confidence=confidence,
        detail=f"{runs:,} runs of {run.rounds} rounds with a canary of {strength:.4f} clips, and "
        "without it",
    )


def run_seeds(seed: int, runs: int) -> np.ndarray:
    """Seeds of `runs` runs, no two the same."""
    check.count("audit", least=4, runs=runs)
    first = int(random.stream(seed, "init").integers(2**30))
    return first + np.arange(runs)


def drawn(run: Run, seeds: np.ndarray) -> np.ndarray:
    """Who the run's cohort draws, (num_runs, rounds, num_clients), a draw a seed."""
    present = np.zeros((len(seeds), run.rounds, run.num_clients), bool)
    for place, seed in enumerate(seeds):
        clients, there = replace(run, seed=int(seed)).cohorts(0, run.rounds, run.rounds)
        rows, slots = np.nonzero(there)
        present[place, rows, clients[rows, slots]] = True
    return present


def play(
    run: Run,
    seeds: np.ndarray,
    present: np.ndarray,
    *,
    start: Callable[[State], State] | None = None,
) -> np.ndarray:
    """Gamma before the first and after each round, (num_runs, rounds + 1, size), flattened as a
    message is.

    The engine's own rounds, batched over runs: each has its seed and, in `present` (num_runs,
    rounds, num_clients), its cohorts. `start` changes the initial states.
    """
    found = []
    for first in range(0, len(seeds), BATCH):
        own = slice(first, first + BATCH)
        number = len(seeds[own])
        wanted = np.resize(np.arange(number), BATCH)  # a short batch repeats itself
        gamma = _play(run, seeds[own][wanted], present[own][wanted], start)
        found.append(gamma[:number])
    return np.concatenate(found)


def _play(
    run: Run, seeds: np.ndarray, present: np.ndarray, start: Callable[[State], State] | None
) -> np.ndarray:
    numbers: Any = jnp.asarray(seeds)
    roots = jax.vmap(random.root)(numbers)
    channel_roots = jax.vmap(run.channel_root)(roots)
    memory = run.shapes()[1]
    states = _initial(roots, algorithm=run.algorithm)
    if start is not None:
        states = start(states)
    shape = (len(seeds), run.num_clients)
    memories = tree.combine(lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), memory)
    enrolled = jnp.zeros(shape, bool)
    found = [_released(states)]
    for round in range(present.shape[1]):
        states, memories, enrolled = _one_round(
            states,
            memories,
            enrolled,
            run.federation.train.pooled(),
            jnp.asarray(present[:, round]),
            round,
            roots,
            channel_roots,
            algorithm=run.algorithm,
            channel=run.channel,
            expected_size=run.expected_size,
        )
        found.append(_released(states))
    return np.stack(found, axis=1)


def _released(states: State) -> np.ndarray:
    """Gamma of each run as a row."""
    leaves = jax.tree.leaves(states["gamma"])
    return np.concatenate(
        [np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1
    )


@partial(jax.jit, static_argnames="algorithm")
def _initial(roots: Key, *, algorithm: Algorithm) -> State:
    return jax.vmap(lambda root: algorithm.init(random.fold(root, "init")))(roots)


@partial(jax.jit, static_argnames=("algorithm", "channel", "expected_size"))
def _one_round(
    states: State,
    memories: Memory,
    enrolled: Array,
    data: ClientData,
    present: Array,  # (num_runs, num_clients)
    round: Array,
    roots: Key,
    channel_roots: Key,
    *,
    algorithm: Algorithm,
    channel: Channel,
    expected_size: float,
) -> tuple[State, Memory, Array]:
    clients = jnp.arange(present.shape[1], dtype=jnp.int32)[None]

    def one(
        state: State, memory: Memory, known: Array, there: Array, root: Key, channel_root: Key
    ) -> tuple:
        state, memory, known, _ = play_rounds(
            state,
            memory,
            known,
            data,
            clients,
            there[None],
            round,
            1,
            root,
            channel_root,
            algorithm=algorithm,
            channel=channel,
            expected_size=expected_size,
        )
        return state, memory, known

    return jax.vmap(one)(states, memories, enrolled, present, roots, channel_roots)


def _upload(subject: Subject, seed: int) -> np.ndarray:
    """The canary's first upload in clips: it alone, less nobody, the noise being the same."""
    run = subject.run
    present = np.zeros((2, run.rounds, run.num_clients), bool)
    present[0, 0, subject.canary] = True
    gamma = play(run, np.array([seed, seed]), present)
    upload = (gamma[0, 1] - gamma[1, 1]) * subject.units()
    norm = np.linalg.norm(upload)
    rule = "a client whose upload is finite and not zero"
    check.require(bool(0 < norm < math.inf), "audit", "canary", rule, subject.canary)
    return np.asarray(upload)


def _score(subject: Subject, gamma: np.ndarray, along: np.ndarray) -> np.ndarray:
    event = subject.run.event
    moved = np.diff(gamma, axis=1) * subject.units() @ along
    absent = math.log1p(-event.rate) if event.rate < 1 else -math.inf
    present = math.log(event.rate) + (moved - 0.5) / event.noise**2
    return np.asarray(np.logaddexp(absent, present).sum(axis=1))
