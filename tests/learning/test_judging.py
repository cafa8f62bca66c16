"""Priors judged by held-out prediction: what clients find, what the server makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

import fedprior
from fedprior.core import random
from fedprior.core.algorithm import Message
from fedprior.data import synthetic
from fedprior.learning import catalog
from fedprior.learning.judging import ENTIRELY, PRIOR_SAMPLES, SMOOTHING, shrunk
from fedprior.learning.method import ChannelNoise

MODEL, KEY, SIZE = fedprior.models.logistic(2, 3), random.root(3), 9
STEPS = fedprior.Steps(local_steps=2, batches=fedprior.Batches(size=3))


def adamap(judge_every=1, model=MODEL, **options):
    given = {"steps": STEPS, "last_steps": 4, "theta_rate": 0.5, **options}
    return fedprior.adamap(model, judge_every=judge_every, **given)


def client(size=SIZE, model=MODEL):
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(12, 2)).astype("f4"), draws.integers(0, 3, 12).astype("i4")
    if getattr(model, "regression", False):
        y = y.astype("f4")
    parts = (x, y, np.int32(0), np.int32(size), np.arange(12))
    return fedprior.data.ClientData(*map(jnp.asarray, parts))


def begun(algorithm, seed=5):
    state = algorithm.init(KEY)
    drawn = jax.tree.map(
        lambda leaf: jax.random.normal(random.root(seed), leaf.shape), state["gamma"]["mean"]
    )
    return {**state, "gamma": {"mean": drawn}, "average": {"mean": drawn}}


def sent(algorithm, data, state=None):
    state = begun(algorithm) if state is None else state
    memory = algorithm.enroll(state, np.int32(0), KEY)
    return state, memory, jax.jit(algorithm.local)(state, memory, data, KEY)[0]


def test_clients_send_what_each_value_adds_to_the_loss_of_held_out_samples():
    data = client()
    state, memory, message = sent(adamap(), data)
    plain = adamap(judge_every=0)
    order = np.asarray(
        random.permuted(random.vary(memory["words"], state["round"]), np.arange(SIZE), SIZE)
    )
    x, y = np.asarray(data.x)[order], np.asarray(data.y)[order]
    half = SIZE // 2
    seen = data._replace(x=jnp.asarray(x), y=jnp.asarray(y), size=jnp.int32(half))

    def loss(**changed):
        numbers = {name: jnp.float32(value) for name, value in changed.items()}
        theta = plain.personalize({**state, **numbers}, memory, seen, KEY)
        log_p = log_softmax(np.asarray(plain.predict(theta, x[half:])), axis=1)
        return -log_p[np.arange(SIZE - half), y[half:]].mean()

    found, usual = message.value["trial"]["found"], loss(prior_samples=ENTIRELY)
    expected = [loss(prior_samples=value) - usual for value in PRIOR_SAMPLES]
    np.testing.assert_allclose(found["held_out_loss"], usual, rtol=1e-5)
    np.testing.assert_allclose(found["prior_samples"], expected, atol=1e-5)
    assert found["prior_samples"][-1] == 0
    assert np.ptp(found["prior_samples"]) > 0.01


@pytest.mark.parametrize("shape", [(2,), None])
def test_smoothing_is_judged_with_the_frequencies_of_the_other_samples(shape):
    """Every sample is predicted by a client that has all of its samples but this one."""
    model = MODEL if shape else fedprior.network(MODEL.init, MODEL.apply)
    data = client()
    state, memory, message = sent(adamap(model=model), data)
    plain, keep = adamap(judge_every=0, model=model), np.arange(SIZE)

    def loss(value):
        numbers = {"prior_samples": jnp.float32(ENTIRELY), "smoothing": jnp.float32(value)}
        losses = []
        for own in range(SIZE):
            order = jnp.asarray(np.append(keep[keep != own], [own] * (len(data.y) - SIZE + 1)))
            others = data._replace(x=data.x[order], y=data.y[order], size=jnp.int32(SIZE - 1))
            theta = plain.personalize({**state, **numbers}, memory, others, KEY)
            outputs = np.asarray(plain.predict(theta, data.x[own : own + 1]))
            losses.append(-log_softmax(outputs, axis=1)[0, data.y[own]])
        return np.mean(losses)

    expected = np.array([loss(value) for value in SMOOTHING])
    found = message.value["trial"]["found"]["smoothing"]
    np.testing.assert_allclose(found, expected - expected[-1], atol=1e-4)
    assert found[-1] == 0 < np.ptp(found)


@pytest.mark.parametrize(("size", "round_"), [(SIZE, 0), (1, 1), (0, 1)])
def test_nothing_is_found_between_trials_and_with_a_single_sample(size, round_):
    algorithm = adamap(judge_every=2)
    state = {**begun(algorithm), "round": jnp.int32(round_)}
    message = sent(algorithm, client(size), state)[2]
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(message.value["trial"]))


def told(algorithm, state, usual, weight=1.0, **gains):
    """The state after a total that says this."""
    still = jax.tree.map(jnp.zeros_like, {"mean": state["gamma"]["mean"]})
    found = jax.tree.map(lambda each: weight * jnp.asarray(each), {"held_out_loss": usual, **gains})
    trial = {"weight": jnp.asarray(weight), "found": found}
    sent = {"method": still, "frequencies": jnp.zeros(3)}
    return algorithm.update(state, Message({"method": sent, "trial": trial}, jnp.asarray(5.0)))


def test_the_server_takes_the_most_cautious_of_the_values_that_predict_about_best():
    algorithm = adamap()
    gains = np.array([0.2, 0.1, 0.0, -0.1, -0.3, -0.297, -0.29, -0.1, 0.0, 0.0], "f4")
    flat = np.zeros(len(SMOOTHING), "f4")
    after = told(algorithm, begun(algorithm), 1.0, weight=2.0, prior_samples=gains, smoothing=flat)
    assert after["prior_samples"] == 100  # 0.003 above the least: within half a percent of 1
    assert after["smoothing"] == ENTIRELY
    after = told(algorithm, after, 0.0, weight=0.0, prior_samples=-gains, smoothing=flat)
    assert (after["prior_samples"], after["trials"]) == (100, 1)


def test_later_trials_have_larger_weights():
    algorithm = adamap()
    state, flat = begun(algorithm), np.zeros(len(SMOOTHING), "f4")
    for usual in (1.0, 10.0, 100.0):
        gains = np.zeros(len(PRIOR_SAMPLES), "f4")
        state = told(algorithm, state, usual, prior_samples=gains, smoothing=flat)
    weights = [k * (k + 1) * (k + 2) for k in (1, 2, 3)]
    expected = np.average([1, 10, 100], weights=weights)
    np.testing.assert_allclose(state["found"]["held_out_loss"], expected, rtol=1e-6)


@pytest.mark.parametrize("rate", [1e30, 1e9])
def test_steps_that_diverge_are_not_taken(rate):
    """A gain is at most as large as the loss, and the shared model stays among the values."""
    algorithm = adamap(theta_rate=rate, steps=fedprior.Steps(local_steps=2, weight_decay=1e9))
    state, memory, message = sent(algorithm, client())
    found = message.value["trial"]["found"]
    assert np.all(np.isfinite(found["prior_samples"]))
    assert np.max(found["prior_samples"]) <= found["held_out_loss"]
    after = algorithm.update(state, message)
    assert after["prior_samples"] == ENTIRELY
    theta = algorithm.personalize(after, memory, client(), KEY)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(theta))


def test_a_quantity_is_judged_by_its_squared_error():
    model = fedprior.models.linear(2)
    algorithm = adamap(model=model)
    message = sent(algorithm, client(model=model))[2]
    assert set(message.value["trial"]["found"]) == {"held_out_loss", "prior_samples"}
    assert message.value["trial"]["found"]["held_out_loss"] > 0


def test_a_client_without_samples_keeps_the_mean():
    mean, w = {"a": jnp.ones(2)}, {"a": jnp.full(2, jnp.nan)}
    kept = shrunk(mean, w, jnp.int32(0), jnp.float32(0))
    np.testing.assert_array_equal(kept["a"], mean["a"])
    half = shrunk(mean, {"a": jnp.full(2, 3.0)}, jnp.int32(10), jnp.float32(10))
    np.testing.assert_allclose(half["a"], 2.0)


@pytest.mark.parametrize(("spread", "least", "most"), [(0.0, 100, ENTIRELY), (1.0, 0, 30)])
def test_the_prior_is_as_strong_as_clients_are_alike(spread, least, most):
    federation = synthetic.classification(
        num_clients=60, num_features=5, num_classes=3, spread=spread, seed=1
    )
    model = fedprior.models.logistic(5, 3)
    algorithm = fedprior.adamap(model, momentum=0.5, judge_every=5)
    result = fedprior.simulate(algorithm, federation, rounds=40)
    assert least <= result.state["prior_samples"] <= most
    assert result.history[-1]["prior_samples"] == result.state["prior_samples"]
    assert result.history[-1]["smoothing"] == result.state["smoothing"]


def test_noise_does_not_judge():
    """Under noise the message is that of FedAvg, and the prior stays where it was."""
    method = catalog.method("adamap")
    options = method.under_noise(MODEL, {}, ChannelNoise(5.0, 1.0, 0.1, 10, 3))
    algorithm = method.build(MODEL, options, steps=STEPS)
    state, _, message = sent(algorithm, client())
    assert set(message.value) == {"mean"}
    assert "found" not in state


def test_a_round_without_a_trial_changes_nothing_whatever_weight_noise_gives_it():
    algorithm = adamap(judge_every=4)
    state, _, message = sent(algorithm, client())
    noisy = jax.tree.map(lambda leaf: leaf + 0.5, message)
    after = algorithm.update({**state, "round": jnp.asarray(1)}, noisy)
    assert float(after["prior_samples"]) == float(state["prior_samples"])
    assert int(after["trials"]) == 0
    due = algorithm.update({**state, "round": jnp.asarray(2)}, noisy)
    assert int(due["trials"]) == 1


def test_a_trial_depends_on_the_counter_of_its_loop():
    """XLA runs a loop of no or one turn anyway if nothing in the turn depends on its counter."""
    algorithm, data = adamap(judge_every=30), client()
    state = begun(algorithm)
    memory = algorithm.enroll(state, np.int32(0), KEY)
    traced = jax.make_jaxpr(algorithm.local)(state, memory, data, KEY).jaxpr
    loops = [each.params for each in traced.eqns if each.primitive.name == "while"]
    outer = [each for each in loops if "while" in str(each["body_jaxpr"])]
    assert len(outer) == 1  # around the steps of the trial
    body, constants = outer[0]["body_jaxpr"].jaxpr, outer[0]["body_nconsts"]
    uses = [each for each in body.eqns if body.invars[constants] in each.invars]
    assert len(uses) > 1  # beside its increment
