"""Many complete runs at once, and the attack on their releases."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.audit.channels import distinguished
from fedprior.audit.finding import Finding
from fedprior.audit.probe import members
from fedprior.audit.subject import Subject
from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, State
from fedprior.data.federation import ClientData
from fedprior.engines.device import Models, play_rounds
from fedprior.exchange.agreement import Keys, Rules
from fedprior.privacy.accounting import epsilon

BATCH = 1000  # runs per call; constant, so that one compiled program serves all checks


def attack(subject: Subject, *, runs: int, seed: int, confidence: float, delta: float) -> Finding:
    """Distinguish runs with the canary from runs without it by what is released.

    Each run has its own keys and cohorts. With Poisson sampling, runs from whose cohorts the canary
    is removed have the distribution of runs without that client. The score is the log likelihood
    ratio of all released increments, sum over rounds of log(1 - q + q exp((y - 1/2) / z^2)), where
    y is the increment along the canary's upload in clips, and q and z are those of the accounted
    event.
    """
    agreement, rounds = subject.agreement, subject.rounds
    seeds = run_seeds(seed, runs)
    present = drawn(subject, seeds)
    absent = present.copy()
    absent[:, :, subject.canary] = False
    upload = _upload(subject, int(seeds[0]))
    strength = float(np.linalg.norm(upload))
    along = upload / strength
    worlds = (present, absent)
    first, second = (_score(subject, play(subject, seeds, each), along) for each in worlds)
    event = agreement.event
    return distinguished(
        f"{subject.name}, end to end, multiplier {event.noise:g}, rate {event.rate:g}",
        (first, second),
        epsilon([(event, rounds)], delta=delta),
        confidence=confidence,
        delta=delta,
        relation="add-remove",
        family="runs",
        detail=f"{runs:,} runs of {rounds} rounds with a canary of {strength:.4f} clips, and as "
        "many without it",
    )


def run_seeds(seed: int, runs: int) -> np.ndarray:
    """Return distinct seeds for `runs` runs."""
    check.count("audit", least=4, runs=runs)
    first = int(random.stream(seed, "init").integers(2**30))
    return first + np.arange(runs)


def drawn(subject: Subject, seeds: np.ndarray) -> np.ndarray:
    """Return the agreement's cohorts for each seed, (num_runs, rounds, num_clients)."""
    agreements = (replace(subject.agreement, seed=int(seed)) for seed in seeds)
    shape = (subject.rounds, subject.federation.num_clients)
    return np.array([members(agreement.draw, *shape) for agreement in agreements])


def play(
    subject: Subject,
    seeds: np.ndarray,
    present: np.ndarray,
    *,
    start: Callable[[State], State] | None = None,
) -> np.ndarray:
    """Return gamma before the first and after each round, (num_runs, rounds + 1, size).

    Gamma is flattened in the order of a message. The rounds are those of the device engine, batched
    over runs: each run has its seed and, in `present` (num_runs, rounds, num_clients), its cohorts.
    `start` modifies the initial states.
    """
    batches = []
    for first in range(0, len(seeds), BATCH):
        batch = slice(first, first + BATCH)
        number = len(seeds[batch])
        places = np.resize(np.arange(number), BATCH)  # a short batch is filled with repetitions
        gamma = _play(subject, seeds[batch][places], present[batch][places], start)
        batches.append(gamma[:number])
    return np.concatenate(batches)


def _play(
    subject: Subject, seeds: np.ndarray, present: np.ndarray, start: Callable[[State], State] | None
) -> np.ndarray:
    agreement = subject.agreement
    keys = jax.vmap(lambda seed: agreement.keys(random.root(seed)))(jnp.asarray(seeds))
    states = _initial(keys.root, algorithm=agreement.algorithm)
    if start is not None:
        states = start(states)
    shape = (len(seeds), agreement.num_clients)
    memories = tree.combine(
        lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), agreement.shapes[1]
    )
    models = Models(states, memories, jnp.zeros(shape, bool))
    data = agreement.rules.open(subject.federation.train.pooled())
    released = [_released(models.state)]
    for round in range(present.shape[1]):
        models = _one_round(models, data, present[:, round], round, keys, rules=agreement.rules)
        released.append(_released(models.state))
    return np.stack(released, axis=1)


def _released(states: State) -> np.ndarray:
    """Gamma of each run, one row per run."""
    leaves = jax.tree.leaves(states["gamma"])
    return np.concatenate(
        [np.asarray(leaf, np.float64).reshape(len(leaf), -1) for leaf in leaves], axis=1
    )


@partial(jax.jit, static_argnames="algorithm")
def _initial(roots: Key, *, algorithm: Algorithm) -> State:
    return jax.vmap(lambda root: algorithm.init(random.fold(root, "init")))(roots)


@partial(jax.jit, static_argnames="rules")
def _one_round(
    models: Models, data: ClientData, present: Array, round: Array, keys: Keys, *, rules: Rules
) -> Models:
    """One round of every run; all clients have a slot in it, `present` or not."""
    clients = jnp.arange(present.shape[1], dtype=jnp.int32)[None]

    def one(models: Models, there: Array, keys: Keys) -> Models:
        return play_rounds(models, data, clients, there[None], round, 1, keys, rules=rules)[0]

    return jax.vmap(one)(models, present, keys)


def _upload(subject: Subject, seed: int) -> np.ndarray:
    """The canary's first upload in clips: a round with only the canary minus an empty round."""
    present = np.zeros((2, subject.rounds, subject.federation.num_clients), bool)
    present[0, 0, subject.canary] = True
    gamma = play(subject, np.array([seed, seed]), present)
    upload = (gamma[0, 1] - gamma[1, 1]) * subject.units()
    norm = np.linalg.norm(upload)
    rule = "a client whose upload is finite and not zero"
    check.require(bool(0 < norm < math.inf), "audit", "canary", rule, subject.canary)
    return np.asarray(upload)


def _score(subject: Subject, gamma: np.ndarray, along: np.ndarray) -> np.ndarray:
    event = subject.agreement.event
    moved = subject.totals(gamma) @ along
    absent = math.log1p(-event.rate) if event.rate < 1 else -math.inf
    present = math.log(event.rate) + (moved - 0.5) / event.noise**2
    return np.asarray(np.logaddexp(absent, present).sum(axis=1))
