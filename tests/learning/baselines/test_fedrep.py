"""FedRep against its Algorithm 1 in NumPy: a two-layer network, the head first."""

import pytest
from layers_twin import NETWORK, joined, slopes
from softmax_twin import (
    COMMON,
    GAMMA_RATE,
    ROUNDS,
    STEPS,
    THETA_RATE,
    close,
    moved,
    played_by,
    times,
)

import fedprior

HEAD_STEPS = 3


def head_steps(played, client, head, body, *, first, time, number):
    """`number` steps on the batches `first`, `first` + 1, ..., timed from `time`."""
    for step in range(number):
        _, x, y = played.batch(client, first + step)
        head = moved(head, slopes(body, head, x, y)[1], THETA_RATE, time + step)
    return head


def test_rounds_are_those_of_algorithm_1(federation):
    """Three steps of the head at the body received, two of the body under the head at rest."""
    algorithm = fedprior.learning.fedrep(NETWORK, head_steps=HEAD_STEPS, **COMMON)
    assert not algorithm.memoryless
    played = played_by(algorithm, federation)
    body = joined(played.first["gamma"]["body"][0])
    begin = joined(played.first["gamma"]["head"][1])
    own = [begin for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        # A client counts its head's steps and its body's; the body's batches follow the rounds.
        turn = {"first": round_ * (HEAD_STEPS + STEPS), "time": round_ * STEPS}
        for client in played.cohort:
            own[client] = head_steps(played, client, own[client], body, number=HEAD_STEPS, **turn)
            copy = body
            for time in times(round_):
                _, x, y = played.batch(client, time)
                copy = moved(copy, slopes(copy, own[client], x, y)[0], GAMMA_RATE, time)
            ends.append(copy)
        body = played.mean(ends)
    close(joined(played.state["gamma"]["body"][0]), body)
    end = {"first": 0, "time": ROUNDS * STEPS, "number": STEPS}
    own.append(head_steps(played, played.newcomer, begin, body, **end))
    for client, head in enumerate(own):
        theta = played.theta(client)
        close(joined(theta[0]), body)
        close(joined(theta[1]), head)


def test_there_is_a_step_of_the_head():
    with pytest.raises(ValueError, match=r"^fedrep: head_steps must be a whole number of at "):
        fedprior.learning.fedrep(NETWORK, head_steps=0)


def test_rounds_are_counted_in_steps():
    with pytest.raises(ValueError, match=r"^fedrep: local_epochs is not supported"):
        fedprior.learning.fedrep(NETWORK, steps=fedprior.Steps(local_epochs=2))
