"""APFL against its Algorithm 1 in NumPy."""

import numpy as np
import pytest
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

MIXING, MIXING_RATE = 0.3, 2.0


def test_rounds_are_those_of_algorithm_1(play):
    """v on f(a v + (1 - a) w), w on f(w), both from the same values; a once a round, in [0, 1]."""
    clients = pair()
    algorithm = fedprior.apfl(MODEL, mixing=MIXING, mixing_rate=MIXING_RATE, **COMMON)
    state, memories = play(algorithm, clients, ROUNDS)
    mean, own, mixing = start(), [start(), start()], [MIXING, MIXING]
    for _ in range(ROUNDS):
        ends = []
        for client, (x, y) in enumerate(samples(clients)):
            a, v, w = mixing[client], own[client], mean
            down = np.sum((v - w) * slope(a * v + (1 - a) * w, x, y))
            a = mixing[client] = np.clip(a - MIXING_RATE * down, 0, 1)
            for _ in range(STEPS):
                by_v = a * slope(a * v + (1 - a) * w, x, y)
                v, w = v - THETA_RATE * by_v, w - GAMMA_RATE * slope(w, x, y)
            own[client] = v
            ends.append(w)
        mean = np.mean(ends, axis=0)
    assert min(mixing) == 0 or max(mixing) == 1  # one of them met its bound
    assert len(set(mixing)) == 2
    close(stacked(state["gamma"]["mean"]), mean)
    close(memories["mixing"], mixing)
    scored = [a * v + (1 - a) * mean for a, v in zip(mixing, own, strict=True)]
    close(stacked(personal(algorithm, clients, state, memories)), np.stack(scored))
    theta = []
    for x, y in samples(clients):  # newcomers: v from the newest mean
        v = mean
        for _ in range(STEPS):
            v = v - THETA_RATE * MIXING * slope(MIXING * v + (1 - MIXING) * mean, x, y)
        theta.append(MIXING * v + (1 - MIXING) * mean)
    close(stacked(personal(algorithm, clients, state)), np.stack(theta))


def test_mixing_lies_in_0_to_1():
    with pytest.raises(ValueError, match=r"^apfl: mixing must be in \[0, 1\], got 1.5"):
        fedprior.apfl(MODEL, mixing=1.5)
