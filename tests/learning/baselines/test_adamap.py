"""AdaMAP against a NumPy twin of its round, its server and its last steps."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from softmax_twin import (
    CLASSES,
    COMMON,
    MODEL,
    STEPS,
    agree,
    pull_back,
    rate,
    stacked,
    whole_round,
)

import fedprior
from fedprior.core import random
from fedprior.core.algorithm import Message

NORM, PRECISION, SMOOTHING, LAST = 0.3, 2.0, 0.5, 5
MODEL_LEAVES = list(MODEL.init(random.root(0)).items())
RATES = {"theta_rate": 0.2, "gamma_rate": 0.4}


def adamap(**options):
    given = {"gradient_norm": NORM, "precision": PRECISION, "smoothing": SMOOTHING}
    return fedprior.adamap(MODEL, newcomer_steps=LAST, **RATES, **COMMON, **given, **options)


@pytest.fixture(scope="module")
def played(federation):
    algorithm = adamap()
    assert algorithm.unit_weight
    assert algorithm.memoryless
    return whole_round(algorithm, federation)


def frequencies(played, client):
    counts = np.bincount(played.samples(client)[1], minlength=CLASSES) + SMOOTHING
    return np.log(counts / counts.sum())


def slope(theta, offset, x, y):
    return pull_back(softmax(x @ theta + offset, axis=1) - np.eye(CLASSES)[y], x)


def cut(gradient):
    return gradient * min(1.0, NORM / np.linalg.norm(gradient))


def trained(played, client):
    """The client's copy of the mean after its steps."""
    mean, offset = stacked(played.start["mean"]), frequencies(played, client)
    for step in range(STEPS):
        _, x, y = played.batch(client, step)
        mean = mean - RATES["gamma_rate"] * rate(step) * cut(slope(mean, offset, x, y))
    return mean


def test_a_round_is_the_mean_of_the_clients_steps_on_their_likelihoods(played):
    wanted = np.mean([trained(played, client) for client in (0, 1)], axis=0)
    agree(played.gamma["mean"], wanted)
    assert np.abs(wanted - stacked(played.start["mean"])).max() > 0.01


@pytest.mark.parametrize("client", [0, 1, 2])
def test_a_personal_model_is_the_mean_of_the_last_steps_to_the_posterior_mode(played, client):
    """Whoever took part: from the mean, with the client's own frequencies and its prior."""
    center, offset = stacked(played.gamma["mean"]), frequencies(played, client)
    size, theta, seen = len(played.samples(client)[1]), center, []
    for step in range(LAST):
        _, x, y = played.batch(client, step)
        gradient = slope(theta, offset, x, y) + PRECISION * (theta - center) / size
        theta = theta - RATES["theta_rate"] * cut(gradient)
        seen.append(theta)
    found = {name: leaf[client] for name, leaf in played.thetas["network"].items()}
    agree(found, np.mean(seen[LAST // 2 :], axis=0))
    np.testing.assert_allclose(played.thetas["log_frequencies"][client], offset, rtol=1e-5)


def test_the_server_adds_momentum_and_keeps_an_average():
    algorithm = adamap(momentum=0.5, horizon=2.0)
    state = algorithm.init(random.root(0))
    first = stacked(state["gamma"]["mean"])
    average, mean, velocity = first, first, 0 * first
    for number, step in enumerate((0.3, -0.1, 0.2)):
        total = Message({"mean": {name: 2 * step + 0 * leaf for name, leaf in MODEL_LEAVES}}, 2.0)
        state = algorithm.update(state, total)
        velocity = 0.5 * velocity + step
        mean = mean + velocity
        average = average + (mean - average) / min(number + 1, 2)
    agree(state["gamma"]["mean"], mean)
    agree(state["average"], average)


def test_predictions_are_those_of_the_network_and_the_frequencies():
    algorithm, x = adamap(), np.ones((2, 4), np.float32)
    network = MODEL.init(random.root(1))
    offset = np.log([0.7, 0.2, 0.1])
    shown = algorithm.predict({"network": network, "log_frequencies": offset}, x)
    np.testing.assert_allclose(shown, MODEL.apply(network, x) + offset, rtol=1e-6)


def test_a_quantity_has_no_frequencies():
    algorithm = fedprior.adamap(fedprior.linear(2))
    parts = (np.ones((3, 2), np.float32), np.ones(3, np.float32), 0, 3, np.arange(3))
    data = fedprior.ClientData(*map(jnp.asarray, parts))
    state = algorithm.init(random.root(0))
    memory = algorithm.enroll(state, np.int32(0), random.root(0))
    assert algorithm.personalize(state, memory, data, random.root(0))["log_frequencies"] == 0


@pytest.mark.parametrize(
    ("option", "wording"),
    [
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"gradient_norm": 0.0}, "gradient_norm must be a positive number, got 0.0"),
        ({"smoothing": 0.0}, "smoothing must be a positive number, got 0.0"),
        ({"precision": -1.0}, "precision must be a number of at least 0, got -1.0"),
        ({"weight": "size"}, "weight must be one of uniform, samples, got 'size'"),
    ],
)
def test_bad_options(option, wording):
    with pytest.raises(ValueError, match=f"^adamap: {wording}"):
        fedprior.adamap(MODEL, **option)
