"""QuPeD in full precision against a NumPy twin, with either direction of its divergence."""

import numpy as np
import pytest
from softmax_twin import (
    COMMON,
    MODEL,
    STEPS,
    agree,
    rate,
    slope,
    stacked,
    student_slope,
    teacher_slope,
    whole_round,
)

import fedprior

PENALTY, THETA_RATE, GAMMA_RATE, DECAY = 0.4, 0.3, 0.8, 0.01


@pytest.fixture(
    scope="module", params=["forward", pytest.param("reverse", marks=pytest.mark.evidence)]
)
def played(request, federation):
    algorithm = fedprior.quped(
        MODEL,
        penalty=PENALTY,
        direction=request.param,
        theta_rate=THETA_RATE,
        gamma_rate=GAMMA_RATE,
        weight_decay=DECAY,
        newcomer_steps=1,
        **COMMON,
    )
    assert not algorithm.memoryless
    return request.param, whole_round(algorithm, federation)


def theta_step(direction, played, client, theta, mean, *, number, time):
    """One step of theta on its batch number `number`, and the samples that it read."""
    _, x, y = played.batch(client, number)
    pull = student_slope(theta, mean, x)
    if direction == "reverse":
        pull = teacher_slope(mean, theta, x)
    gradient = (1 - PENALTY) * slope(theta, x, y) + PENALTY * pull + DECAY * theta
    return theta - THETA_RATE * rate(time) * gradient, x


def trained(direction, played, client, start):
    """The mean moves after theta, at its new value; it learns from predictions alone."""
    theta = mean = start
    for step in range(STEPS):
        theta, x = theta_step(direction, played, client, theta, mean, number=step, time=step)
        pull = teacher_slope(theta, mean, x)
        if direction == "reverse":
            pull = student_slope(mean, theta, x)
        mean = mean - GAMMA_RATE * rate(step) * (PENALTY * pull + DECAY * mean)
    return theta, mean


def test_a_round_is_that_of_the_paper(played):
    direction, played = played
    start = stacked(played.start["mean"])
    thetas, means = zip(*[trained(direction, played, c, start) for c in (0, 1)], strict=True)
    agree(played.gamma["mean"], np.mean(means, axis=0))
    assert played.messages.value.keys() == {"mean"}  # the spread is not sent
    for client in (0, 1):
        agree({name: leaf[client] for name, leaf in played.thetas.items()}, thetas[client])


def test_a_newcomer_steps_from_the_learned_mean(played):
    direction, played = played
    mean = stacked(played.gamma["mean"])
    theta, _ = theta_step(direction, played, 2, mean, mean, number=0, time=STEPS)
    agree({name: leaf[2] for name, leaf in played.thetas.items()}, theta)


def test_its_loss_is_the_models():
    """The labels count for less in training alone, not where a model is judged."""
    outputs, y = np.array([[0.0, 1.0, 2.0]], np.float32), np.array([1])
    found = fedprior.quped(MODEL).loss(outputs, y)
    np.testing.assert_allclose(found, MODEL.loss(outputs, y))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_bad_penalties(penalty):
    with pytest.raises(ValueError, match=r"^quped: penalty must be"):
        fedprior.quped(MODEL, penalty=penalty)


def test_quantities_are_refused():
    with pytest.raises(ValueError, match=r"^quped: model must be a classifier, got 'regression'"):
        fedprior.quped(fedprior.linear(4))
