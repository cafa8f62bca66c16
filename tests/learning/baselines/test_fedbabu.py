"""FedBABU against its Algorithm 1 in NumPy: the body under a head at rest, then both."""

import numpy as np
import pytest
from layers_twin import NETWORK, joined, slopes
from softmax_twin import (
    GAMMA_RATE,
    PLAIN,
    ROUNDS,
    WEIGHT_DECAY,
    close,
    cut,
    moved,
    played_by,
    times,
)

import fedprior
from fedprior.core import random
from fedprior.learning.descent import batch_key

TUNING_STEPS, TUNING_RATE = 3, 0.7


@pytest.fixture(scope="module")
def played(federation):
    tuning = {"fine_tuning_steps": TUNING_STEPS, "fine_tuning_rate": TUNING_RATE}
    algorithm = fedprior.learning.fedbabu(NETWORK, gamma_rate=GAMMA_RATE, **tuning, **PLAIN)
    assert algorithm.memoryless
    return played_by(algorithm, federation)


def test_rounds_are_those_of_algorithm_1(played):
    body = joined(played.first["gamma"]["body"][0])
    head = joined(played.first["gamma"]["head"][1])
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            copy = body
            for time in times(round_):
                _, x, y = played.batch(client, time)
                copy = moved(copy, slopes(copy, head, x, y)[0], GAMMA_RATE, time)
            ends.append(copy)
        body = played.mean(ends)
    close(joined(played.state["gamma"]["body"][0]), body)
    close(joined(played.state["gamma"]["head"][1]), head)


def test_in_the_end_everybody_fine_tunes_head_and_body(played):
    """At one rate, the gradient of both cut as one; a newcomer like the others."""
    words = np.asarray(batch_key(random.root(7))["words"])  # of the batches of the end
    for client in (*played.cohort, played.newcomer):
        body = joined(played.state["gamma"]["body"][0])
        head = joined(played.first["gamma"]["head"][1])
        for number in range(TUNING_STEPS):
            _, x, y = played.batch(client, number, words)
            both = slopes(body, head, x, y)
            whole = cut(np.concatenate([part.ravel() for part in both]))
            parts = np.split(whole, [body.size])
            body = body - TUNING_RATE * (parts[0].reshape(body.shape) + WEIGHT_DECAY * body)
            head = head - TUNING_RATE * (parts[1].reshape(head.shape) + WEIGHT_DECAY * head)
        close(joined(played.theta(client)[0]), body)
        close(joined(played.theta(client)[1]), head)


def test_fine_tuning_is_checked():
    with pytest.raises(ValueError, match=r"^fedbabu: fine_tuning_steps must be a whole number"):
        fedprior.learning.fedbabu(NETWORK, fine_tuning_steps=-1)
    with pytest.raises(ValueError, match=r"^SharedBody: head must be a part of the parameters"):
        fedprior.learning.fedbabu(fedprior.models.logistic(4, 3))
