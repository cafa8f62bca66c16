"""Mean-regularized multi-task learning against NumPy."""

import numpy as np
from softmax_rounds import COMMON, ROUNDS, STEPS, THETA_RATE, close, pair, personal, samples, start
from softmax_twin import MODEL, slope, stacked

import fedprior

PENALTY = 0.7


def test_the_mean_is_the_average_of_the_thetas(play):
    """v on f + penalty/2 ||v - mean||^2, mean = the average of last round's v."""
    clients = pair()
    algorithm = fedprior.mean_regularized(MODEL, penalty=PENALTY, weight="samples", **COMMON)
    state, memories = play(algorithm, clients, ROUNDS)
    mean, own = start(), [start(), start()]
    for _ in range(ROUNDS):
        for client, (x, y) in enumerate(samples(clients)):
            for _ in range(STEPS):
                pull = PENALTY * (own[client] - mean)
                own[client] = own[client] - THETA_RATE * (slope(own[client], x, y) + pull)
        mean = np.average(own, axis=0, weights=[5, 8])
    close(stacked(state["gamma"]["mean"]), mean)
    close(stacked(personal(algorithm, clients, state, memories)), np.stack(own))
    assert not algorithm.unit_weight
    assert not algorithm.memoryless


def test_for_one_size_of_clients_it_is_the_gaussian_prior_of_the_family():
    """penalty = 1 / (n scale^2): the same but for the normalizer."""
    scale, size = 0.6, 5
    gaussian = fedprior.Gaussian(scale=scale)
    tether = fedprior.Tether(strength=1 / (size * scale**2))
    near, far = ({"weight": np.array(away, np.float32)} for away in ([0.1, 0.2], [1.0, -2.0]))

    def rise(population, share):
        gamma = population.start({"weight": np.zeros(2, np.float32)})
        low, high = (population.penalty(gamma, w, None, None, None) for w in (near, far))
        return share * float(high - low)

    close(rise(gaussian, 1 / size), rise(tether, 1))
