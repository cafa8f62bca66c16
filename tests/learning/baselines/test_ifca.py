"""IFCA against its Algorithm 1 in NumPy, model and gradient averaging."""

import numpy as np
import pytest
from softmax_twin import (
    GAMMA_RATE,
    MODEL,
    PLAIN,
    ROUNDS,
    STEPS,
    close,
    loss,
    moved,
    played_by,
    slope,
    stacked,
)

import fedprior

SIZES = (10, 6, 8, 7)  # the first two are of one kind; the last one is a newcomer


@pytest.fixture(scope="module")
def kinds():
    draws = np.random.default_rng(38)
    own = np.repeat(np.arange(len(SIZES)), SIZES)
    x = draws.normal(size=(len(own), 4))
    labels = np.argmax(x @ draws.normal(size=(4, 3)) * np.where(own < 2, 3, -3)[:, None], axis=1)
    y = np.array(list("abc"))[labels]
    return fedprior.Federation.from_arrays(x, y, own, valid_share=0.0, test_share=0.0)


def best(models, x, y):
    return int(np.argmin([loss(model, x, y) for model in models]))


@pytest.mark.parametrize("averaging", ["models", "gradients"])
def test_rounds_are_those_of_algorithm_1(kinds, averaging):
    """Three models, one of which nobody takes: it stays where it is."""
    given = {"num_components": 3, "averaging": averaging, "gamma_rate": GAMMA_RATE}
    algorithm = fedprior.ifca(MODEL, **given, **PLAIN)
    assert algorithm.memoryless
    assert not algorithm.unit_weight
    played = played_by(algorithm, kinds, clients=len(SIZES))
    models = stacked(played.first["gamma"]["centers"])
    number = STEPS if averaging == "models" else 1
    for round_ in range(ROUNDS):
        chosen, moves = [], []
        for client in played.cohort:
            chosen.append(best(models, *played.samples(client)))
            end = models[chosen[-1]]
            for time in range(round_ * number, (round_ + 1) * number):
                end = moved(end, slope(end, *played.batch(client, time)[1:]), GAMMA_RATE, time)
            moves.append(SIZES[client] * (end - models[chosen[-1]]))
        members = np.bincount(chosen, SIZES[:-1], minlength=3)
        over = np.maximum(members, 1) if averaging == "models" else np.full(3, sum(SIZES[:-1]))
        models = models.copy()
        for model, move in zip(chosen, moves, strict=True):
            models[model] = models[model] + move / over[model]
    assert sorted(members) == [0, 8, 16]
    close(stacked(played.state["gamma"]["centers"]), models)
    for client in (*played.cohort, played.newcomer):
        close(stacked(played.theta(client)), models[best(models, *played.samples(client))])
