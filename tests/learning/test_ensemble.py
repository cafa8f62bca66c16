"""Several networks side by side, as an option of any method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random, tree
from fedprior.core.algorithm import Message
from fedprior.learning import catalog, optimized
from fedprior.learning.method import ChannelNoise

KEY = random.root(3)
STEPS = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
MODEL = fedprior.mlp((4,), 3, hidden=(5,))
NETWORKS = 3


def built(name, model=MODEL, **options):
    return catalog.method(name).build(model, options, steps=STEPS)


@pytest.fixture(scope="module")
def data(federation):
    return jax.tree.map(jnp.asarray, federation.train.client(0))


@pytest.mark.parametrize("name", ["adamap", "adaped", "ditto", "fedavg-fine-tuning", "fedem"])
def test_networks_are_trained_as_if_each_were_alone_and_predict_their_mean(data, name):
    """Two rounds of every network by hand, each with a state and a memory of its own."""
    more = {"last_steps": 2} if name == "adamap" else {}
    plain, ours = built(name, **more), built(name, networks=NETWORKS, **more)
    local, update = jax.jit(plain.local), jax.jit(plain.update)
    states = [plain.init(key) for key in jax.random.split(KEY, NETWORKS)]
    memories = [plain.enroll(state, jnp.int32(2), KEY) for state in states]
    state = ours.init(KEY)
    memory = ours.enroll(state, jnp.int32(2), KEY)
    own = jax.random.split(random.fold(KEY, "local"), NETWORKS)
    for _ in range(2):
        message, memory = jax.jit(ours.local)(state, memory, data, random.fold(KEY, "local"))
        state = jax.jit(ours.update)(state, message)
        for place in range(NETWORKS):
            sent, memories[place] = local(states[place], memories[place], data, own[place])
            states[place] = update(states[place], sent)
    assert state["round"] == 2
    for place, alone in enumerate(states):
        part = jax.tree.map(lambda leaf: leaf[place], state["gamma"])  # noqa: B023
        np.testing.assert_allclose(tree.flatten(part), tree.flatten(alone["gamma"]), atol=1e-5)
    theta = jax.jit(ours.personalize)(state, memory, data, random.fold(KEY, "local"))
    probabilities = [
        jax.nn.softmax(plain.predict(plain.personalize(*parts, data, key), data.x))
        for *parts, key in zip(states, memories, own, strict=True)
    ]
    found = jax.nn.softmax(ours.predict(theta, data.x))
    np.testing.assert_allclose(found, np.mean(probabilities, axis=0), atol=1e-4)
    assert np.abs(probabilities[0] - probabilities[1]).max() > 1e-3


def test_a_quantity_is_predicted_by_the_mean_output(data):
    model = fedprior.mlp((4,), 1, hidden=(5,), regression=True)
    ours = built("fedavg", model, networks=2)
    theta = ours.personalize(ours.init(KEY), ours.enroll(ours.init(KEY), 0, KEY), data, KEY)
    single = [model.apply(jax.tree.map(lambda leaf: leaf[k], theta), data.x) for k in range(2)]  # noqa: B023
    np.testing.assert_allclose(ours.predict(theta, data.x), np.mean(single, axis=0), rtol=1e-5)


def test_a_round_of_nobody_leaves_all_networks_as_they_are():
    ours = built("fedavg", networks=2)
    state = ours.init(KEY)
    nothing = Message(tree.combine(jnp.zeros_like, state["gamma"]), jnp.zeros(()))
    after = ours.update(state, nothing)
    jax.tree.map(np.testing.assert_array_equal, after["gamma"], state["gamma"])


def test_options_that_the_initial_state_has_can_be_swept(federation):
    """They are traced; whether networks start apart is a matter of the model."""
    swept = fedprior.sweep(
        lambda psi: built("adaped", initial_psi=psi, networks=2),
        federation,
        over={"psi": [1.0, 4.0]},
        rounds=1,
        seeds=(0,),
    )
    assert swept.valid.shape[0] == 2


def test_a_state_that_starts_alike_is_no_reason_to_refuse():
    assert built("fedmd", networks=2, num_public=3).name == "fedmd"


def test_one_network_is_the_method_itself():
    known = fedprior.learning.fedavg(MODEL)
    assert optimized(lambda model: known, MODEL, networks=1) is known


@pytest.mark.parametrize(
    ("name", "model", "networks", "wording"),
    [
        ("fedavg", fedprior.models.logistic(4, 3), 2, "fedavg: networks must be 1, because all"),
        ("fedavg", MODEL, 0, "fedavg: networks must be a whole number"),
        ("fedavg", MODEL, 1.5, "fedavg: networks must be a whole number"),
    ],
)
def test_what_cannot_be_several_is_refused(name, model, networks, wording):
    with pytest.raises((ValueError, TypeError), match=wording):
        built(name, model, networks=networks)


def test_a_server_that_sees_every_message_is_refused():
    wording = "networks must be 1, because the server needs more than the sum of messages, got 2"
    related = fedprior.populations.Multitask(covariance=0.5 * np.eye(4) + 0.5)
    multitask = fedprior.learning.multitask
    with pytest.raises(ValueError, match=wording):
        optimized(multitask, MODEL, networks=2, population=related, steps=STEPS)
    assert "networks" not in catalog.method("mixture-clustering").options()


def test_noise_is_compared_with_the_whole_message():
    """Three networks are three times as many coordinates: momentum falls further."""
    noise = ChannelNoise(noise_multiplier=1.0, clip=1.0, rate=0.1, num_clients=1000, rounds=100)
    method = catalog.method("adamap")
    calm = [method.under_noise(MODEL, own, noise)["momentum"] for own in ({}, {"networks": 3})]
    assert calm[1] < calm[0] < method.default("momentum")
