"""Gradient steps against optax's own optimizers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedprior.core import tree
from fedprior.learning.descent import Descent, masked_mean

START = {"a": jnp.array([1.0, -2.0, 3.0]), "b": jnp.array(0.5)}


def gradient(parameters, time):
    """Of no function in particular; large at first."""
    return tree.combine(lambda p: 3 * jnp.sin(5 * p + time) + p, parameters)


def ours(descent, steps=7, first=0):
    parameters, state = START, descent.init(START)
    for time in range(first, first + steps):
        parameters, state = descent.step(gradient(parameters, time), state, parameters, time)
    return tree.flatten(parameters)


def theirs(optimizer, steps=7, first=0):
    parameters, state = START, optimizer.init(START)
    for time in range(first, first + steps):
        updates, state = optimizer.update(gradient(parameters, time), state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    return tree.flatten(parameters)


@pytest.mark.parametrize(
    ("descent", "optimizer"),
    [
        (Descent(rate=0.1), optax.sgd(0.1)),
        (Descent(rate=0.0), optax.sgd(0.0)),
        (Descent(rate=0.1, rule=optax.trace(0.9)), optax.sgd(0.1, momentum=0.9)),
        (Descent(rate=0.1, rule=optax.scale_by_adam()), optax.adam(0.1)),
        (
            Descent(rate=0.1, weight_decay=0.3),
            optax.chain(optax.add_decayed_weights(0.3), optax.sgd(0.1)),
        ),
        (Descent(rate=0.1, clip=1.5), optax.chain(optax.clip_by_global_norm(1.5), optax.sgd(0.1))),
        (
            Descent(rate=0.1, clip=1.5, weight_decay=0.3, rule=optax.scale_by_adam()),
            optax.chain(
                optax.clip_by_global_norm(1.5), optax.add_decayed_weights(0.3), optax.adam(0.1)
            ),
        ),
        (
            Descent(rate=0.1, decay=0.5, steps_per_epoch=3),
            optax.sgd(optax.exponential_decay(0.1, 3, 0.5, staircase=True)),
        ),
    ],
    ids=["sgd", "still", "momentum", "adam", "weight-decay", "clip", "all", "decay"],
)
def test_steps_are_those_of_optax(descent, optimizer):
    np.testing.assert_allclose(ours(descent), theirs(optimizer), rtol=1e-5, atol=1e-6)


def test_rates_decay_by_time_not_by_steps_taken():
    """A client that comes late takes the rate of that moment."""
    late = Descent(rate=0.1, decay=0.5, steps_per_epoch=3)
    np.testing.assert_allclose(
        ours(late, steps=3, first=6), theirs(optax.sgd(0.025), steps=3, first=6), rtol=1e-6
    )


def test_a_small_gradient_is_not_clipped_and_zero_is_defined():
    descent = Descent(rate=1.0, clip=10.0)
    moved, _ = descent.step(START, descent.init(START), START, 0)
    np.testing.assert_allclose(tree.flatten(moved), 0)
    nothing = tree.combine(jnp.zeros_like, START)
    moved, _ = descent.step(nothing, descent.init(START), START, 0)
    np.testing.assert_array_equal(tree.flatten(moved), tree.flatten(START))


def test_a_rate_may_be_an_axis_of_a_sweep():
    def swept(rate):
        descent = Descent(rate=rate, weight_decay=rate)
        return tree.flatten(descent.step(START, descent.init(START), START, 0)[0])

    both = jax.vmap(swept)(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(both, [swept(0.1), swept(0.2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        ({"rate": -0.1}, "rate must be a number of at least 0, got -0.1"),
        ({"rate": 0.1, "weight_decay": -1}, "weight_decay must be a number of at least 0"),
        ({"rate": 0.1, "decay": 1.1}, r"decay must be in \(0, 1\], got 1.1"),
        ({"rate": 0.1, "clip": 0.0}, "clip must be a positive number, got 0.0"),
        ({"rate": 0.1, "steps_per_epoch": 0}, "steps_per_epoch must be a whole number"),
    ],
)
def test_bad_numbers(options, wording):
    with pytest.raises(ValueError, match=f"^Descent: {wording}"):
        Descent(**options)


def test_masked_mean():
    values = jnp.array([1.0, 2.0, 60.0])
    assert float(masked_mean(values, jnp.array([1, 1, 0]))) == 1.5
    assert float(masked_mean(values, jnp.zeros(3))) == 0
