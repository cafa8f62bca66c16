"""FedProx against NumPy."""

from softmax_twin import (
    GAMMA_RATE,
    MODEL,
    PLAIN,
    ROUNDS,
    WEIGHT_DECAY,
    agree,
    cut,
    played_by,
    rate,
    slope,
    stacked,
    times,
)

import fedprior

PENALTY = 0.7


def test_clients_stay_near_the_model_received(federation):
    """w <- w - rate (grad f(w) + weight decay w + penalty (w - received)); the server averages."""
    algorithm = fedprior.learning.fedprox(MODEL, penalty=PENALTY, gamma_rate=GAMMA_RATE, **PLAIN)
    assert algorithm.memoryless
    played = played_by(algorithm, federation)
    mean = stacked(played.first["gamma"]["mean"])
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            copy = mean
            for time in times(round_):
                gradient = cut(slope(copy, *played.batch(client, time)[1:]))
                pull = PENALTY * (copy - mean) + WEIGHT_DECAY * copy
                copy = copy - GAMMA_RATE * rate(time) * (gradient + pull)
            ends.append(copy)
        mean = played.mean(ends)
    agree(played.state["gamma"]["mean"], mean)
    for client in (*played.cohort, played.newcomer):
        agree(played.theta(client), mean)
