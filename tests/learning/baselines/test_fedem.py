"""FedEM against a NumPy twin of Algorithm 1 of Marfoq et al. 2021."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from softmax_twin import (
    CLASSES,
    COMMON,
    MODEL,
    STEPS,
    agree,
    probabilities,
    pull_back,
    rate,
    stacked,
    whole_round,
)

import fedprior

GAMMA_RATE, DECAY = 0.4, 0.01
UNIFORM = np.full(2, 0.5)


@pytest.fixture(scope="module")
def algorithm():
    return fedprior.fedem(
        MODEL, gamma_rate=GAMMA_RATE, weight_decay=DECAY, weight="samples", **COMMON
    )


@pytest.fixture(scope="module")
def played(algorithm, federation):
    assert not algorithm.unit_weight
    assert not algorithm.memoryless
    return whole_round(algorithm, federation)


def expected(components, shares, x, y):
    """P(component | sample), (components, samples), and the shares that are its means."""
    losses = [-log_softmax(x @ one, axis=1)[np.arange(len(y)), y] for one in components]
    assigned = softmax(np.log(shares)[:, None] - np.array(losses), axis=0)
    return assigned, assigned.mean(axis=1)


def trained(played, client, components):
    """Responsibilities of all samples at the received components, then steps weighted by them."""
    assigned, shares = expected(components, UNIFORM, *played.samples(client))
    components = [one.copy() for one in components]
    for step in range(STEPS):
        index, x, y = played.batch(client, step)
        for number, one in enumerate(components):
            d_logits = probabilities(one, x) - np.eye(CLASSES)[y]
            gradient = pull_back(assigned[number, index][:, None] * d_logits, x) + DECAY * one
            components[number] = one - GAMMA_RATE * rate(step) * gradient
    return np.array(components), shares


def test_a_round_is_that_of_the_paper(played):
    start = stacked(played.start)
    trainings = [trained(played, client, start) for client in (0, 1)]
    sizes = [len(played.samples(client)[0]) for client in (0, 1)]
    agree(played.gamma, np.average([each[0] for each in trainings], axis=0, weights=sizes))
    for client, (_, shares) in enumerate(trainings):
        np.testing.assert_allclose(played.memories["shares"][client], shares, atol=1e-6)
        assert abs(shares[0] - 0.5) > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_mixes_the_newest_components(algorithm, played, client):
    """By ten more rounds of expectation and maximization of the shares, a newcomer's from 1/2."""
    components = stacked(played.gamma)
    shares = np.asarray(played.memories["shares"][client], float)
    if client == 2:
        np.testing.assert_array_equal(shares, UNIFORM)
    x, y = played.samples(client)
    for _ in range(10):
        _, shares = expected(components, shares, x, y)
    np.testing.assert_allclose(played.thetas["shares"][client], shares, atol=1e-5)
    theta = {
        "components": {name: leaf[client] for name, leaf in played.thetas["components"].items()},
        "shares": played.thetas["shares"][client],
    }
    agree(theta["components"], components)
    wanted = np.tensordot(shares, [probabilities(one, x) for one in components], axes=1)
    found = algorithm.predict(theta, x[:, 1:].astype(np.float32))
    np.testing.assert_allclose(np.exp(found), wanted, atol=1e-5)
