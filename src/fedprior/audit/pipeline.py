"""Conformance of a complete private run: its uploads, its divisor and its noise.

Each check compares the actual run with the event that is accounted for.
"""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.audit.draws import clip_finding, longest, noise_finding
from fedprior.audit.finding import Finding
from fedprior.audit.losses import epsilon_from_below
from fedprior.audit.runs import play, run_seeds
from fedprior.audit.subject import Subject
from fedprior.core import random, tree
from fedprior.core.algorithm import Array, Key, Message
from fedprior.core.protocols import Channel
from fedprior.engines.round import pool
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event

# Rounding of a float32 state near 4 (psi), in clips of a message: 2.4e-7 * 3 / (2 * 0.2) = 2e-6;
# and of the mean, whose entries stay below 1. The faults to be detected are of order 1.
_ROUNDING = 1e-4
_SIZES = (0.0, 1e-38, 0.5, 1.0, 1 + 1e-6, 10.0, 1e10, 1e19, 1e30)
_WEIGHTS = (1.0, 1e6)
# Less noise than this is rounded up to it: epsilon is in the hundreds, and the bound stays valid.
LEAST_NOISE = 0.2


def check_uploads(subject: Subject, *, delta: float) -> Finding:
    """Check that uploads through the engine have norm at most `clip` and carry no weight."""
    agreement = subject.agreement
    like = agreement.message
    size = tree.size(like.value)
    vectors = subject.clip * _vectors(size)
    number = len(vectors)
    messages = Message(
        jax.vmap(lambda row: tree.unflatten(row, like.value))(jnp.asarray(vectors, jnp.float32)),
        jnp.asarray(np.resize(_WEIGHTS, number), jnp.float32),
    )
    channel = _Undecoded(agreement.channel)
    rules = replace(agreement.rules, channel=channel)

    def total(present: Array) -> tuple[Array, Array]:
        clients, finite = jnp.arange(number), jnp.ones(number, bool)
        pooled, _ = pool(rules, messages, present, finite, clients, 0, agreement.keys())
        return tree.flatten(pooled.value), pooled.weight

    masks = np.concatenate([np.eye(number, dtype=bool), np.zeros((1, number), bool)])
    masks = np.concatenate([masks, np.ones((1, number), bool)])
    sent, weight = jax.jit(jax.vmap(total))(jnp.asarray(masks))
    faults = []
    if channel.lengths != {size}:
        faults.append("a weight leaves the client with its message")
    if not np.allclose(weight, rules.expected_size, rtol=1e-6):
        faults.append("the divisor is not the public expected size")
    ratio = longest(sent[:number]) / subject.clip
    finding = _clip_finding(subject, "uploads of a client", ratio, delta)
    return replace(finding, faults=(*finding.faults, *faults))


def check_influence(subject: Subject, *, pairs: int, seed: int, delta: float) -> Finding:
    """Check that one client changes the release by at most clip / expected size in any cohort.

    Compares two runs with the same draws and the same cohorts, except for one client in the last
    round, on inputs from zero to the largest floats. A divisor that depends on the cohort would
    also rescale the noise.
    """
    edges = subject.at_the_edges()
    num_clients = edges.federation.num_clients
    stream = random.stream(seed, "cohort")
    present = stream.random((pairs, edges.rounds, num_clients)) < stream.random((pairs, 1, 1))
    present[:num_clients, -1] = False  # also without any other client
    chosen = np.arange(pairs) % num_clients
    present[np.arange(pairs), -1, chosen] = True
    absent = present.copy()
    absent[np.arange(pairs), -1, chosen] = False
    seeds = np.repeat(run_seeds(seed, pairs), 2)
    cohorts = np.stack([present, absent], axis=1).reshape(-1, *present.shape[1:])
    gamma = play(edges, seeds, cohorts)
    last = gamma[:, -1] * edges.units()
    ratio = longest(last[::2] - last[1::2]) * (1 - _ROUNDING)
    return _clip_finding(subject, "one client's effect on gamma", ratio, delta)


def check_noise(
    subject: Subject, *, runs: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Check that empty rounds add the stated noise / expected size to every block of gamma."""
    nobody = np.zeros((runs, subject.rounds, subject.federation.num_clients), bool)
    gamma = play(subject, run_seeds(seed, runs), nobody)
    noise = subject.totals(gamma).reshape(runs, -1)
    return noise_finding(
        f"{subject.name}, empty rounds",
        noise,
        subject.agreement.event.noise,
        _claimed(subject, delta),
        lambda scale: _cost(subject, scale, delta),
        delta=delta,
        confidence=confidence,
        family="runs",
    )


class _Undecoded(Channel):
    """A channel without `decode`, to observe uploads; records the lengths of the messages."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.lengths: set[int] = set()

    @property
    def private(self) -> bool:
        return self.channel.private

    def encode(self, message: Array, key: Key) -> Array:
        self.lengths.add(message.shape[-1])
        return self.channel.encode(message, key)


def _vectors(size: int) -> np.ndarray:
    """Messages in units of the clip: along each coordinate and all of them, of every magnitude."""
    directions = np.concatenate([np.eye(size), np.full((1, size), size**-0.5)])
    signs = np.resize([1.0, -1.0], len(directions))[:, None]
    return np.concatenate([magnitude * signs * directions for magnitude in _SIZES])


def _clip_finding(subject: Subject, what: str, ratio: float, delta: float) -> Finding:
    event = subject.agreement.event

    def cost(excess: float) -> float:
        return _cost(subject, event.noise / excess, delta)

    claimed = _claimed(subject, delta)
    return clip_finding(subject.name, ratio, claimed, cost, delta=delta, what=what, family="runs")


def _claimed(subject: Subject, delta: float) -> float:
    return epsilon([(subject.agreement.event, subject.rounds)], delta=delta)


def _cost(subject: Subject, noise: float, delta: float) -> float:
    """Epsilon of the whole run if its rounds had this noise multiplier, from below."""
    event = replace(subject.agreement.event, noise=max(noise, LEAST_NOISE))
    return _below(event, subject.rounds, delta)


@lru_cache
def _below(event: Event, rounds: int, delta: float) -> float:
    return epsilon_from_below([(event, rounds)], delta=delta, relation="add-remove")
