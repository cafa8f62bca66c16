"""FedEM against a NumPy twin of Algorithm 1 of Marfoq et al. 2021."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from softmax_twin import (
    CLASSES,
    GAMMA_RATE,
    MODEL,
    PLAIN,
    ROUNDS,
    agree,
    close,
    moved,
    played_by,
    probabilities,
    pull_back,
    stacked,
    times,
)

import fedprior

UNIFORM = np.full(2, 0.5)


@pytest.fixture(scope="module")
def algorithm():
    return fedprior.learning.fedem(MODEL, gamma_rate=GAMMA_RATE, **PLAIN)


@pytest.fixture(scope="module")
def played(algorithm, federation):
    assert not algorithm.unit_weight
    assert not algorithm.memoryless
    return played_by(algorithm, federation)


def expected(components, shares, x, y):
    """P(component | sample), (components, samples), and the shares that are its means."""
    losses = [-log_softmax(x @ one, axis=1)[np.arange(len(y)), y] for one in components]
    assigned = softmax(np.log(shares)[:, None] - np.array(losses), axis=0)
    return assigned, assigned.mean(axis=1)


def trained(played, client, components, shares, round_):
    """Responsibilities of all samples at the received components, then steps weighted by them."""
    assigned, shares = expected(components, shares, *played.samples(client))
    for time in times(round_):
        index, x, y = played.batch(client, time)
        gradients = []
        for weights, one in zip(assigned, components, strict=True):
            d_logits = probabilities(one, x) - np.eye(CLASSES)[y]
            gradients.append(pull_back(weights[index][:, None] * d_logits, x))
        components = moved(components, np.array(gradients), GAMMA_RATE, time)
    return components, shares


def test_rounds_are_those_of_the_paper(played):
    components, shares = stacked(played.first["gamma"]), [UNIFORM for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            end, shares[client] = trained(played, client, components, shares[client], round_)
            ends.append(end)
        components = played.mean(ends)
    agree(played.state["gamma"], components)
    close(played.memories["shares"], [*shares, UNIFORM])
    assert min(abs(each[0] - 0.5) for each in shares) > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_mixes_the_newest_components(algorithm, played, client):
    """By ten more rounds of expectation and maximization of the shares, a newcomer's from 1/2."""
    components = stacked(played.state["gamma"])
    shares = np.asarray(played.memories["shares"][client], float)
    if client == 2:
        np.testing.assert_array_equal(shares, UNIFORM)
    x, y = played.samples(client)
    for _ in range(10):
        _, shares = expected(components, shares, x, y)
    np.testing.assert_allclose(played.thetas["shares"][client], shares, atol=1e-5)
    theta = played.theta(client)
    agree(theta["components"], components)
    wanted = np.tensordot(shares, [probabilities(one, x) for one in components], axes=1)
    found = algorithm.predict(theta, x[:, 1:].astype(np.float32))
    np.testing.assert_allclose(np.exp(found), wanted, atol=1e-5)
