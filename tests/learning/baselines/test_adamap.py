"""AdaMAP against a NumPy twin of its rounds, its server and its last steps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from softmax_twin import (
    BATCHES,
    CLASSES,
    COMMON,
    GAMMA_RATE,
    MODEL,
    THETA_RATE,
    WEIGHT_DECAY,
    agree,
    cut,
    moved,
    played_by,
    pull_back,
    stacked,
    times,
)

import fedprior
from fedprior.core import random
from fedprior.core.algorithm import Message

ROUNDS, LAST = 3, 5
MOMENTUM, HORIZON, PRIOR, SMOOTHING = 0.5, 2.0, 3.0, 0.5
GIVEN = {"momentum": MOMENTUM, "horizon": HORIZON, "prior_samples": PRIOR}
GIVEN |= {"smoothing": SMOOTHING, "last_steps": LAST, "judge_every": 0}
CUT = fedprior.Steps(clip=0.2)
SIMPLE = {"last_steps": 1, "class_frequencies": False, "judge_every": 0, "prior_samples": 0.0}


def adamap(**options):
    return fedprior.adamap(MODEL, **{**COMMON, **GIVEN, **options})


@pytest.fixture(scope="module")
def played(federation):
    algorithm = adamap()
    assert not algorithm.unit_weight
    assert algorithm.memoryless
    return played_by(algorithm, federation, rounds=ROUNDS)


@pytest.fixture(scope="module")
def served(played):
    """The server's mean and average after the rounds, by the twin."""
    average = mean = stacked(played.first["gamma"]["mean"])
    velocity = 0 * mean
    for round_ in range(ROUNDS):
        ends = [trained(played, client, mean, round_) for client in played.cohort]
        velocity = MOMENTUM * velocity + played.mean(ends) - mean
        mean = mean + velocity
        average = average + (mean - average) / min(round_ + 1, HORIZON)
    return mean, average


def frequencies(played, client):
    counts = np.bincount(played.samples(client)[1], minlength=CLASSES) + SMOOTHING
    return np.log(counts / counts.sum())


def slope(theta, offset, x, y):
    return pull_back(softmax(x @ theta + offset, axis=1) - np.eye(CLASSES)[y], x)


def trained(played, client, mean, round_):
    """The client's copy of the mean after its steps."""
    offset = frequencies(played, client)
    for time in times(round_):
        _, x, y = played.batch(client, time)
        mean = moved(mean, slope(mean, offset, x, y), GAMMA_RATE, time)
    return mean


def last_steps(played, client, center):
    """Theta after each of the last steps, which no decay slows."""
    offset, theta, seen = frequencies(played, client), center, []
    for step in range(LAST):
        _, x, y = played.batch(client, step)
        gradient = cut(slope(theta, offset, x, y))
        theta = theta - THETA_RATE * (gradient + WEIGHT_DECAY * theta)
        seen.append(theta)
    return seen


