"""FedProx against NumPy."""

import numpy as np
from softmax_rounds import COMMON, GAMMA_RATE, ROUNDS, STEPS, close, pair, personal, samples, start
from softmax_twin import MODEL, slope, stacked

import fedprior

PENALTY = 0.7


def test_clients_stay_near_the_model_received(play):
    """w <- w - rate (grad f(w) + weight decay w + penalty (w - received)); the server averages."""
    clients = pair()
    algorithm = fedprior.fedprox(MODEL, penalty=PENALTY, weight_decay=0.05, **COMMON)
    state, memories = play(algorithm, clients, ROUNDS)
    mean = start()
    for _ in range(ROUNDS):
        ends = []
        for x, y in samples(clients):
            copy = mean
            for _ in range(STEPS):
                pull = PENALTY * (copy - mean) + 0.05 * copy
                copy = copy - GAMMA_RATE * (slope(copy, x, y) + pull)
            ends.append(copy)
        mean = np.mean(ends, axis=0)
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(personal(algorithm, clients, state, memories)), np.stack([mean, mean]))
    assert algorithm.memoryless
