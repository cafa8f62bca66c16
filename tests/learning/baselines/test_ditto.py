"""Ditto against its Algorithm 1 in NumPy."""

import numpy as np
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
    start,
)
from softmax_twin import MODEL, slope, stacked

import fedprior

PENALTY = 0.7


def test_rounds_are_those_of_algorithm_1(play):
    """v on f + penalty/2 ||v - w||^2 at the w received; w by FedAvg, which never sees v."""
    clients = pair()
    algorithm = fedprior.ditto(MODEL, penalty=PENALTY, **COMMON)
    state, memories = play(algorithm, clients, ROUNDS)
    mean, own = start(), [start(), start()]
    for _ in range(ROUNDS):
        ends = []
        for client, (x, y) in enumerate(samples(clients)):
            copy = mean
            for _ in range(STEPS):
                copy = copy - GAMMA_RATE * slope(copy, x, y)
                pull = PENALTY * (own[client] - mean)
                own[client] = own[client] - THETA_RATE * (slope(own[client], x, y) + pull)
            ends.append(copy)
        mean = np.mean(ends, axis=0)
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(personal(algorithm, clients, state, memories)), np.stack(own))
