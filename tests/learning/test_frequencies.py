"""Class frequencies under a population: what clients train with, send, and are predicted with."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random, tree
from fedprior.core.algorithm import Message
from fedprior.learning.frequencies import left_out
from fedprior.learning.judging import ENTIRELY
from fedprior.models.offset import Offset

KEY = random.root(3)
STEPS = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
MODEL = fedprior.models.logistic(4, 3)
PI, SMOOTHING = np.array([0.5, 0.3, 0.2]), 2.0
OPTIONS = {"steps": STEPS, "last_steps": 3, "judge_every": 1000, "momentum": 0.0, "horizon": 2.0}


def adamap(model=MODEL, **options):
    return fedprior.adamap(model, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def data(federation):
    return jax.tree.map(jnp.asarray, federation.train.client(0))


@pytest.fixture(scope="module")
def state():
    begun = adamap().init(KEY)
    drawn = jax.tree.map(
        lambda leaf: jax.random.normal(KEY, leaf.shape), {"mean": begun["gamma"]["mean"]}
    )
    numbers = {"smoothing": jnp.float32(SMOOTHING), "prior_samples": jnp.float32(1.0)}
    return {**begun, **numbers, "gamma": drawn, "average": drawn, "frequencies": jnp.asarray(PI)}


def posterior(data):
    """Under a Dirichlet prior around PI that counts as SMOOTHING samples of each class."""
    counts = np.bincount(np.asarray(data.y)[: int(data.size)], minlength=3)
    return (counts + 3 * SMOOTHING * PI) / (data.size + 3 * SMOOTHING)


def test_clients_train_with_a_share_of_their_own_frequencies(state, data):
    """FedAvg on a model of the client's own, built by hand; the share falls with its samples."""
    algorithm = adamap()
    memory = algorithm.enroll(state, jnp.int32(0), KEY)
    sent = jax.jit(algorithm.local)(state, memory, data, KEY)[0].value["method"]
    share = 50 / (50 + data.size)
    offset = np.log(share * posterior(data) + (1 - share) * PI) - np.log(PI)
    steps = fedprior.Steps(local_steps=2, batches=STEPS.batches, clip=1.0)
    hand = fedprior.learning.fedavg(Offset(MODEL, jnp.asarray(offset)), steps=steps)
    expected = jax.jit(hand.local)(state, memory, data, KEY)[0].value
    np.testing.assert_allclose(tree.flatten(sent["method"]), tree.flatten(expected), atol=1e-6)
    seen = np.bincount(np.asarray(data.y)[: int(data.size)], minlength=3) / data.size
    np.testing.assert_allclose(sent["frequencies"], 0.1 * (seen - PI), atol=1e-6)


def test_a_sample_that_is_left_out_is_predicted_with_the_odds_of_the_others(state):
    y, mask = jnp.array([0, 2, 2, 1]), jnp.array([True, True, True, False])
    theta = left_out(state, {"theta": 7, "log_frequencies": jnp.zeros(3)}, y, mask)
    prior = 3 * SMOOTHING * PI
    others = np.array([[0, 0, 2], [1, 0, 1], [1, 0, 1], [1, 0, 2]])  # the last one does not count
    expected = (others + prior) / (others + prior).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(theta["log_frequencies"], np.log(expected / PI), atol=1e-5)
    assert theta["theta"] == 7


def test_personal_models_have_the_odds_of_the_client(state, data):
    algorithm = adamap()
    memory = algorithm.enroll(state, jnp.int32(0), KEY)
    theta = jax.jit(algorithm.personalize)(state, memory, data, KEY)
    offset = np.log(posterior(data) / PI)
    np.testing.assert_allclose(theta["log_frequencies"], offset, rtol=1e-4)
    assert np.ptp(offset) > 0.1
    x = np.ones((2, 4), np.float32)
    shown = algorithm.predict(theta, x)
    np.testing.assert_allclose(shown, MODEL.apply(theta["theta"], x) + offset, rtol=1e-4)
    hand = fedprior.adamap(
        Offset(MODEL, jnp.asarray(offset)),
        **{**OPTIONS, "judge_every": 0, "class_frequencies": False},
    )
    expected = jax.jit(hand.personalize)(state, memory, data, KEY)
    np.testing.assert_allclose(
        tree.flatten(theta["theta"]), tree.flatten(expected), rtol=1e-4, atol=1e-6
    )


def test_who_knows_nothing_of_its_own_uses_the_network_as_it_is(state, data):
    algorithm = adamap()
    memory = algorithm.enroll(state, jnp.int32(0), KEY)
    nobody = data._replace(size=jnp.int32(0))
    sure = {**state, "smoothing": jnp.float32(ENTIRELY)}
    for own, samples, close in ((state, nobody, 1e-6), (sure, data, 1e-4)):
        theta = algorithm.personalize(own, memory, samples, KEY)
        np.testing.assert_allclose(theta["log_frequencies"], 0, atol=close)
    sent = algorithm.local(state, memory, nobody, KEY)[0].value["method"]["frequencies"]
    np.testing.assert_array_equal(sent, 0)


