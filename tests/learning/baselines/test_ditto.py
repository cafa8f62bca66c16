"""Ditto against its Algorithm 1 in NumPy."""

from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    MODEL,
    ROUNDS,
    THETA_RATE,
    agree,
    moved,
    played_by,
    slope,
    stacked,
    times,
)

import fedprior

PENALTY = 0.7


def test_rounds_are_those_of_algorithm_1(federation):
    """v on f + penalty/2 ||v - w||^2 at the w received; w by FedAvg, which never sees v."""
    played = played_by(fedprior.learning.ditto(MODEL, penalty=PENALTY, **COMMON), federation)
    mean = stacked(played.first["gamma"]["mean"])
    own = dict.fromkeys(played.cohort, mean)

    def held(client, v, *, number, time):
        _, x, y = played.batch(client, number)
        return moved(v, slope(v, x, y) + PENALTY * (v - mean), THETA_RATE, time)

    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            copy = mean
            for time in times(round_):
                copy = moved(copy, slope(copy, *played.batch(client, time)[1:]), GAMMA_RATE, time)
                own[client] = held(client, own[client], number=time, time=time)
            ends.append(copy)
        mean = played.mean(ends)
    agree(played.state["gamma"]["mean"], mean)
    for client, v in own.items():
        agree(played.theta(client), v)
    v = mean  # a newcomer's, from the newest mean and held toward it
    for number, time in enumerate(times(ROUNDS)):
        v = held(played.newcomer, v, number=number, time=time)
    agree(played.theta(played.newcomer), v)
