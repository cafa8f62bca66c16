"""Small algorithms that compile at once, for tests of what surrounds an algorithm."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from fedprior.core.algorithm import Algorithm, Message
from fedprior.core.protocols import Cohort
from fedprior.data.federation import Federation, Split

MARK = 1e6  # a client with an input above it is the one that fails


def averaging(*, name="averaging", weight="uniform", rate=0.5):
    """Gamma = a running mean of the clients' mean inputs; memory = the client's own running mean.

    A score is minus the distance of a sample to the client's theta.
    """

    def init(key):
        return {"gamma": jnp.zeros(2), "level": jnp.zeros(()), "round": jnp.zeros((), jnp.int32)}

    def enroll(state, client, key):
        return {"own": state["gamma"], "visits": jnp.zeros((), jnp.int32)}

    def local(state, memory, data, key):
        x, _, mask = data.all()
        mean = jnp.sum(x * mask[:, None], axis=0) / data.size
        own = memory["own"] + rate * (mean - memory["own"]) / (1 + memory["visits"])
        size = data.size.astype(jnp.float32) if weight == "samples" else jnp.ones(())
        message = Message({"gamma": size * (own - state["gamma"])}, size)
        return message, {"own": own, "visits": memory["visits"] + 1}

    def update(state, total):
        share = 1 / jnp.where(total.weight > 0, total.weight, 1)
        gamma = state["gamma"] + share * total.value["gamma"]
        return {"gamma": gamma, "level": jnp.sum(gamma), "round": state["round"] + 1}

    def personalize(state, memory, data, key):
        return {"own": memory["own"], "gamma": state["gamma"]}

    return Algorithm(
        name=name,
        init=init,
        enroll=enroll,
        local=local,
        update=update,
        personalize=personalize,
        predict=lambda theta, x: jnp.abs(x - theta["own"]).sum(axis=-1),
        loss=lambda outputs, y: outputs,
        score=lambda outputs, y: -outputs,
        unit_weight=weight == "uniform",
    )


def points(num_clients=6, *, marked=None, valid=2, test=2):
    """Clients of 3 to 5 points in the plane around a place of their own."""
    draws = np.random.default_rng(11)
    places = draws.normal(size=(num_clients, 2))
    splits = []
    for least, most in ((3, 5), (valid, valid), (test, test)):
        size = draws.integers(least, most, num_clients, endpoint=True)
        own = np.repeat(np.arange(num_clients), size)
        x = (places[own] + 0.1 * draws.normal(size=(len(own), 2))).astype(np.float32)
        if marked is not None and least == 3:
            x[own == marked] = 2 * MARK
        rows = [np.flatnonzero(own == client) for client in range(num_clients)]
        splits.append(Split.gather(x, np.zeros(len(own), np.int32), rows))
    train, valid, test = splits
    clients = np.array([f"client-{number}" for number in range(num_clients)])
    known = {"clients": clients, "classes": ("a", "b"), "most_samples": 5, "name": "points"}
    return Federation(train=train, valid=valid, test=test, **known)


@dataclass(frozen=True)
class Scripted(Cohort):
    """A cohort given in advance: round r is `rounds[r % len(rounds)]`."""

    rounds: tuple[tuple[int, ...], ...]
    size: int

    def expected_size(self, num_clients):
        return float(self.size)

    def capacity(self, num_clients):
        return self.size

    def draw(self, seed, round, num_clients):
        return np.array(self.rounds[round % len(self.rounds)], np.int32)

    def amplify(self, event, num_clients):
        return event
