"""What the twins of whole rounds share: a softmax model in NumPy, and the library's rounds.

A twin is written from its paper, in float64, with explicit gradients. It shares with the library
the first parameters and the positions of the batches, which have tests of their own. The first
clients take part in every round; the last one is a newcomer.
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

ROUNDS, STEPS, CLASSES = 2, 2, 3
THETA_RATE, GAMMA_RATE, DECAY, WEIGHT_DECAY, CLIP = 0.6, 0.8, 0.7, 0.05, 0.5
BATCHES = fedprior.Batches(size=4)
# Every step of every round has a rate and a batch of its own, and some gradients are cut.
SHAPED = {"decay": DECAY, "steps_per_epoch": 1, "weight_decay": WEIGHT_DECAY, "clip": CLIP}
PLAIN = {
    "steps": fedprior.Steps(local_steps=STEPS, batches=BATCHES, **SHAPED),
    "weight": "samples",
}
COMMON = {"theta_rate": THETA_RATE, "gamma_rate": GAMMA_RATE, **PLAIN}


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
class Played:
    """Rounds of the clients 0, ..., n - 2 by the library, and then the thetas of all n clients."""

    first: Any  # the state before
    state: Any  # the state after
    memories: Any
    thetas: Any
    words: np.ndarray  # of each client's batches
    federation: fedprior.Federation

    @property
    def cohort(self):
        return range(len(self.words) - 1)

    @property
    def newcomer(self):
        return len(self.words) - 1

    @property
    def sizes(self):
        """Samples of those who took part."""
        return [len(self.samples(client)[1]) for client in self.cohort]

    def samples(self, client):
        """All of a client's training samples, with a column of ones."""
        data = self.federation.train.client(client)
        return np.hstack([np.ones((len(data.x), 1)), data.x]), np.asarray(data.y)

    def batch(self, client, step, words=None):
        """The positions of its batch number `step`, and (x, y) there."""
        x, y = self.samples(client)
        words = self.words[client] if words is None else words
        index, mask = _positions(words, np.int32(step), np.int32(len(x)))
        index = np.asarray(index)[np.asarray(mask)]
        return index, x[index], y[index]

    def mean(self, values):
        """The mean over those who took part, by their numbers of samples."""
        assert len(set(self.sizes)) > 1
        return np.average(values, axis=0, weights=self.sizes)

    def theta(self, client, part=None):
        thetas = self.thetas if part is None else self.thetas[part]
        return jax.tree.map(lambda leaf: leaf[client], thetas)


@jax.jit
def _positions(words, step, size):
    rows = jnp.arange(4 * 8)  # wider than any client: only the batch's own width counts
    return BATCHES.at(words, step, fedprior.data.ClientData(rows, rows, jnp.int32(0), size, rows))


def played_by(algorithm, federation, *, rounds=ROUNDS, clients=3, state=None):
    """Enrollment, `rounds` rounds of all clients but the last one, everybody's theta."""
    numbers, key = np.arange(clients, dtype=np.int32), random.root(7)
    keys = jax.vmap(lambda number: random.fold(key, "enroll", number))(numbers)
    first = algorithm.init(key) if state is None else state
    memories = jax.vmap(algorithm.enroll, in_axes=(None, 0, 0))(first, numbers, keys)
    axes = {"in_axes": (None, 0, PADDED_AXES, None)}

    @jax.jit
    def program(state, memories, data):
        def one_round(_, carry):
            state, before = carry
            messages, after = jax.vmap(algorithm.local, **axes)(state, before, data, key)
            total = jax.tree.map(lambda leaf: leaf[:-1].sum(axis=0), messages)
            after = jax.tree.map(lambda new, old: new.at[-1].set(old[-1]), after, before)
            return algorithm.update(state, total), after

        state, after = jax.lax.fori_loop(0, rounds, one_round, (state, memories))
        return state, after, jax.vmap(algorithm.personalize, **axes)(state, after, data, key)

    after = program(first, memories, federation.train.padded(numbers))
    return Played(first, *after, np.asarray(memories["words"]), federation)


def rate(time):
    """What rates are multiplied by at the step number `time`."""
    return DECAY**time


def cut(gradient, bound=CLIP):
    return gradient * bound / max(bound, np.linalg.norm(gradient))


def moved(parameters, gradient, first_rate, time):
    """One step: the gradient is cut, weight decay is added, the rate decays."""
    return parameters - first_rate * rate(time) * (cut(gradient) + WEIGHT_DECAY * parameters)


def times(round_):
    """The numbers of the steps of a round."""
    return range(round_ * STEPS, (round_ + 1) * STEPS)


def probabilities(theta, x):
    return softmax(x @ theta, axis=1)


def pull_back(d_logits, x):
    """Gradient of a mean over samples, from that of each sample by its logits."""
    return x.T @ d_logits / len(x)


def slope(theta, x, y):
    """Gradient of the mean cross entropy."""
    return pull_back(probabilities(theta, x) - np.eye(CLASSES)[y], x)


def loss(theta, x, y):
    """Mean cross entropy."""
    return -log_softmax(x @ theta, axis=1)[np.arange(len(y)), y].mean()


def student_slope(theta, teacher, x):
    """Gradient by theta of the mean over samples of KL(p_teacher || p_theta)."""
    return pull_back(probabilities(theta, x) - probabilities(teacher, x), x)


def teacher_slope(theta, teacher, x):
    """Gradient by the teacher's parameters of the mean over samples of KL(p_teacher || p_theta)."""
    own, taught = log_softmax(x @ teacher, axis=1), log_softmax(x @ theta, axis=1)
    away = np.sum(np.exp(own) * (own - taught), axis=1, keepdims=True)
    return pull_back(np.exp(own) * (own - taught - away), x)


def agree(found, wanted):
    close(stacked(found), wanted)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
