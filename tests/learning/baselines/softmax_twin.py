"""What the twins of one whole round share: a softmax model in NumPy, and the library's round.

A twin is written from its paper, in float64, with explicit gradients. It shares with the library
the first parameters and the positions of the batches, which have tests of their own. Two clients
take part; a third is a newcomer.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax

import fedprior
from fedprior.core import random
from fedprior.data.federation import PADDED_AXES

STEPS, CLASSES = 2, 3
BATCHES = fedprior.Batches(size=4)
# The second step of the round and both of the next one have rates of their own.
COMMON = {"local_steps": STEPS, "batches": BATCHES, "decay": 0.5, "steps_per_epoch": 1}


def init(key):
    """Random: no symmetry between classes, or between components."""
    first, second = jax.random.split(key)
    return {
        "intercept": jax.random.normal(first, (CLASSES,)),
        "weight": jax.random.normal(second, (4, CLASSES)),
    }


MODEL = fedprior.network(init, lambda theta, x: x @ theta["weight"] + theta["intercept"])


def stacked(parameters):
    """(..., 1 + features, classes), the intercepts first."""
    intercept = np.asarray(parameters["intercept"], float)[..., None, :]
    return np.concatenate([intercept, np.asarray(parameters["weight"], float)], axis=-2)


@dataclass
class Round:
    """One round of the clients 0 and 1 by the library, and then the thetas of 0, 1 and 2."""

    start: Any  # gamma before
    gamma: Any  # gamma after
    messages: Any
    memories: Any
    thetas: Any
    words: np.ndarray  # of each client's batches
    federation: fedprior.Federation

    def samples(self, client):
        """All of a client's training samples, with a column of ones."""
        data = self.federation.train.client(client)
        return np.hstack([np.ones((len(data.x), 1)), data.x]), np.asarray(data.y)

    def batch(self, client, step):
        """The positions of its batch number `step`, and (x, y) there."""
        x, y = self.samples(client)
        index, mask = _positions(self.words[client], np.int32(step), np.int32(len(x)))
        index = np.asarray(index)[np.asarray(mask)]
        return index, x[index], y[index]


@jax.jit
def _positions(words, step, size):
    rows = jnp.arange(4 * 8)  # wider than any client: only the batch's own width counts
    return BATCHES.at(words, step, fedprior.ClientData(rows, rows, jnp.int32(0), size, rows))


def whole_round(algorithm, federation):
    """Enrollment, two clients' messages, their sum, the server's update, three thetas."""
    numbers, key = np.arange(3, dtype=np.int32), random.root(7)
    keys = jax.vmap(lambda number: random.fold(key, "enroll", number))(numbers)
    state = algorithm.init(key)
    memories = jax.vmap(algorithm.enroll, in_axes=(None, 0, 0))(state, numbers, keys)

    @jax.jit
    def program(state, memories, data):
        axes = {"in_axes": (None, 0, PADDED_AXES, None)}
        messages, after = jax.vmap(algorithm.local, **axes)(state, memories, data, key)
        messages = jax.tree.map(lambda leaf: leaf[:2], messages)
        after = jax.tree.map(lambda new, old: new.at[2].set(old[2]), after, memories)
        state = algorithm.update(state, jax.tree.map(lambda leaf: leaf.sum(axis=0), messages))
        thetas = jax.vmap(algorithm.personalize, **axes)(state, after, data, key)
        return state["gamma"], messages, after, thetas

    gamma, messages, after, thetas = program(state, memories, federation.train.padded(numbers))
    words = np.asarray(memories["words"])
    return Round(state["gamma"], gamma, messages, after, thetas, words, federation)


def rate(time):
    """What rates are multiplied by at the step number `time`."""
    return COMMON["decay"] ** time


def probabilities(theta, x):
    return softmax(x @ theta, axis=1)


def pull_back(d_logits, x):
    """Gradient of a mean over samples, from that of each sample by its logits."""
    return x.T @ d_logits / len(x)


def slope(theta, x, y):
    """Gradient of the mean cross entropy."""
    return pull_back(probabilities(theta, x) - np.eye(CLASSES)[y], x)


def student_slope(theta, teacher, x):
    """Gradient by theta of the mean over samples of KL(p_teacher || p_theta)."""
    return pull_back(probabilities(theta, x) - probabilities(teacher, x), x)


def teacher_slope(theta, teacher, x):
    """Gradient by the teacher's parameters of the mean over samples of KL(p_teacher || p_theta)."""
    own, taught = log_softmax(x @ teacher, axis=1), log_softmax(x @ theta, axis=1)
    away = np.sum(np.exp(own) * (own - taught), axis=1, keepdims=True)
    return pull_back(np.exp(own) * (own - taught - away), x)


def agree(found, wanted):
    np.testing.assert_allclose(stacked(found), wanted, rtol=1e-5, atol=1e-5)
