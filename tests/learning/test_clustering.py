"""The paper's clustering server: what it computes, whom it ignores, and how it collapses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random
from fedprior.core.algorithm import Message
from fedprior.data.federation import Federation, Split
from fedprior.estimation.clustering import k_means
from fedprior.learning.paper import CollapseWarning

MODEL = fedprior.models.logistic(2)
pytestmark = pytest.mark.filterwarnings("ignore::fedprior.learning.paper.CollapseWarning")


def means(theta, size, seed=0):
    """Clients whose samples are N(theta_i, 1): a linear model without a feature that varies."""
    draws = np.random.default_rng(seed)
    own = np.repeat(np.arange(len(theta)), size)
    y = (theta[own] + draws.normal(size=len(own))).astype(np.float32)
    x = np.zeros((len(own), 1), np.float32)
    rows = [np.flatnonzero(own == client) for client in range(len(theta))]
    train = Split.gather(x, y, rows)
    empty = Split.gather(x, y, [np.empty(0, int)] * len(theta))
    names = np.arange(len(theta)).astype(str)
    return Federation(train=train, valid=empty, test=empty, clients=names, classes=None)


def stacked(points):
    points = np.asarray(points, np.float32)
    return {"intercept": points[:, :1], "weight": points[:, 1:, None]}


@pytest.fixture(scope="module")
def update():
    algorithm = fedprior.learning.mixture_clustering(MODEL, num_components=2)
    state = jax.jit(algorithm.init)(random.root(0))
    return state, jax.jit(algorithm.update)


POINTS = np.array([[0, 0, 0], [0, 0.2, 0], [5, 5, 5], [5, 5.4, 5], [5, 5.2, 5.3]])


def test_the_server_takes_shares_centers_and_spreads_of_the_clusters(update):
    state, step = update
    found = step(state, Message(stacked(POINTS), jnp.ones(5)))["gamma"]
    order = np.argsort(found["centers"]["intercept"][:, 0])
    np.testing.assert_allclose(np.exp(found["log_shares"])[order], [0.4, 0.6], rtol=1e-5)
    low, high = POINTS[:2], POINTS[2:]
    centers = np.stack([low.mean(axis=0), high.mean(axis=0)])
    np.testing.assert_allclose(found["centers"]["weight"][order, :, 0], centers[:, 1:], rtol=1e-5)
    scales = [np.sqrt(((part - part.mean(axis=0)) ** 2).mean()) for part in (low, high)]
    np.testing.assert_allclose(found["scale"][order], scales, rtol=1e-4)
    np.testing.assert_allclose(found["mean"]["intercept"], [3.0], rtol=1e-5)


def test_absent_clients_are_ignored_and_too_few_change_nothing(update):
    """An engine sends zeros and weight 0 for padding and for what was not finite."""
    state, step = update
    whole = step(state, Message(stacked(POINTS), jnp.ones(5)))["gamma"]
    padded = np.concatenate([POINTS, np.zeros((3, 3))])
    found = step(state, Message(stacked(padded), jnp.array([1.0] * 5 + [0] * 3)))["gamma"]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    one = step(state, Message(stacked(padded), jnp.array([1.0] + [0] * 7)))
    for a, b in zip(jax.tree.leaves(one["gamma"]), jax.tree.leaves(state["gamma"]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert int(one["round"]) == 1


def test_any_clustering_function_can_be_passed_in():
    seen = []

    def cluster(thetas, number):
        seen.append(thetas.shape)
        return np.array([0.25, 0.75]), np.stack([thetas[0], thetas[1]]), np.array([0.0, 2.0])

    algorithm = fedprior.learning.mixture_clustering(MODEL, cluster=cluster, scale_floor=0.01)
    state = jax.jit(algorithm.init)(random.root(0))
    gamma = jax.jit(algorithm.update)(state, Message(stacked(POINTS), np.ones(5)))["gamma"]
    assert seen == [(5, 3)]
    np.testing.assert_allclose(np.exp(gamma["log_shares"]), [0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(gamma["scale"], [0.01, 2.0], rtol=1e-6)


def test_a_clustering_function_of_the_wrong_shape_is_refused():
    algorithm = fedprior.learning.mixture_clustering(
        MODEL, cluster=lambda thetas, number: (1, 2, 3)
    )
    state = jax.jit(algorithm.init)(random.root(0))
    with pytest.raises(Exception, match="cluster: results must be of shapes"):
        jax.block_until_ready(
            jax.jit(algorithm.update)(state, Message(stacked(POINTS), np.ones(5)))
        )


def test_equal_thetas_are_one_cluster_in_silence():
    shares, centers, scales = k_means(np.ones((4, 2)), 2)
    np.testing.assert_allclose(shares.sum(), 1)
    np.testing.assert_allclose(centers[shares > 0], 1)
    np.testing.assert_allclose(scales, 0, atol=1e-12)


def test_it_warns_and_refuses_what_it_cannot_do(federation):
    with pytest.warns(CollapseWarning, match=r"^mixture-clustering: clusters thetas .*ERRATA 23"):
        algorithm = fedprior.learning.mixture_clustering(fedprior.models.logistic(4, 3))
    channel = fedprior.channels.CentralGaussian(clip=1.0, noise_multiplier=1.0)
    with pytest.raises(fedprior.PrivacyError, match=r"must be Identity\(\) for mixture-clustering"):
        fedprior.simulate(algorithm, federation, rounds=1, channel=channel)


def test_its_scales_run_to_the_floor(play):
    """ERRATA 27: 60 clients around -2 and 2 with spread 0.5, eight samples each.

    EM keeps such a spread: tests/learning/test_em.py learns one of 0.2.
    """
    draws = np.random.default_rng(0)
    theta = 2 * draws.choice([-1, 1], 60) + 0.5 * draws.normal(size=60)
    clients, everything = means(theta, 8), fedprior.Batches(steps_per_epoch=1)
    algorithm = fedprior.learning.mixture_clustering(
        fedprior.models.linear(1),
        steps=fedprior.Steps(local_steps=15, batches=everything),
        theta_rate=0.5,
        jitter=1.0,
    )
    state, memories = play(algorithm, clients, 10)
    np.testing.assert_allclose(state["gamma"]["scale"], 1e-3, rtol=1e-3)
    kinds = np.asarray(state["gamma"]["centers"]["intercept"])
    nearest = np.abs(np.asarray(memories["w"]["intercept"])[:, None] - kinds).min(axis=1)
    assert nearest.max() < 0.05  # everybody is one of two: nobody is personal any more
