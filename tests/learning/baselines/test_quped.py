"""QuPeD in full precision against a NumPy twin, with either direction of its divergence."""

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
    slope,
    stacked,
    student_slope,
    teacher_slope,
    times,
)

import fedprior

PENALTY = 0.4


@pytest.fixture(
    scope="module", params=["forward", pytest.param("reverse", marks=pytest.mark.evidence)]
)
def played(request, federation):
    algorithm = fedprior.learning.quped(MODEL, penalty=PENALTY, direction=request.param, **COMMON)
    assert not algorithm.memoryless
    return request.param, played_by(algorithm, federation)


def theta_step(direction, played, client, theta, mean, *, number, time):
    """One step of theta on its batch number `number`, and the samples that it read."""
    _, x, y = played.batch(client, number)
    pull = student_slope(theta, mean, x)
    if direction == "reverse":
        pull = teacher_slope(mean, theta, x)
    gradient = (1 - PENALTY) * slope(theta, x, y) + PENALTY * pull
    return moved(theta, gradient, THETA_RATE, time), x


def trained(direction, played, client, theta, mean, round_):
    """The mean moves after theta, at its new value; it learns from predictions alone."""
    for time in times(round_):
        theta, x = theta_step(direction, played, client, theta, mean, number=time, time=time)
        pull = teacher_slope(theta, mean, x)
        if direction == "reverse":
            pull = student_slope(mean, theta, x)
        mean = moved(mean, PENALTY * pull, GAMMA_RATE, time)
    return theta, mean


def test_rounds_are_those_of_the_paper(played):
    direction, played = played
    mean = stacked(played.first["gamma"]["mean"])
    thetas = [mean for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            after = trained(direction, played, client, thetas[client], mean, round_)
            thetas[client], end = after
            ends.append(end)
        mean = played.mean(ends)
    agree(played.state["gamma"]["mean"], mean)
    for client in played.cohort:
        agree(played.theta(client), thetas[client])


def test_a_newcomer_steps_from_the_learned_mean(played):
    direction, played = played
    theta = mean = stacked(played.state["gamma"]["mean"])
    for number, time in enumerate(times(ROUNDS)):
        client = played.newcomer
        theta, _ = theta_step(direction, played, client, theta, mean, number=number, time=time)
    agree(played.theta(played.newcomer), theta)


def test_its_loss_is_the_models():
    """The labels count for less in training alone, not where a model is judged."""
    outputs, y = np.array([[0.0, 1.0, 2.0]], np.float32), np.array([1])
    found = fedprior.learning.quped(MODEL).loss(outputs, y)
    np.testing.assert_allclose(found, MODEL.loss(outputs, y))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_bad_penalties(penalty):
    with pytest.raises(ValueError, match=rf"^quped: penalty must be in \(0, 1\), got {penalty}"):
        fedprior.learning.quped(MODEL, penalty=penalty)


def test_quantities_are_refused():
    with pytest.raises(ValueError, match=r"^quped: model must be a classifier, got 'regression'"):
        fedprior.learning.quped(fedprior.models.linear(4))
