"""FedRep against its Algorithm 1 in NumPy: a two-layer network, the head first."""

import numpy as np
import pytest
from scipy.special import softmax
from softmax_rounds import (
    COMMON,
    GAMMA_RATE,
    ROUNDS,
    STEPS,
    THETA_RATE,
    close,
    pair,
    personal,
    samples,
)
from softmax_twin import slope

import fedprior
from fedprior.core import random

NETWORK = fedprior.mlp((4,), 3, hidden=(6,))


def joined(layer):
    return np.concatenate([np.asarray(layer["bias"])[..., None, :], layer["weight"]], axis=-2)


def test_rounds_are_those_of_algorithm_1(play):
    """Three steps of the head at the body received, two of the body under the head at rest."""
    clients, head_steps = pair(), 3
    algorithm = fedprior.fedrep(NETWORK, head_steps=head_steps, **COMMON)
    state, memories = play(algorithm, clients, ROUNDS)
    first = NETWORK.init(random.fold(random.root(0), "init"))
    body, head = (joined(layer).astype(float) for layer in first)
    own = [head, head]
    for _ in range(ROUNDS):
        ends = []
        for client, (x, y) in enumerate(samples(clients)):
            hidden = np.hstack([np.ones((len(x), 1)), np.maximum(x @ body, 0)])
            for _ in range(head_steps):
                own[client] = own[client] - THETA_RATE * slope(own[client], hidden, y)
            copy = body
            for _ in range(STEPS):
                hidden = np.hstack([np.ones((len(x), 1)), np.maximum(x @ copy, 0)])
                residual = softmax(hidden @ own[client], axis=1) - np.eye(3)[y]
                inner = residual @ own[client][1:].T * (x @ copy > 0)
                copy = copy - GAMMA_RATE * x.T @ inner / len(x)
            ends.append(copy)
        body = np.mean(ends, axis=0)
    close(joined(state["gamma"]["body"][0]), body)
    close(joined(memories["w"][1]), np.stack(own))
    theta = personal(algorithm, clients, state, memories)
    close(joined(theta[0]), np.stack([body, body]))
    close(joined(theta[1]), np.stack(own))
    assert not algorithm.memoryless


def test_there_is_a_step_of_the_head():
    with pytest.raises(ValueError, match=r"^fedrep: head_steps must be a whole number of at "):
        fedprior.fedrep(NETWORK, head_steps=0)
