"""Per-FedAvg against a NumPy twin of Algorithm 1 of Fallah et al. 2020."""

import numpy as np
import pytest
from softmax_twin import (
    COMMON,
    MODEL,
    STEPS,
    agree,
    probabilities,
    pull_back,
    rate,
    slope,
    stacked,
    whole_round,
)

import fedprior

ALPHA, BETA, DECAY = 0.6, 0.4, 0.01


@pytest.fixture(scope="module", params=["first", "exact"])
def played(request, federation):
    weight = "samples" if request.param == "exact" else "uniform"
    algorithm = fedprior.per_fedavg(
        MODEL,
        order=request.param,
        theta_rate=ALPHA,
        gamma_rate=BETA,
        weight_decay=DECAY,
        weight=weight,
        **COMMON,
    )
    assert algorithm.unit_weight == (weight == "uniform")
    assert algorithm.memoryless
    return request.param, whole_round(algorithm, federation)


def curved(w, direction, x):
    """H direction, H the Hessian of the mean cross entropy at w."""
    p, d_logits = probabilities(w, x), x @ direction
    return pull_back(p * (d_logits - np.sum(p * d_logits, axis=1, keepdims=True)), x)


def trained(order, played, client, w):
    number = 2 if order == "first" else 3  # independent batches D, D' and D''
    for step in range(STEPS):
        batches = [played.batch(client, number * step + k)[1:] for k in range(number)]
        gradient = slope(w - ALPHA * slope(w, *batches[0]), *batches[1])
        if order == "exact":
            gradient = gradient - ALPHA * curved(w, gradient, batches[2][0])
        w = w - BETA * rate(step) * (gradient + DECAY * w)
    return w


def test_the_twins_hessian_is_that_of_its_gradient():
    draws = np.random.default_rng(0)
    w, direction = draws.normal(size=(2, 5, 3))
    x, y = draws.normal(size=(6, 5)), draws.integers(0, 3, 6)
    small = 1e-6 * direction
    found = (slope(w + small, x, y) - slope(w - small, x, y)) / 2e-6
    np.testing.assert_allclose(curved(w, direction, x), found, atol=1e-8)


def test_a_round_is_that_of_the_paper(played):
    order, played = played
    start = stacked(played.start)
    clients = [trained(order, played, client, start) for client in (0, 1)]
    sizes = [len(played.samples(client)[0]) for client in (0, 1)]
    assert sizes[0] != sizes[1]
    wanted = np.average(clients, axis=0, weights=sizes if order == "exact" else None)
    agree(played.gamma, wanted)
    other = {"first": "exact", "exact": "first"}[order]
    assert np.abs(clients[0] - trained(other, played, 0, start)).max() > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_is_one_step_on_the_training_samples(played, client):
    _, played = played
    w = stacked(played.gamma)
    wanted = w - ALPHA * slope(w, *played.samples(client))
    agree({name: leaf[client] for name, leaf in played.thetas.items()}, wanted)


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"order": "second"}, "order must be one of first, exact, got 'second'"),
        ({"theta_rate": -0.1}, "theta_rate must be a number of at least 0, got -0.1"),
        ({"head": 1}, "option must be one of newcomer_steps, got 'head'"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^per-fedavg: {wording}"):
        fedprior.per_fedavg(MODEL, **option)
