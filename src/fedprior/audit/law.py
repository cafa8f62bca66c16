"""The law of messages: an upload depends on public facts, the state and its own client's data.

One client is heard alone while others take part, are replaced by larger, smaller and louder ones:
what the server learns of the first must stay the same to the bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import jax
import numpy as np

from fedprior.audit.finding import Finding
from fedprior.audit.probe import federation_of
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core.algorithm import Algorithm, Array, Key
from fedprior.data.federation import Federation
from fedprior.engines.device import DeviceEngine
from fedprior.engines.run import Run
from fedprior.exchange.agreement import Agreement

_ROUNDS = 3
_OWN = 5  # rows of the client that is heard


@dataclass(frozen=True, kw_only=True)
class _Heard(CentralGaussian):
    """A channel that lets the server hear the first client only, without noise."""

    def add(self, rows: Array) -> Array:
        return rows[0]

    def decode(self, total: Array, key: Key) -> Array:
        return total


def check_replacement(name: str, make: Callable[[], Algorithm]) -> Finding:
    """Replace the other clients of a run, and compare what the server learns of the first.

    `make` returns the method; the clients have two features and two classes. A method that is
    refused under a private channel raises its PrivacyError.
    """
    algorithm = make()
    channel = _Heard(clip=algorithm.bound or 0.3, noise_multiplier=1.0)
    worlds = {
        "others of its size": _crowd((_OWN, _OWN), 1.0),
        "a larger and a smaller one": _crowd((40, 1), 1.0),
        "ones with inputs of 1e30": _crowd((_OWN, _OWN), 1e30),
    }
    states = {}
    for world, federation in worlds.items():
        agreement = Agreement.of(algorithm, federation, channel=channel, seed=1)
        engine = DeviceEngine(Run(agreement=agreement, federation=federation, rounds=_ROUNDS))
        engine.advance(_ROUNDS)
        states[world] = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(engine.state)]
    first = next(iter(states.values()))
    moved = [world for world, state in states.items() if state != first]
    return Finding(
        family="law of messages",
        mechanism=name,
        detail=f"{_ROUNDS} uploads of one client, the others replaced by {len(worlds)} kinds",
        detects="one bit",
        confidence=1.0,
        claim="the same upload, whoever the others are",
        faults=tuple(f"the upload changes with the others: {world}" for world in moved),
    )


def _crowd(sizes: tuple[int, ...], scale: float) -> Federation:
    """Return the client that is heard, and others of the given sizes and inputs."""
    own, others = np.random.default_rng(0), np.random.default_rng(len(sizes) + sum(sizes))
    x = np.concatenate(
        [own.normal(size=(_OWN, 2)), scale * others.normal(size=(sum(sizes), 2))]
    ).astype(np.float32)
    y = np.concatenate([np.arange(_OWN) % 2, others.integers(0, 2, sum(sizes))]).astype(np.int32)
    edges = np.cumsum([0, _OWN, *sizes])
    rows = [np.arange(low, high) for low, high in pairwise(edges)]
    return federation_of(x, y, rows, name="crowd")
