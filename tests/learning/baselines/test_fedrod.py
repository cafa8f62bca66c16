"""Fed-RoD, linear, against the paper in NumPy: balanced softmax for all, a head of one's own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers_twin import NETWORK, joined, logits, pulled_back
from scipy.special import softmax
from softmax_twin import (
    CLASSES,
    COMMON,
    GAMMA_RATE,
    ROUNDS,
    THETA_RATE,
    WEIGHT_DECAY,
    close,
    cut,
    moved,
    played_by,
    rate,
    times,
)

import fedprior
from fedprior.core import random, tree
from fedprior.learning import catalog


def without_a_class(federation):
    """The first client has no sample of the last class left, the second has one class alone."""
    train = federation.train
    y = train.y.copy()
    first, second = (slice(train.start[i], train.start[i] + train.size[i]) for i in (0, 1))
    y[first] = y[first] % (CLASSES - 1)
    y[second] = 1
    return replace(federation, train=replace(train, y=y))


@pytest.fixture(scope="module")
def played(federation):
    algorithm = fedprior.learning.fedrod(NETWORK, **COMMON)
    assert algorithm.memoryless  # the generic predictor is trained alike, whatever w is
    return played_by(algorithm, without_a_class(federation), clients=4)


def residual(outputs, y):
    return softmax(outputs, axis=1) - np.eye(CLASSES)[y]


def own_slope(body, head, own, x, y):
    """Gradient by the personal head of the loss of the sum of logits."""
    outputs = logits(body, head, x) + logits(body, own, x)
    return pulled_back(residual(outputs, y), body, own, x)[1]


def test_rounds_are_those_of_the_paper(played):
    body, head = (joined(layer) for layer in played.first["gamma"]["mean"])
    owns = [np.zeros_like(head) for _ in played.cohort]
    for round_ in range(ROUNDS):
        ends = []
        for client in played.cohort:
            counts = np.bincount(played.samples(client)[1], minlength=CLASSES)
            with np.errstate(divide="ignore"):
                prior = np.log(counts)  # -inf where there is no sample
            b, h, own = body, head, owns[client]
            for time in times(round_):
                _, x, y = played.batch(client, time)
                by = pulled_back(residual(logits(b, h, x) + prior, y), b, h, x)
                own = moved(own, own_slope(b, h, owns[client], x, y), THETA_RATE, time)
                whole = cut(np.concatenate([part.ravel() for part in by]))
                split = np.split(whole, [b.size])
                step = GAMMA_RATE * rate(time)
                b = b - step * (split[0].reshape(b.shape) + WEIGHT_DECAY * b)
                h = h - step * (split[1].reshape(h.shape) + WEIGHT_DECAY * h)
                owns[client] = own
            ends.append(np.concatenate([b.ravel(), h.ravel()]))
        mean = np.split(played.mean(ends), [body.size])
        body, head = mean[0].reshape(body.shape), mean[1].reshape(head.shape)
    for found, wanted in zip(played.state["gamma"]["mean"], (body, head), strict=True):
        close(joined(found), wanted)
    assert np.bincount(played.samples(0)[1], minlength=CLASSES).min() == 0
    for client, own in enumerate(owns):
        close(joined(played.theta(client, "w")[1]), own)


def test_a_client_of_one_class_teaches_nothing_and_learns_its_head(played):
    """Without weight decay, which moves everything."""
    steps = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
    algorithm = fedprior.learning.fedrod(NETWORK, steps=steps)
    data = jax.tree.map(jnp.asarray, played.federation.train.client(1))
    assert len(set(np.asarray(data.y))) == 1
    memory = algorithm.enroll(played.state, 1, random.root(1))
    message, after = jax.jit(algorithm.local)(played.state, memory, data, random.root(2))
    np.testing.assert_allclose(tree.flatten(message.value), 0, atol=1e-6)
    assert np.abs(tree.flatten(after["w"])).max() > 0.01


def test_a_newcomer_begins_at_the_generic_predictor_and_trains_a_head(played):
    body, head = (joined(layer) for layer in played.state["gamma"]["mean"])
    own = np.zeros_like(head)
    for number, time in enumerate(times(ROUNDS)):
        _, x, y = played.batch(played.newcomer, number)
        own = moved(own, own_slope(body, head, own, x, y), THETA_RATE, time)
    theta = played.theta(played.newcomer)
    close(joined(theta["w"][1]), own)
    x, _ = played.samples(played.newcomer)
    outputs = fedprior.learning.fedrod(NETWORK, **COMMON).predict(theta, x[:, 1:].astype("f4"))
    close(outputs, logits(body, head, x) + logits(body, own, x))


def test_a_quantity_has_no_classes_to_balance():
    with pytest.raises(ValueError, match=r"^fedrod: model must be a classifier, got 'regression'"):
        fedprior.learning.fedrod(fedprior.mlp((4,), 1, regression=True))


def test_class_frequencies_count_once(played):
    """In the balanced softmax they take the place of the counts; predictions have them once."""
    method, options = catalog.method("fedrod"), {"class_frequencies": True, "smoothing": 1e-30}
    steps = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
    plain, given = (method.build(NETWORK, each, steps=steps) for each in ({}, options))
    data = jax.tree.map(jnp.asarray, played.federation.train.client(2))
    memory = plain.enroll(played.state, 2, random.root(1))
    sent = [each.local(played.state, memory, data, random.root(2))[0] for each in (plain, given)]
    close(*(tree.flatten(message.value) for message in sent))
    theta = {"mean": played.state["gamma"]["mean"], "w": memory["w"]}
    frequencies = np.array([1.0, 2.0, 3.0], np.float32)
    shifted = given.predict({"theta": theta, "log_frequencies": frequencies}, data.x)
    close(shifted, np.asarray(plain.predict(theta, data.x)) + frequencies)
