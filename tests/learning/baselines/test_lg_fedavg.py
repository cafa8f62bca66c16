"""LG-FedAvg against its Algorithm 1 in NumPy: one gradient for both parts, the head averaged."""

import pytest
from layers_twin import NETWORK, joined, slopes
from softmax_twin import COMMON, GAMMA_RATE, ROUNDS, THETA_RATE, close, moved, played_by, times

import fedprior


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.lg_fedavg(NETWORK, **COMMON)
    assert not algorithm.memoryless
    return played_by(algorithm, federation)


def test_rounds_are_those_of_algorithm_1(played):
    """Both parts move from the same values; bodies are kept, heads averaged by sizes."""
    head = joined(played.first["gamma"]["head"][1])
    own = [joined(played.first["gamma"]["body"][0]) for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            copy = head
            for time in times(round_):
                _, x, y = played.batch(client, time)
                by_body, by_head = slopes(own[client], copy, x, y)
                copy = moved(copy, by_head, GAMMA_RATE, time)
                own[client] = moved(own[client], by_body, THETA_RATE, time)
            ends.append(copy)
        head = played.mean(ends)
    close(joined(played.state["gamma"]["head"][1]), head)
    for client, body in enumerate(own):
        close(joined(played.theta(client)[0]), body)
        close(joined(played.theta(client)[1]), head)


def test_a_newcomer_trains_a_body_under_the_learned_head(played):
    head = joined(played.state["gamma"]["head"][1])
    body = joined(played.first["gamma"]["body"][0])
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        body = moved(body, slopes(body, head, x, y)[0], THETA_RATE, time)
    theta = played.theta(played.newcomer)
    close(joined(theta[0]), body)
    close(joined(theta[1]), head)


def test_only_the_head_is_sent(played):
    assert [layer["bias"] is None for layer in played.state["gamma"]["head"]] == [True, False]
    assert [layer["bias"] is None for layer in played.state["gamma"]["body"]] == [False, True]
