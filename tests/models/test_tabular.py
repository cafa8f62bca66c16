"""Networks for tables: what they predict does not depend on the units of the target."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random
from fedprior.data.federation import Federation
from fedprior.models.network import linear, logistic
from fedprior.models.tabular import in_units


def test_outputs_and_losses_in_units():
    plain = linear(2)
    network = in_units(plain, center=50.0, scale=8.0)
    parameters = {"intercept": jnp.array(0.5), "weight": jnp.array([1.0, -1.0])}
    x, y = jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.array([54.0, 70.0])
    np.testing.assert_allclose(network.apply(parameters, x), [54.0, 62.0])
    np.testing.assert_allclose(network.loss(network.apply(parameters, x), y), [0.0, 0.5])
    np.testing.assert_allclose(network.score(network.apply(parameters, x), y), [0.0, -64.0])
    np.testing.assert_allclose(network.apply(network.init(random.root(0)), x), [50.0, 50.0])
    with pytest.raises(ValueError, match="network must be one that predicts a quantity"):
        in_units(logistic(2), center=0.0, scale=1.0)
    with pytest.raises(ValueError, match="scale must be"):
        in_units(plain, center=0.0, scale=0.0)


def test_a_quantity_in_thousands_is_learned_as_one_of_size_one():
    draws = np.random.default_rng(0)
    x, clients = draws.normal(size=(60, 2)), np.repeat(np.arange(4), 15)
    y = x @ [1.0, -0.5] + 0.1 * draws.normal(size=60)
    found = []
    for center, scale in ((0.0, 1.0), (3e4, 1e3)):
        rows = Federation.from_arrays(x, center + scale * y, clients, regression=True)
        network = in_units(linear(2), center=center, scale=scale)
        algorithm = fedprior.adamap(network, theta_rate=0.05, gamma_rate=0.05)
        result = fedprior.simulate(algorithm, rows, rounds=10)
        found.append((np.asarray(result.predict(0, rows.test.x)) - center) / scale)
    np.testing.assert_allclose(found[0], found[1], atol=1e-2)
    assert np.std(found[0]) > 0.5
