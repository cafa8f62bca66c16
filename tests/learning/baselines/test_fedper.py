"""FedPer against its Algorithm 1 in NumPy: one gradient for body and head, the body averaged."""

import pytest
from layers_twin import NETWORK, joined, slopes
from softmax_twin import COMMON, GAMMA_RATE, ROUNDS, THETA_RATE, close, moved, played_by, times

import fedprior


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.fedper(NETWORK, **COMMON)
    assert not algorithm.memoryless
    assert not algorithm.unit_weight
    return played_by(algorithm, federation)


def test_rounds_are_those_of_algorithm_1(played):
    """Both parts move from the same values; heads are kept, bodies averaged by sizes."""
    body = joined(played.first["gamma"]["body"][0])
    own = [joined(played.first["gamma"]["head"][1]) for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            copy = body
            for time in times(round_):
                _, x, y = played.batch(client, time)
                by_body, by_head = slopes(copy, own[client], x, y)
                copy = moved(copy, by_body, GAMMA_RATE, time)
                own[client] = moved(own[client], by_head, THETA_RATE, time)
            ends.append(copy)
        body = played.mean(ends)
    close(joined(played.state["gamma"]["body"][0]), body)
    for client, head in enumerate(own):
        close(joined(played.theta(client)[0]), body)
        close(joined(played.theta(client)[1]), head)


def test_a_newcomer_trains_a_head_on_the_learned_body(played):
    body = joined(played.state["gamma"]["body"][0])
    head = joined(played.first["gamma"]["head"][1])
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        head = moved(head, slopes(body, head, x, y)[1], THETA_RATE, time)
    theta = played.theta(played.newcomer)
    close(joined(theta[0]), body)
    close(joined(theta[1]), head)


def test_a_network_of_one_layer_has_no_body():
    with pytest.raises(ValueError, match=r"^SharedBody: head must be a part of the parameters"):
        fedprior.learning.fedper(fedprior.models.logistic(4, 3))
