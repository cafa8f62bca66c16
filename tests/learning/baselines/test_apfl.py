"""APFL against its Algorithm 1 in NumPy."""

import numpy as np
import pytest
from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    MODEL,
    ROUNDS,
    THETA_RATE,
    agree,
    close,
    moved,
    played_by,
    rate,
    slope,
    stacked,
    times,
)

import fedprior

MIXING, MIXING_RATE = 0.3, 7.5


def mixed(a, v, w):
    return a * v + (1 - a) * w


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.apfl(MODEL, mixing=MIXING, mixing_rate=MIXING_RATE, **COMMON)
    assert not algorithm.unit_weight
    return played_by(algorithm, federation)


def test_rounds_are_those_of_algorithm_1(played):
    """v on f(a v + (1 - a) w), w on f(w), both from the same values; a once a round, in [0, 1]."""
    mean = stacked(played.first["gamma"]["mean"])
    own, mixing = [mean for _ in played.cohort], [MIXING for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            a, v, w = mixing[client], own[client], mean
            first = times(round_)[0]
            down = np.sum((v - w) * slope(mixed(a, v, w), *played.batch(client, first)[1:]))
            a = mixing[client] = np.clip(a - MIXING_RATE * rate(first) * down, 0, 1)
            for time in times(round_):
                _, x, y = played.batch(client, time)
                by_v, by_w = a * slope(mixed(a, v, w), x, y), slope(w, x, y)
                v, w = moved(v, by_v, THETA_RATE, time), moved(w, by_w, GAMMA_RATE, time)
            own[client] = v
            ends.append(w)
        mean = played.mean(ends)
    assert mixing[0] == 0 < mixing[1]  # one of them met its bound
    agree(played.state["gamma"]["mean"], mean)
    close(played.memories["mixing"], [*mixing, MIXING])
    for client in played.cohort:
        agree(played.theta(client), mixed(mixing[client], own[client], mean))


def test_a_newcomer_trains_a_model_of_its_own_from_the_mean(played):
    v = mean = stacked(played.state["gamma"]["mean"])
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        v = moved(v, MIXING * slope(mixed(MIXING, v, mean), x, y), THETA_RATE, time)
    agree(played.theta(played.newcomer), mixed(MIXING, v, mean))


def test_rates_are_not_negative():
    with pytest.raises(ValueError, match=r"^apfl: mixing_rate must be a number of at least 0"):
        fedprior.learning.apfl(MODEL, mixing_rate=-1)


def test_mixing_lies_in_0_to_1():
    with pytest.raises(ValueError, match=r"^apfl: mixing must be in \[0, 1\], got 1.5"):
        fedprior.learning.apfl(MODEL, mixing=1.5)
