"""Momentum, an average over rounds and class frequencies, as options of any method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random, tree
from fedprior.core.algorithm import Message
from fedprior.learning import catalog, optimized
from fedprior.models.offset import Offset
from fedprior.reporting.config import Config

KEY = random.root(3)
STEPS = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=4))
MODEL = fedprior.models.logistic(4, 3)
MOMENTUM, HORIZON, ROUNDS = 0.5, 2.0, 3


def built(name, model=MODEL, **options):
    return catalog.method(name).build(model, options, steps=STEPS)


@pytest.fixture(scope="module")
def data(federation):
    return jax.tree.map(jnp.asarray, federation.train.client(0))


def vector(parts):
    return np.asarray(tree.flatten(parts), float)


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("adaped", ["mean"]),
        ("clustered", ["centers"]),
        ("fedavg", ["mean"]),
        ("shared-subspace", ["mean", "basis"]),
    ],
)
def test_the_server_moves_networks_on_and_averages_them(data, name, moved):
    """A twin of the server, which knows one round of the method; psi and shares move as ever."""
    plain, ours = built(name), built(name, momentum=MOMENTUM, horizon=HORIZON)
    local, update = jax.jit(plain.local), jax.jit(ours.update)
    state = ours.init(KEY)
    memory = plain.enroll(plain.init(KEY), jnp.int32(0), KEY)
    gamma, average = plain.init(KEY)["gamma"], plain.init(KEY)["gamma"]
    velocity = {block: 0 * vector(gamma[block]) for block in moved}
    for round_ in range(ROUNDS):
        now = {**plain.init(KEY), "gamma": gamma, "round": jnp.int32(round_)}
        message, memory = local(now, memory, data, KEY)
        after = plain.update(now, message)["gamma"]
        for block in moved:
            before = vector(gamma[block])
            velocity[block] = MOMENTUM * velocity[block] + vector(after[block]) - before
            values = jnp.asarray(before + velocity[block], jnp.float32)
            after = {**after, block: tree.unflatten(values, after[block])}
        gamma = plain.moved.project(after)
        share = 1 / min(round_ + 1, HORIZON)
        average = {
            block: tree.combine(lambda a, b: a + share * (b - a), average[block], gamma[block])  # noqa: B023
            for block in moved
        }
        state = update(state, message)
    for block in gamma:
        np.testing.assert_allclose(vector(state["gamma"][block]), vector(gamma[block]), atol=1e-5)
    for block in moved:
        np.testing.assert_allclose(
            vector(state["average"][block]), vector(average[block]), atol=1e-5
        )
    assert np.abs(vector(average) - vector({block: gamma[block] for block in moved})).max() > 1e-3
    averaged = {**plain.init(KEY), "round": state["round"]}
    averaged["gamma"] = plain.moved.project({**gamma, **average})
    expected = jax.jit(plain.personalize)(averaged, memory, data, KEY)
    found = jax.jit(ours.personalize)(state, memory, data, KEY)
    np.testing.assert_allclose(vector(found), vector(expected), atol=1e-4)


@pytest.mark.parametrize("name", ["adaped", "fedem", "fedavg-fine-tuning", "per-fedavg", "local"])
def test_clients_add_their_log_frequencies_to_all_outputs(data, name):
    """The method on a model of the client's own, built by hand."""
    counts = np.bincount(np.asarray(data.y), minlength=3) + 0.5
    offset = np.log(counts / counts.sum()).astype(np.float32)
    hand = built(name, Offset(MODEL, jnp.asarray(offset)))
    ours = built(name, class_frequencies=True, smoothing=0.5)
    state = hand.init(KEY)
    memory = hand.enroll(state, jnp.int32(0), KEY)
    messages = [jax.jit(each.local)(state, memory, data, KEY)[0] for each in (hand, ours)]
    np.testing.assert_allclose(*map(vector, messages), atol=1e-6)
    thetas = [jax.jit(each.personalize)(state, memory, data, KEY) for each in (hand, ours)]
    np.testing.assert_allclose(thetas[1]["log_frequencies"], offset, rtol=1e-5)
    outputs = [
        each.predict(theta, data.x) for each, theta in zip((hand, ours), thetas, strict=True)
    ]
    np.testing.assert_allclose(*outputs, atol=1e-5)
    plain = built(name).predict(thetas[1]["theta"], data.x)
    assert np.abs(outputs[1] - plain).max() > 0.01


