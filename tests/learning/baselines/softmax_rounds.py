"""What the twins of this folder share: softmax regression in NumPy, and a pair of clients."""

import jax
import numpy as np
from scipy.special import softmax
from softmax_twin import init, stacked

import fedprior
from fedprior.core import random
from fedprior.data.federation import PADDED_AXES

ROUNDS, STEPS, THETA_RATE, GAMMA_RATE = 2, 2, 0.2, 0.3
COMMON = {
    "local_steps": STEPS,
    "theta_rate": THETA_RATE,
    "gamma_rate": GAMMA_RATE,
    "batches": fedprior.Batches(steps_per_epoch=1),  # every step reads all of a client's samples
}


def start():
    """The first parameters of a run, (1 + features, classes)."""
    return stacked(init(random.fold(random.root(0), "init"))).astype(float)


def pair():
    """Two clients of 5 and 8 samples."""
    draws = np.random.default_rng(3)
    x, own = draws.normal(size=(13, 4)), np.repeat([0, 1], [5, 8])
    y = np.array(list("abc"))[np.arange(13) % 3]
    return fedprior.Federation.from_arrays(x, y, own, valid_share=0.0, test_share=0.0)


def samples(federation):
    """(x with a column of ones, y) of every client."""
    parts = [federation.train.client(client) for client in range(federation.num_clients)]
    return [(np.hstack([np.ones((len(p.x), 1)), p.x]), np.asarray(p.y)) for p in parts]


def loss(theta, x, y):
    """Mean cross entropy."""
    return -np.log(softmax(x @ theta, axis=1)[np.arange(len(y)), y]).mean()


def personal(algorithm, federation, state, memories=None):
    """Every client's theta, stacked; without memories, as newcomers."""
    root, number = random.root(0), np.arange(federation.num_clients)

    def one(memory, client, data):
        if memory is None:
            memory = algorithm.enroll(state, client, random.fold(root, "enroll", client))
        return algorithm.personalize(state, memory, data, root)

    axes = (None if memories is None else 0, 0, PADDED_AXES)
    thetas = jax.jit(jax.vmap(one, in_axes=axes))
    return thetas(memories, number, federation.train.padded(number))


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
