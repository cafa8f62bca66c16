"""Channels inside an engine: absent clients, weights, and totals without bias."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import OneBit
from fedprior.core.algorithm import Message
from fedprior.core.check import PrivacyError
from fedprior.engines.round import pool
from fedprior.estimation.federated.algorithms import gaussian_means
from fedprior.exchange.agreement import Keys, Rules

CHANNELS = {
    "quantize": Quantize(bits_per_coordinate=3, low=-2.0, high=2.0, weighted=True),
    "local-gaussian": LocalGaussian(clip=5.0, scale=0.5),
    "masked": DistributedGaussian(clip=5.0, noise_multiplier=0.5, size=4, missing=1),
    "one-bit": OneBit(epsilon=2.0, low=-2.0, high=2.0),
}


def pooled(channel, present, messages, finite=None):
    algorithm = gaussian_means(theta_variance=1.0, noise_variance=1.0, dimension=2)
    clients = jnp.arange(len(present))
    root = fedprior.core.random.root(0)
    finite = jnp.ones(len(present), bool) if finite is None else finite
    rules = Rules(algorithm, channel, 4.0)
    return pool(rules, messages, present, finite, clients, jnp.int32(0), Keys(root, root))[0]


@pytest.mark.parametrize("name", sorted(CHANNELS))
def test_an_absent_client_adds_exactly_zero(name):
    """Whatever its message holds: NaN, or numbers."""
    channel = CHANNELS[name]
    values = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    present = jnp.array([True, False, True, False])
    other = values.copy()
    other[1], other[3] = np.nan, 1e9
    totals = [
        pooled(channel, present, Message({"mean": jnp.asarray(each)}, jnp.ones(4)))
        for each in (values, other)
    ]
    np.testing.assert_array_equal(totals[0].value["mean"], totals[1].value["mean"])
    nobody = Message({"mean": jnp.asarray(values)}, jnp.ones(4))
    empty = pooled(channel, jnp.zeros(4, bool), nobody)
    np.testing.assert_array_equal(empty.value["mean"], 0)
    assert float(totals[0].weight) == (4.0 if channel.private else 2.0)


@pytest.mark.parametrize("name", ["local-gaussian", "masked", "one-bit"])
def test_an_update_that_is_not_finite_is_noised_like_any_other(name):
    """Or the missing noise would tell that its client's data overflowed."""
    broken = jnp.asarray([[np.nan, 1.0], [0.0, 0.0]], jnp.float32)
    present, finite = jnp.array([True, False]), jnp.array([False, True])
    found = pooled(CHANNELS[name], present, Message({"mean": broken}, jnp.ones(2)), finite)
    nothing = Message({"mean": jnp.zeros((2, 2))}, jnp.ones(2))
    usual = pooled(CHANNELS[name], present, nothing)
    np.testing.assert_array_equal(found.value["mean"], usual.value["mean"])
    assert (np.asarray(found.value["mean"]) != 0).any()


def test_private_channels_refuse_weights_that_depend_on_the_data():
    algorithm = gaussian_means(theta_variance=1.0, noise_variance=1.0, weight="precision")
    with pytest.raises(PrivacyError, match="under a private channel"):
        fedprior.simulate(algorithm, numbers(4), rounds=1, channel=CHANNELS["local-gaussian"])


def numbers(num_clients, *, size=5, seed=0, scale=0.1):
    draws = np.random.default_rng(seed)
    theta = 0.5 + scale * draws.normal(size=num_clients)
    own = np.repeat(np.arange(num_clients), size)
    y = theta[own] + 0.2 * draws.normal(size=len(own))
    return fedprior.Federation.from_arrays(
        np.zeros((len(y), 1)), y, own, regression=True, valid_share=0, test_share=0
    )
