"""FedMD against its Algorithm 1 in NumPy: communicate, aggregate, digest, revisit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from softmax_twin import (
    BATCHES,
    CLASSES,
    COMMON,
    MODEL,
    STEPS,
    THETA_RATE,
    agree,
    close,
    moved,
    played_by,
    pull_back,
    slope,
    stacked,
    times,
)

import fedprior
from fedprior.core import random, tree

PUBLIC = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float32)
DIGEST_RATE, DIGEST_STEPS, ROUNDS = 0.9, 3, 3
OPTIONS = {key: value for key, value in COMMON.items() if key != "gamma_rate"}
OPTIONS |= {"digest_rate": DIGEST_RATE, "digest_steps": DIGEST_STEPS, "public": PUBLIC}


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.fedmd(MODEL, **OPTIONS)
    assert not algorithm.memoryless
    return played_by(algorithm, federation, rounds=ROUNDS)


def batch(words, step):
    """Positions of public inputs, by the rule of all batches."""
    rows = np.arange(len(PUBLIC))
    size = np.int32(len(PUBLIC))
    data = fedprior.data.ClientData(rows, rows, np.int32(0), size, rows)
    index, mask = BATCHES.at(words, np.int32(step), data)
    return np.asarray(index)[np.asarray(mask)]


def digested(theta, consensus, words, *, first, time, number):
    """Steps on the mean over inputs and classes of |logits - consensus|."""
    x = np.hstack([np.ones((len(PUBLIC), 1)), PUBLIC])
    for step in range(number):
        rows = batch(words, first + step)
        away = np.sign(x[rows] @ theta - consensus[rows]) / CLASSES
        theta = moved(theta, pull_back(away, x[rows]), DIGEST_RATE, time + step)
    return theta


def revisited(played, client, theta, *, first, time, number):
    for step in range(number):
        _, x, y = played.batch(client, first + step)
        theta = moved(theta, slope(theta, x, y), THETA_RATE, time + step)
    return theta


def start():
    return stacked(MODEL.init(random.root(7)))


def logits(theta):
    return np.hstack([np.ones((len(PUBLIC), 1)), PUBLIC]) @ theta


def test_rounds_are_those_of_algorithm_1(played):
    """Without a consensus, in the first round, clients learn from their own samples alone."""
    own, consensus = [start() for _ in played.cohort], None
    for round_ in range(ROUNDS):
        turn = {"first": round_ * STEPS, "time": times(round_)[0]}
        for client in played.cohort:
            if consensus is not None:
                words = played.words[client]
                own[client] = digested(own[client], consensus, words, number=DIGEST_STEPS, **turn)
            own[client] = revisited(played, client, own[client], number=STEPS, **turn)
        consensus = played.mean([logits(theta) for theta in own])
    close(played.state["gamma"]["consensus"], consensus)
    for client in played.cohort:
        agree(played.theta(client), own[client])


def test_a_newcomer_digests_the_consensus_and_then_learns(played):
    consensus = np.asarray(played.state["gamma"]["consensus"], float)
    turn = {"first": 0, "time": times(ROUNDS)[0], "number": STEPS}
    theta = digested(start(), consensus, played.words[played.newcomer], **turn)
    agree(played.theta(played.newcomer), revisited(played, played.newcomer, theta, **turn))


def test_public_inputs_are_given_drawn_or_digits():
    def inputs(model, **options):
        return fedprior.learning.fedmd(model, **options).init(random.root(0))["public"]

    np.testing.assert_array_equal(inputs(MODEL, public=PUBLIC), PUBLIC)
    small = fedprior.mlp((3, 2), 2, hidden=(2,))
    noise = inputs(small, num_public=400)
    assert noise.shape == (400, 3, 2)
    assert abs(float(noise.std()) - 1) < 0.1
    digits = np.asarray(inputs(fedprior.models.lenet5(), public="digits", num_public=30))
    assert digits.shape == (30, 28, 28, 1)
    assert digits.min() >= 0
    assert 0.5 < digits.max() <= 1


def test_public_inputs_are_not_augmented():
    """The consensus is about the inputs as they are."""
    model, after = fedprior.mlp((16, 16, 1), 2, hidden=(2,)), []
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(5, 16, 16, 1)).astype("f4"), np.zeros(5, np.int32)
    data = fedprior.data.ClientData(x, y, np.int32(0), np.int32(5), np.arange(5))
    data = jax.tree.map(jnp.asarray, data)
    for augment in (None, "crop-flip"):
        steps = fedprior.Steps(batches=fedprior.Batches(size=3, augment=augment))
        algorithm = fedprior.learning.fedmd(model, steps=steps, theta_rate=0.0, num_public=6)
        state = {**algorithm.init(random.root(0)), "heard": np.float32(1)}
        memory = algorithm.enroll(state, 0, random.root(1))
        assert np.abs(tree.flatten(memory["w"])).max() > 0
        after.append(algorithm.local(state, memory, data, random.root(2))[1]["w"])
    np.testing.assert_array_equal(*map(tree.flatten, after))
    assert np.abs(tree.flatten(after[0]) - tree.flatten(memory["w"])).max() > 1e-3


def test_a_quantity_has_a_consensus_too(federation):
    model = fedprior.mlp((4,), 1, hidden=(2,), regression=True)
    algorithm = fedprior.learning.fedmd(model, num_public=5)
    assert jax.eval_shape(algorithm.init, random.root(0))["gamma"]["consensus"].shape == (5,)


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        ({}, r"model must be one with a shape, got 'none'. Give the model its shape"),
        ({"public": "cats"}, r"public must be one of noise, digits, got 'cats'"),
        ({"public": np.full((2, 4), np.nan)}, r"public must be finite inputs, one a row"),
        ({"public": PUBLIC, "digest_steps": -1}, r"digest_steps must be a whole number"),
    ],
)
def test_bad_options(options, wording):
    with pytest.raises(ValueError, match=f"^fedmd: {wording}"):
        fedprior.learning.fedmd(MODEL, **options)


def test_digits_are_for_images():
    with pytest.raises(ValueError, match=r"^fedmd: public must be noise, or for images of at"):
        fedprior.learning.fedmd(fedprior.mlp((8, 8, 1), 2), public="digits")
