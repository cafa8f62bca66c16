"""Clients follow a noisy population only as far as it exceeds its noise."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.core.algorithm import Message
from fedprior.data.synthetic import classification
from fedprior.engines.simulate import simulate
from fedprior.exchange.facts import Facts
from fedprior.learning import catalog, cautious
from fedprior.learning.baselines.fedavg import fedavg_fine_tuning
from fedprior.learning.baselines.local import local
from fedprior.models.network import linear, logistic, mlp
from fedprior.privacy.strategy import Banded, squared_errors

STEPS = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=20))  # all of a client's
MODEL = logistic(2, 3)
DATA = Facts(num_clients=1, shape=(30,), num_classes=10, most_samples=4).client_data(
    np.ones((4, 30)), np.zeros(4, int)
)


@pytest.fixture(scope="module")
def clients():
    return classification(
        num_clients=6, samples_per_client=(10, 20), num_features=2, num_classes=3, seed=0
    )


def careful(deviation, model=MODEL):
    tuned = fedavg_fine_tuning(model, steps=STEPS, fine_tuning_steps=4)
    return cautious(tuned, local(model, steps=STEPS, newcomer_steps=4), deviation=deviation)


def test_pure_noise_leaves_what_a_client_learns_alone(clients):
    channel = CentralGaussian(clip=0.1, noise_multiplier=1000.0)
    found = simulate(careful(100.0), clients, rounds=3, channel=channel)
    # Without rounds, everybody is personalized as a newcomer.
    alone = simulate(local(MODEL, steps=STEPS, newcomer_steps=4), clients, rounds=0)
    assert [entry["trust"] for entry in found.history] == [0, 0, 0]
    np.testing.assert_array_equal(found.scores, alone.scores)
    for client in range(6):
        x = clients.test.x[:5]
        own = jax.nn.log_softmax(alone.predict(client, x))
        np.testing.assert_allclose(found.predict(client, x), own, atol=1e-6)


def test_without_noise_the_method_is_itself(clients):
    channel = CentralGaussian(clip=100.0, noise_multiplier=1e-9)
    found = simulate(careful(1e-7), clients, rounds=3, channel=channel)
    plain = fedavg_fine_tuning(MODEL, steps=STEPS, fine_tuning_steps=4)
    wanted = simulate(plain, clients, rounds=3, channel=channel)
    assert found.history[-1]["trust"] > 0.9999
    x = clients.test.x[:5]
    for client in range(6):
        np.testing.assert_allclose(
            jax.nn.softmax(found.predict(client, x)),
            jax.nn.softmax(wanted.predict(client, x)),
            atol=1e-3,
        )


@pytest.mark.parametrize("model", [MODEL, mlp((4,), 3, hidden=(64,))])
def test_noise_alone_is_hardly_ever_trusted(model):
    """200 runs of pure noise: trust exceeds 0 by 3 deviations, 0.13% of them if all is right.

    A twin whose noise is 20% too small would trust every run of the larger model.
    FALSE_ALARM = 1e-6: more than 6 of 200 at a rate of 0.5%, which allows for chi-squared tails.
    """
    algorithm = careful(2.0, model)

    @jax.jit
    @jax.vmap
    def trust(key):
        state = algorithm.init(jax.random.key(7))
        for round in range(5):
            like = algorithm.init(jax.random.key(7))["gamma"]
            noise = jax.tree.map(
                lambda leaf, fold=round: (
                    2.0
                    * jax.random.normal(jax.random.fold_in(key, 100 * fold + leaf.size), leaf.shape)
                ),
                like,
            )
            state = algorithm.update(state, Message(noise, jnp.asarray(3.0)))
        return state["trust"]

    found = trust(jax.random.split(jax.random.key(1), 200))
    assert int(jnp.sum(found > 0)) <= 6


def test_a_signal_as_strong_as_the_noise_is_half_trusted():
    """James-Stein: trust = signal / (signal + noise) for the energies of both."""
    model = logistic(100, 50)
    algorithm, size = careful(1.0, model), 101 * 50
    state = algorithm.init(jax.random.key(0))
    noise = jax.random.normal(jax.random.key(2), (size,))
    signal = jax.random.normal(jax.random.key(3), (size,))
    _, back = jax.flatten_util.ravel_pytree(state["gamma"])
    total = Message(back(noise + signal), jnp.asarray(1.0))
    trust = float(algorithm.update(state, total)["trust"])
    assert trust == pytest.approx(0.5, abs=0.06)  # less 3 deviations of 2% each


def test_a_state_that_is_not_finite_is_not_followed():
    algorithm = careful(1.0)
    state = algorithm.init(jax.random.key(0))
    for bad in (jnp.inf, jnp.nan):
        spoiled = jax.tree.map(lambda leaf: jnp.full_like(leaf, bad), state["gamma"])  # noqa: B023
        after = algorithm.update(state, Message(spoiled, jnp.asarray(1.0)))
        assert float(after["trust"]) == 0
        theta = {"population": spoiled["mean"], "own": state["gamma"]["mean"], "trust": 0.0}
        assert bool(jnp.isfinite(algorithm.predict(theta, jnp.ones((2, 2)))).all())


def test_quantities_are_weighted_means():
    algorithm = careful(1.0, linear(2))
    state = algorithm.init(jax.random.key(0))
    shift = jax.tree.map(lambda leaf: leaf + 1.0, state["gamma"]["mean"])
    theta = {"population": shift, "own": state["gamma"]["mean"], "trust": jnp.asarray(0.25)}
    x = jnp.ones((3, 2))
    own, shared = (linear(2).apply(each, x) for each in (theta["own"], theta["population"]))
    np.testing.assert_allclose(algorithm.predict(theta, x), own + 0.5 * (shared - own), rtol=1e-6)


@pytest.mark.parametrize(
    "name", [name for name, method in catalog.METHODS.items() if not method.alone]
)
def test_every_method_can_be_cautious(name):
    """Shapes alone: the state, the message and the personal model of any method fit."""
    model = mlp((2,), 3, hidden=(2,))
    method = catalog.method(name).build(model, {}, steps=STEPS)
    if method.pools == "gather":
        pytest.skip("needs every message by itself, which no private channel carries")
    algorithm = cautious(method, local(model, steps=STEPS), deviation=1.0)

    facts = Facts(num_clients=2, shape=(2,), num_classes=3, most_samples=4)

    def whole(key, data):
        state = algorithm.init(key)
        memory = algorithm.enroll(state, jnp.zeros((), jnp.int32), key)
        message, memory = algorithm.local(state, memory, data, key)
        after = algorithm.update(state, message)
        theta = algorithm.personalize(after, memory, data, key)
        return state, after, algorithm.predict(theta, data.x)

    data = facts.client_data(np.ones((4, 2)), np.zeros(4, int))
    before, after, outputs = jax.eval_shape(whole, jax.random.key(0), data)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), each) for each in (before, after)]
    assert shapes[0] == shapes[1]
    assert outputs.shape == (4, 3)


def test_noise_by_round_adds_up_as_under_the_channel():
    from fedprior.channels.matrix_gaussian import MatrixGaussian
    from fedprior.privacy.participation import Participation
    from fedprior.reporting.noise import deviations

    channel = MatrixGaussian(
        clip=0.5,
        noise_multiplier=3.0,
        strategy=Banded((1.0, 0.5)),
        participation=Participation(rounds=7, apart=2),
    )
    found = np.cumsum(deviations(channel) ** 2)
    np.testing.assert_allclose(found, 1.5**2 * squared_errors(channel.strategy, 7))


def test_python_runs_log_the_verdict(clients, caplog):
    channel = CentralGaussian(clip=1.0, noise_multiplier=50.0)
    plain = fedavg_fine_tuning(MODEL, steps=STEPS, fine_tuning_steps=1)
    with caplog.at_level(logging.WARNING, "fedprior"):
        simulate(plain, clients, rounds=1, channel=channel)
        assert "Pure noise" in caplog.text
        assert "cautious" in caplog.text
        caplog.clear()
        simulate(careful(50.0), clients, rounds=1, channel=channel)
        assert not caplog.text


def test_twins_follow_a_clip_that_adapts():
    """The noise of a channel with clip 1 is scaled by the clip of the moment, for twins as well."""
    from fedprior.learning.adaptive_clip import adaptive_clip

    tuned = adaptive_clip(fedavg_fine_tuning(MODEL, steps=STEPS), initial=50.0)
    algorithm = cautious(tuned, local(MODEL, steps=STEPS), deviation=1.0)
    state = algorithm.init(jax.random.key(0))
    like = jax.tree.map(jnp.zeros_like, state["gamma"])
    total = Message({"message": like, "below": jnp.zeros(())}, jnp.asarray(1.0))
    after = algorithm.update(state, total)
    moved = jax.tree.map(jnp.subtract, after["twins"]["gamma"], state["twins"]["gamma"])
    spread = float(jnp.std(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(moved)])))
    assert 35 < spread < 65  # 16 twins of 9 coordinates: 6% of 50, so 5 deviations at least


def test_one_block_that_stands_out_does_not_vouch_for_another():
    """Weights of a Laplace prior move far by themselves while its mean is noise."""
    model = logistic(30, 10)
    method = catalog.method("laplace-em").build(model, {}, steps=STEPS)
    algorithm = cautious(method, local(model, steps=STEPS), deviation=1.0)
    state = algorithm.init(jax.random.key(0))
    shift = jax.tree.map(lambda leaf: leaf + 100.0, state["gamma"]["weight"])
    moved = {**state, "gamma": {**state["gamma"], "weight": shift}}
    key = jax.random.key(0)

    def message(data):
        return algorithm.local(state, algorithm.enroll(state, jnp.int32(0), key), data, key)[0]

    noise = jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape),
        jax.eval_shape(message, DATA).value,
    )
    after = algorithm.update(moved, Message(noise, jnp.asarray(1.0)))
    assert float(after["trust"]) == 0
