"""Per-FedAvg against a NumPy twin of Algorithm 1 of Fallah et al. 2020."""

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
    probabilities,
    pull_back,
    slope,
    stacked,
    times,
)

import fedprior


@pytest.fixture(scope="module", params=["first", "exact"])
def played(request, federation):
    algorithm = fedprior.learning.per_fedavg(MODEL, order=request.param, **COMMON)
    assert not algorithm.unit_weight
    assert algorithm.memoryless
    return request.param, played_by(algorithm, federation)


def curved(w, direction, x):
    """H direction, H the Hessian of the mean cross entropy at w."""
    p, d_logits = probabilities(w, x), x @ direction
    return pull_back(p * (d_logits - np.sum(p * d_logits, axis=1, keepdims=True)), x)


def trained(order, played, client, w, round_):
    number = 2 if order == "first" else 3  # independent batches D, D' and D''
    for time in times(round_):
        batches = [played.batch(client, number * time + k)[1:] for k in range(number)]
        gradient = slope(w - THETA_RATE * slope(w, *batches[0]), *batches[1])
        if order == "exact":
            gradient = gradient - THETA_RATE * curved(w, gradient, batches[2][0])
        w = moved(w, gradient, GAMMA_RATE, time)
    return w


def test_the_twins_hessian_is_that_of_its_gradient():
    draws = np.random.default_rng(0)
    w, direction = draws.normal(size=(2, 5, 3))
    x, y = draws.normal(size=(6, 5)), draws.integers(0, 3, 6)
    small = 1e-6 * direction
    found = (slope(w + small, x, y) - slope(w - small, x, y)) / 2e-6
    np.testing.assert_allclose(curved(w, direction, x), found, atol=1e-8)


def test_rounds_are_those_of_the_paper(played):
    order, played = played
    w = start = stacked(played.first["gamma"])
    for round_ in range(ROUNDS):
        w = played.mean([trained(order, played, client, w, round_) for client in played.cohort])
    agree(played.state["gamma"], w)
    first, exact = (trained(order, played, 0, start, 0) for order in ("first", "exact"))
    assert np.abs(first - exact).max() > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_is_one_step_on_the_training_samples(played, client):
    _, played = played
    w = stacked(played.state["gamma"])
    wanted = w - THETA_RATE * slope(w, *played.samples(client))
    agree(played.theta(client), wanted)


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"order": "second"}, "order must be one of first, exact, got 'second'"),
        ({"theta_rate": -0.1}, "theta_rate must be a number of at least 0, got -0.1"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^per-fedavg: {wording}"):
        fedprior.learning.per_fedavg(MODEL, **option)