def test_the_population_has_the_mean_of_the_frequencies_that_clients_sent(state):
    """Equal frequencies, with which it begins, count as those of one round."""
    algorithm, still = adamap(), jax.tree.map(jnp.zeros_like, {"mean": state["gamma"]["mean"]})
    trial = jax.tree.map(jnp.zeros_like, {"weight": state["round"], "found": state["found"]})
    sums = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]])  # of 2, 0 and 3 clients
    after = algorithm.init(KEY)
    for own in sums:
        weight = own.sum()
        learned = 0.1 * (own - weight * np.asarray(after["frequencies"]))
        value = {"method": {"method": still, "frequencies": jnp.asarray(learned)}, "trial": trial}
        after = algorithm.update(after, Message(value, jnp.float32(weight)))
    first = (1 / 3 + np.array([1.0, 0.0, 0.0])) / 2
    expected = first + (np.array([0, 1, 2]) / 3 - first) / 4
    np.testing.assert_allclose(after["frequencies"], expected, rtol=1e-5)


def test_frequencies_stay_frequencies_whatever_error_a_message_has(state):
    """No class has less than it has of the equal frequencies, which clients' own only add to."""
    algorithm, still = adamap(), jax.tree.map(jnp.zeros_like, {"mean": state["gamma"]["mean"]})
    trial = jax.tree.map(jnp.zeros_like, {"weight": state["round"], "found": state["found"]})
    value = {"method": still, "frequencies": jnp.array([0.04, -0.2, 0.1])}
    message = Message({"method": value, "trial": trial}, jnp.float32(1.0))
    after = algorithm.update({**algorithm.init(KEY), "round": jnp.int32(1)}, message)
    expected = np.array([1 / 3 + 0.4 / 3, 1 / 9, 1 / 3 + 1 / 3])
    np.testing.assert_allclose(after["frequencies"], expected / expected.sum(), rtol=1e-5)


def test_a_coarse_quantizer_leaves_a_model_that_predicts(federation):
    """Of two bits, without the class that nobody has; a negative frequency would have no log."""
    model = fedprior.models.logistic(4, 4)
    steps = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
    channel = fedprior.channels.Quantize(bits_per_coordinate=2, low=-0.05, high=0.05, weighted=True)
    clients = replace(federation, classes=np.arange(4))
    method = fedprior.adamap(model, steps=steps, judge_every=5)
    result = fedprior.simulate(method, clients, rounds=20, channel=channel)
    assert np.all(np.asarray(result.state["frequencies"]) > 0)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(result.thetas))


def test_a_network_whose_inputs_are_unknown_has_frequencies_everywhere(data):
    bare = fedprior.network(MODEL.init, MODEL.apply)
    algorithm, known = adamap(bare), fedprior.network(MODEL.init, MODEL.apply, shape=(4,))
    state = algorithm.init(KEY)
    assert "frequencies" not in state
    assert "frequencies" in adamap(known).init(KEY)
    theta = algorithm.personalize(state, algorithm.enroll(state, 0, KEY), data, KEY)
    counts = np.bincount(np.asarray(data.y)[: int(data.size)], minlength=3) + 0.1
    np.testing.assert_allclose(theta["log_frequencies"], np.log(counts / counts.sum()), rtol=1e-5)


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.5, 0.5)])
def test_classes_that_are_rare_everywhere_are_counted_once(shares):
    """Clients that are alike, whose x says nothing: P(y = 1) is the share of the class.

    A network knows that share already. The frequencies of a client that were added once more
    would give 0.0122 in place of 0.1.
    """
    y = (np.random.default_rng(0).random(3200) < shares[1]).astype(int)
    owners = np.repeat(np.arange(40), 80)
    clients = fedprior.Federation.from_arrays(np.zeros((3200, 2)), y, clients=owners)
    steps = fedprior.Steps(local_steps=5, batches=fedprior.Batches(size=20))
    method = fedprior.adamap(
        fedprior.models.logistic(2, 2), steps=steps, gamma_rate=0.5, judge_every=10
    )
    result = fedprior.simulate(method, clients, rounds=100)
    outputs = method.predict(
        jax.tree.map(lambda leaf: leaf[0], result.thetas), np.zeros((1, 2), np.float32)
    )
    np.testing.assert_allclose(jax.nn.softmax(outputs)[0, 1], shares[1], atol=0.06)
    np.testing.assert_allclose(result.state["frequencies"], shares, atol=0.03)
