"""FedAvg, fine-tuning, local and the Gaussian prior against each other and a NumPy twin."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import fedprior
from fedprior.core import random, tree

EVERYTHING = fedprior.Batches(steps_per_epoch=1)  # every step reads all of a client's samples
STEPS = fedprior.Steps(local_steps=3, batches=EVERYTHING)
COMMON = {"steps": STEPS, "newcomer_steps": 0}
RUN = {"rounds": 3, "cohort": fedprior.FixedSize(size=3), "seed": 1}
MODEL = fedprior.models.logistic(4, 3)
AVERAGED = {"gamma_rate": 0.3, "steps": replace(STEPS, weight_decay=0.01)}


def same(first, second, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def averaged(federation):
    return {
        weight: fedprior.simulate(
            fedprior.learning.fedavg(MODEL, weight=weight, **AVERAGED), federation, **RUN
        )
        for weight in ("uniform", "samples")
    }


@pytest.mark.parametrize("weight", ["uniform", "samples"])
def test_fedavg_is_the_average_of_full_gradient_descents(federation, averaged, weight):
    result = averaged[weight]
    mean = np.zeros((5, 3))  # the intercepts, then the weights
    for round_ in range(RUN["rounds"]):
        increments, weights = [], []
        for client in RUN["cohort"].draw(RUN["seed"], round_, 5):
            data = federation.train.client(client)
            x = np.hstack([np.ones((len(data.x), 1)), data.x])
            own = mean.copy()
            for _ in range(STEPS.local_steps):
                gradient = x.T @ (softmax(x @ own, axis=1) - np.eye(3)[data.y]) / len(x)
                own = own - 0.3 * (gradient + 0.01 * own)
            increments.append(own - mean)
            weights.append(1 if weight == "uniform" else len(x))
        mean = mean + np.average(increments, axis=0, weights=weights)
    found = result.state["gamma"]["mean"]
    np.testing.assert_allclose(found["intercept"], mean[0], atol=1e-5)
    np.testing.assert_allclose(found["weight"], mean[1:], atol=1e-5)
    assert result.algorithm.unit_weight == (weight == "uniform")
    for client in range(5):  # one model for all
        same(jax.tree.map(lambda leaf: leaf[client], result.thetas), found)  # noqa: B023


def test_fine_tuning_without_steps_is_fedavg(federation, averaged):
    plain = averaged["uniform"]
    tuned = fedprior.learning.fedavg_fine_tuning(MODEL, fine_tuning_steps=0, **AVERAGED)
    tuned = fedprior.simulate(tuned, federation, **RUN)
    same(plain.state["gamma"], tuned.state["gamma"])
    same(plain.thetas, tuned.thetas)
    np.testing.assert_array_equal(plain.scores, tuned.scores)


def test_fine_tuning_descends_each_clients_own_loss(federation):
    algorithm = fedprior.learning.fedavg_fine_tuning(
        MODEL, fine_tuning_steps=2, fine_tuning_rate=0.2, steps=STEPS
    )
    result = fedprior.simulate(algorithm, federation, **RUN)
    mean = jax.tree.map(lambda leaf: np.asarray(leaf, float), result.state["gamma"]["mean"])
    for client in range(5):
        data = federation.train.client(client)
        x = np.hstack([np.ones((len(data.x), 1)), data.x])
        own = np.vstack([mean["intercept"], mean["weight"]])
        for _ in range(2):
            own = own - 0.2 * x.T @ (softmax(x @ own, axis=1) - np.eye(3)[data.y]) / len(x)
        np.testing.assert_allclose(result.thetas["weight"][client], own[1:], atol=1e-5)


@pytest.fixture(scope="module")
def alone(federation):
    return fedprior.simulate(fedprior.learning.local(MODEL, **COMMON), federation, **RUN)


def test_local_sends_nothing(alone, federation):
    algorithm, root = alone.algorithm, random.root(0)
    state = algorithm.init(root)
    memory = algorithm.enroll(state, jnp.int32(0), root)
    data = jax.tree.map(jnp.asarray, federation.train.client(0))
    message, after = algorithm.local(state, memory, data, root)
    assert tree.size(message.value) == 0
    assert not np.array_equal(after["w"]["weight"], memory["w"]["weight"])
    same(alone.state["gamma"]["mean"], MODEL.init(None))


def test_local_is_gradient_descent_of_those_who_took_part(alone, federation):
    """Steps are counted: a client sampled k times has taken k * local_steps of them."""
    memories, _ = alone.store.read(np.arange(5))
    draws = [RUN["cohort"].draw(RUN["seed"], round_, 5) for round_ in range(RUN["rounds"])]
    times = np.bincount(np.concatenate(draws), minlength=5)
    np.testing.assert_array_equal(memories["step"], times * STEPS.local_steps)
    for client in range(5):
        data = federation.train.client(client)
        x = np.hstack([np.ones((len(data.x), 1)), data.x])
        own = np.zeros((5, 3))
        for _ in range(times[client] * STEPS.local_steps):
            own = own - 0.1 * x.T @ (softmax(x @ own, axis=1) - np.eye(3)[data.y]) / len(x)
        np.testing.assert_allclose(alone.thetas["weight"][client], own[1:], atol=1e-5)


def test_a_wide_gaussian_prior_is_local(alone, federation):
    wide = fedprior.learning.gaussian_prior(MODEL, scale=1e4, **COMMON)
    same(fedprior.simulate(wide, federation, **RUN).thetas, alone.thetas, 1e-5)


def test_a_narrow_gaussian_prior_holds_theta_at_the_mean(federation):
    """The fixed point of w at scale s, one client alone: the penalty counts once a sample's share.

    n (gradient of the mean loss) + (w - mean) / s^2 = 0 after many steps.
    """
    scale = 0.3
    algorithm = fedprior.learning.gaussian_prior(
        MODEL, scale=scale, gamma_rate=0.0, steps=replace(STEPS, local_steps=300)
    )
    result = fedprior.simulate(algorithm, federation, rounds=2)
    for client in range(5):
        data = federation.train.client(client)
        x = np.hstack([np.ones((len(data.x), 1)), data.x])
        own = np.vstack([result.thetas["intercept"][client], result.thetas["weight"][client]])
        gradient = x.T @ (softmax(x @ own, axis=1) - np.eye(3)[data.y])
        np.testing.assert_allclose(gradient, -own / scale**2, atol=1e-3)


class Linear:
    """A loss whose gradient is the sample: what a client sends is the sum of what it read."""

    init = staticmethod(lambda key: jnp.zeros(4))
    apply = staticmethod(lambda theta, x: x @ theta)
    loss = staticmethod(lambda outputs, y: outputs)
    score = staticmethod(lambda outputs, y: outputs)


@pytest.mark.parametrize("size", [1, 4])
def test_an_epoch_reads_every_sample_once_and_ends_with_the_client(federation, play, size):
    """Two passes, whatever the client's size; the last batch of a pass takes what is left."""
    steps = fedprior.Steps(local_epochs=2, batches=fedprior.Batches(size=size))
    algorithm = fedprior.learning.fedavg(Linear(), steps=steps, gamma_rate=1.0)
    state, memories = play(algorithm, federation, 1)
    assert memories["step"].tolist() == [2 * -(-int(n) // size) for n in federation.train.size]
    if size == 1:  # a mean over a smaller last batch would count its samples more
        sums = [federation.train.client(i).x.sum(axis=0) for i in range(federation.num_clients)]
        np.testing.assert_allclose(state["gamma"]["mean"], -2 * np.mean(sums, axis=0), rtol=1e-5)


@pytest.mark.parametrize("option", [{"catch_up": 3}, {"method": "paper"}])
def test_epochs_do_not_go_with_what_counts_steps(option):
    with pytest.raises(ValueError, match=r"^adaped: local_epochs is not supported"):
        fedprior.adaped(MODEL, steps=fedprior.Steps(local_epochs=1), **option)