def test_nothing_is_kept_that_is_not_asked_for():
    for options, added in (
        ({}, set()),
        ({"momentum": 0.9}, {"velocity"}),
        ({"horizon": 5.0}, {"average"}),
        ({"momentum": 0.9, "horizon": 5.0}, {"velocity", "average"}),
    ):
        state = built("adaped", **options).init(KEY)
        assert state.keys() - {"gamma", "round", "words"} == added
        assert all(state[name].keys() == {"mean"} for name in added)  # psi has neither


def test_a_round_of_nobody_leaves_momentum_and_average_as_they_are():
    algorithm = built("adaped", momentum=0.5, horizon=3.0)
    state = algorithm.init(KEY)
    state["velocity"] = tree.combine(jnp.ones_like, state["velocity"])
    still = {"mean": tree.combine(jnp.zeros_like, state["gamma"]["mean"]), "psi": jnp.zeros(())}
    after = algorithm.update(state, Message(still, jnp.zeros(())))
    assert after.pop("round") == 1
    del state["round"]
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_what_a_method_promises_stays_true():
    for name in ("adaped", "fedavg", "fedem"):
        plain = built(name)
        ours = built(name, momentum=0.9, horizon=5.0, class_frequencies=True)
        for flag in ("name", "pools", "unit_weight", "memoryless", "bears_noise", "bound", "model"):
            assert getattr(ours, flag) == getattr(plain, flag)


def test_the_defaults_are_the_method_itself():
    def factory(model):
        return known

    known = fedprior.learning.fedavg(MODEL)
    assert optimized(factory, MODEL) is known


def test_a_method_is_built_when_it_is_traced_and_not_in_every_round(federation):
    calls = []

    def factory(model):
        calls.append(model)
        return fedprior.learning.fedavg(model, steps=STEPS)

    algorithm = optimized(factory, MODEL, class_frequencies=True)
    fedprior.simulate(algorithm, federation, rounds=2, seed=0)
    traced = len(calls)
    fedprior.simulate(algorithm, federation, rounds=5, seed=1)
    assert len(calls) == traced


def test_a_quantity_has_no_class_frequencies():
    linear = fedprior.models.linear(2)
    algorithm = optimized(fedprior.learning.fedavg, linear, class_frequencies=True)
    assert algorithm.predict == linear.apply


@pytest.mark.parametrize(
    ("name", "option", "why"),
    [
        ("gaussian-em", {"momentum": 0.9}, "momentum is not supported, because its server fits"),
        ("local", {"horizon": 5.0}, "horizon is not supported, because nothing is shared"),
        ("mean-regularized", {"momentum": 0.9}, "momentum is not supported, because its mean"),
        ("clustered", {"momentum": 0.9, "curvature": "full"}, "momentum must be left out: the"),
        ("fedavg", {"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ("fedavg", {"horizon": 0.5}, "horizon must be a number of at least 1, got 0.5"),
        ("fedavg", {"smoothing": 0.0}, "smoothing must be a positive number, got 0.0"),
    ],
)
def test_refusals_say_why(name, option, why):
    with pytest.raises(ValueError, match=f"^{name}: {why}"):
        built(name, **option)


def test_a_configuration_refuses_momentum_where_there_is_none():
    wording = "^config options.local: momentum is not supported, because nothing is shared"
    with pytest.raises(ValueError, match=wording):
        Config(options={"local": {"momentum": 0.9}})


@pytest.mark.parametrize(("option", "value"), [("class_frequencies", True), ("smoothing", 0.5)])
def test_class_frequencies_of_a_quantity_are_refused_where_they_are_asked_for(option, value):
    model = fedprior.mlp((4,), 1, regression=True)
    for name in ("adamap", "apfl"):
        with pytest.raises(ValueError, match=f"^{name}: {option} must be left out: the target is"):
            built(name, model, **{option: value})
    assert built("adamap", model, class_frequencies=False).name == "adamap"
