"""Mean-regularized multi-task learning against NumPy."""

import numpy as np
from softmax_twin import (
    MODEL,
    PLAIN,
    ROUNDS,
    THETA_RATE,
    agree,
    close,
    moved,
    played_by,
    slope,
    stacked,
    times,
)

import fedprior

PENALTY = 0.7


def test_the_mean_is_the_average_of_the_thetas(federation):
    """v on f + penalty/2 ||v - mean||^2, mean = the average of last round's v."""
    algorithm = fedprior.learning.mean_regularized(
        MODEL, penalty=PENALTY, theta_rate=THETA_RATE, **PLAIN
    )
    assert not algorithm.unit_weight
    assert not algorithm.memoryless
    played = played_by(algorithm, federation)
    mean = stacked(played.first["gamma"]["mean"])
    own = [mean for _ in played.cohort]

    def held(client, v, *, number, time):
        _, x, y = played.batch(client, number)
        return moved(v, slope(v, x, y) + PENALTY * (v - mean), THETA_RATE, time)

    for round_ in range(ROUNDS):
        for client in played.cohort:
            for time in times(round_):
                own[client] = held(client, own[client], number=time, time=time)
        mean = played.mean(own)
    agree(played.state["gamma"]["mean"], mean)
    for client, v in enumerate(own):
        agree(played.theta(client), v)
    v = mean
    for number, time in enumerate(times(ROUNDS)):
        v = held(played.newcomer, v, number=number, time=time)
    agree(played.theta(played.newcomer), v)


def test_for_one_size_of_clients_it_is_the_gaussian_prior_of_the_family():
    """penalty = 1 / (n scale^2): the same but for the normalizer."""
    scale, size = 0.6, 5
    gaussian = fedprior.populations.Gaussian(scale=scale)
    tether = fedprior.populations.Tether(strength=1 / (size * scale**2))
    near, far = ({"weight": np.array(away, np.float32)} for away in ([0.1, 0.2], [1.0, -2.0]))

    def rise(population, share):
        gamma = population.start({"weight": np.zeros(2, np.float32)})
        low, high = (population.penalty(gamma, w, None, None, None) for w in (near, far))
        return share * float(high - low)

    close(rise(gaussian, 1 / size), rise(tether, 1))
