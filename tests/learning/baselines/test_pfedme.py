"""pFedMe against a NumPy twin of Algorithm 1 of Dinh et al. 2020."""

import numpy as np
import pytest
from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    MODEL,
    ROUNDS,
    THETA_RATE,
    agree,
    moved,
    played_by,
    rate,
    slope,
    stacked,
    times,
)

import fedprior

PENALTY, BETA = 1.5, 0.7


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.pfedme(
        MODEL, penalty=PENALTY, inner_steps=3, server_rate=BETA, **COMMON
    )
    assert not algorithm.unit_weight
    assert algorithm.memoryless
    return played_by(algorithm, federation)


def trained(played, client, received, round_):
    """Theta and the client's w after a round's steps."""
    theta = w = received
    for time in times(round_):
        _, x, y = played.batch(client, time)
        for _ in range(3):  # all of them on one batch
            theta = moved(theta, slope(theta, x, y) + PENALTY * (theta - w), THETA_RATE, time)
        w = w - GAMMA_RATE * rate(time) * PENALTY * (w - theta)
    return theta, w


def test_rounds_are_those_of_the_paper(played):
    """Inner steps toward the proximal point, w toward it, the server's (1 - beta) w + beta mean."""
    w = stacked(played.first["gamma"])
    for round_ in range(ROUNDS):
        ends = [trained(played, client, w, round_)[1] for client in played.cohort]
        w = (1 - BETA) * w + BETA * played.mean(ends)
    agree(played.state["gamma"], w)


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_is_theta_of_the_newest_w(played, client):
    """Whoever took part: the paper has all clients train on each w. Training samples only."""
    theta, w = trained(played, client, stacked(played.state["gamma"]), ROUNDS)
    agree(played.theta(client), theta)
    assert np.abs(theta - w).max() > 0.01  # theta, not w


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"penalty": 0.0}, "penalty must be a positive number, got 0.0"),
        ({"inner_steps": 0}, "inner_steps must be a whole number of at least 1, got 0"),
        ({"server_rate": -1.0}, "server_rate must be a positive number, got -1.0"),
        ({"weight": "size"}, "weight must be one of uniform, samples, got 'size'"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^pfedme: {wording}"):
        fedprior.learning.pfedme(MODEL, **option)
