"""IFCA against its Algorithm 1 in NumPy, model and gradient averaging."""

import jax
import jax.numpy as jnp
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
from fedprior.core import random
from fedprior.core.algorithm import Message

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
    algorithm = fedprior.learning.ifca(MODEL, **given, **PLAIN)
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


def test_without_samples_a_client_gets_the_model_that_most_chose(federation):
    algorithm = fedprior.learning.ifca(MODEL, num_components=3)
    state = algorithm.init(random.root(0))
    still = jax.tree.map(jnp.zeros_like, state["gamma"]["centers"])

    def after(state, members):
        total = Message(
            {"members": jnp.array(members), "moves": still}, jnp.sum(jnp.array(members))
        )
        return algorithm.update(state, total)

    data = federation.train.client(0)._replace(size=np.int32(0))
    empty = jax.tree.map(jnp.asarray, data)
    later = after(state, [1.0, 2.0, 4.0])
    for served in (later, after(later, [0.0, 0.0, 0.0])):  # a round of nobody asks nobody
        theta = algorithm.personalize(served, {}, empty, random.root(0))
        close(stacked(theta), stacked(state["gamma"]["centers"])[2])
