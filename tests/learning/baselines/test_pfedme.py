"""pFedMe against a NumPy twin of Algorithm 1 of Dinh et al. 2020."""

import numpy as np
import pytest
from softmax_twin import COMMON, MODEL, STEPS, agree, rate, slope, stacked, whole_round

import fedprior

PENALTY, THETA_RATE, GAMMA_RATE, DECAY, BETA = 1.5, 0.2, 0.4, 0.01, 0.7


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.pfedme(
        MODEL,
        penalty=PENALTY,
        inner_steps=3,
        server_rate=BETA,
        theta_rate=THETA_RATE,
        gamma_rate=GAMMA_RATE,
        weight_decay=DECAY,
        **COMMON,
    )
    assert algorithm.unit_weight
    assert algorithm.memoryless
    return whole_round(algorithm, federation)


def trained(played, client, received, first):
    """Theta and the client's w after its steps number `first` and on."""
    theta = w = received
    for step in range(first, first + STEPS):
        _, x, y = played.batch(client, step)
        for _ in range(3):  # all of them on one batch
            gradient = slope(theta, x, y) + PENALTY * (theta - w) + DECAY * theta
            theta = theta - THETA_RATE * rate(step) * gradient
        w = w - GAMMA_RATE * rate(step) * PENALTY * (w - theta)
    return theta, w


def test_a_round_is_that_of_the_paper(played):
    """Inner steps toward the proximal point, w toward it, the server's (1 - beta) w + beta mean."""
    start = stacked(played.start)
    clients = [trained(played, client, start, 0)[1] for client in (0, 1)]
    wanted = (1 - BETA) * start + BETA * np.mean(clients, axis=0)
    agree(played.gamma, wanted)
    assert np.abs(wanted - start).max() > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_is_theta_of_the_newest_w(played, client):
    """Whoever took part: the paper has all clients train on each w. Training samples only."""
    theta, w = trained(played, client, stacked(played.gamma), STEPS)
    found = {name: leaf[client] for name, leaf in played.thetas.items()}
    agree(found, theta)
    assert np.abs(theta - w).max() > 0.01  # theta, not w


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"penalty": 0.0}, "penalty must be a positive number, got 0.0"),
        ({"inner_steps": 0}, "inner_steps must be a whole number of at least 1, got 0"),
        ({"server_rate": -1.0}, "server_rate must be a positive number, got -1.0"),
        ({"weight": "size"}, "weight must be one of uniform, samples, got 'size'"),
        ({"head": 1}, "option must be one of newcomer_steps, got 'head'"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^pfedme: {wording}"):
        fedprior.pfedme(MODEL, **option)