def test_the_server_adds_momentum_and_keeps_an_average(played, served):
    mean, average = served
    agree(played.state["gamma"]["mean"], mean)
    agree(played.state["average"]["mean"], average)
    assert np.abs(mean - average).max() > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_has_its_share_of_the_way_to_the_mean_of_the_last_steps(
    played, served, client
):
    """Whoever took part: from the average, with the client's own frequencies and its prior."""
    center, size = served[1], len(played.samples(client)[1])
    end = np.mean(last_steps(played, client, center)[LAST // 2 :], axis=0)
    agree(played.theta(client, "theta"), center + size / (size + PRIOR) * (end - center))
    found = played.thetas["log_frequencies"][client]
    np.testing.assert_allclose(found, frequencies(played, client), rtol=1e-5)


def test_a_prior_of_very_many_samples_leaves_the_average_itself(federation, played, served):
    data = jax.tree.map(jnp.asarray, federation.train.client(1))
    state = {**played.state, "prior_samples": jnp.asarray(1e6)}
    theta = jax.jit(adamap().personalize)(state, {"words": played.words[1]}, data, random.root(0))
    jax.tree.map(np.testing.assert_array_equal, theta["theta"], played.state["average"]["mean"])


def test_a_round_of_nobody_changes_nothing_but_its_number(played):
    """Neither momentum nor the average goes on alone."""
    still = jax.tree.map(jnp.zeros_like, {"mean": played.state["gamma"]["mean"]})
    after = adamap().update(played.state, Message(still, jnp.zeros(())))
    assert after.pop("round") == ROUNDS + 1
    before = {name: value for name, value in played.state.items() if name != "round"}
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert np.abs(stacked(after["velocity"]["mean"])).max() > 0.01


@pytest.mark.parametrize(
    ("given", "norm"),
    [({}, 1.0), ({"steps": CUT}, 0.2), ({"gradient_norm": 0.3, "steps": CUT}, 0.3)],
)
def test_a_gradient_norm_that_is_given_wins_over_the_clip(federation, given, norm):
    """One step from a model that is surely wrong, in a round and at the end."""
    steps = replace(given.get("steps", fedprior.Steps()), local_steps=1, batches=BATCHES)
    options = {**given, "steps": steps, "gamma_rate": 1.0, "theta_rate": 1.0}
    algorithm = fedprior.adamap(MODEL, **options, **SIMPLE)
    data = jax.tree.map(jnp.asarray, federation.train.client(0))
    key = random.root(0)
    state = algorithm.init(key)
    wrong = {"intercept": -100 * jax.nn.one_hot(data.y[0], CLASSES), "weight": jnp.zeros((4, 3))}
    state = {**state, "gamma": {"mean": wrong}, "average": {"mean": wrong}}
    data = data._replace(y=jnp.full_like(data.y, data.y[0]))
    memory = algorithm.enroll(state, np.int32(0), key)
    message, _ = algorithm.local(state, memory, data, key)
    last = stacked(algorithm.personalize(state, memory, data, key)) - stacked(wrong)
    for step in (stacked(message.value["mean"]), last):
        assert np.linalg.norm(step) == pytest.approx(norm, rel=1e-4)


def test_predictions_are_those_of_the_network_and_the_frequencies():
    algorithm, x = adamap(), np.ones((2, 4), np.float32)
    network = MODEL.init(random.root(1))
    offset = np.log([0.7, 0.2, 0.1])
    shown = algorithm.predict({"theta": network, "log_frequencies": offset}, x)
    np.testing.assert_allclose(shown, MODEL.apply(network, x) + offset, rtol=1e-6)


def test_a_quantity_has_no_frequencies():
    algorithm = fedprior.adamap(fedprior.models.linear(2))
    parts = (np.ones((3, 2), np.float32), np.ones(3, np.float32), 0, 3, np.arange(3))
    data = fedprior.data.ClientData(*map(jnp.asarray, parts))
    state = algorithm.init(random.root(0))
    memory = algorithm.enroll(state, np.int32(0), random.root(0))
    theta = algorithm.personalize(state, memory, data, random.root(0))
    np.testing.assert_array_equal(
        algorithm.predict(theta, data.x), algorithm.model.apply(theta, data.x)
    )


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"gradient_norm": 0.0}, "gradient_norm must be a positive number, got 0.0"),
        ({"horizon": 0.5}, "horizon must be a number of at least 1, got 0.5"),
        ({"theta_rate": -1.0}, "theta_rate must be a number of at least 0, got -1.0"),
        ({"smoothing": 0.0}, "smoothing must be a positive number, got 0.0"),
        ({"prior_samples": -1.0}, "prior_samples must be a number of at least 0, got -1.0"),
        ({"judge_every": -1}, "judge_every must be a whole number of at least 0, got -1"),
        ({"weight": "size"}, "weight must be one of uniform, samples, got 'size'"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^adamap: {wording}"):
        fedprior.adamap(MODEL, **option)


def test_words_are_no_flags():
    wording = "^adamap: class_frequencies must be true or false, .*, got 'false'"
    with pytest.raises(TypeError, match=wording):
        fedprior.adamap(MODEL, class_frequencies="false")
