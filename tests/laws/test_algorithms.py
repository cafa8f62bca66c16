"""The laws of core/algorithm.py, for every algorithm."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random, tree
from fedprior.data.federation import ClientData
from fedprior.engines import checkpoint


def close(first, second, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tolerance, rtol=tolerance)


def same(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture(scope="module")
def begun(algorithm):
    root = random.root(0)
    state = jax.jit(algorithm.init)(random.fold(root, "init"))
    memory = jax.jit(algorithm.enroll)(state, jnp.int32(0), random.fold(root, "enroll", 0))
    return state, memory, random.fold(root, "local", 0, 0)


@pytest.fixture(scope="module")
def local(algorithm):
    return jax.jit(algorithm.local)


def own_data(federation, client):
    """A client's rows at the front of a padded array: one shape for all clients."""
    padded = federation.train.padded(np.array([client]))
    own = padded._replace(x=padded.x[0], y=padded.y[0], start=padded.start[0], size=padded.size[0])
    return jax.tree.map(jnp.asarray, own)


def test_messages_add(algorithm, local, begun, federation):
    """The mean of two equal messages is one of them; the total of none changes nothing learned."""
    state, memory, key = begun
    message, _ = local(state, memory, own_data(federation, 0), key)
    twice = jax.tree.map(lambda leaf: leaf + leaf, message)
    close(algorithm.update(state, message), algorithm.update(state, twice))
    nothing = jax.tree.map(jnp.zeros_like, message)
    same(algorithm.update(state, nothing)["gamma"], state["gamma"])


def test_messages_are_finite_vectors_of_one_size(local, begun, federation):
    state, memory, key = begun
    sizes = set()
    for client in range(2):
        message, _ = local(state, memory, own_data(federation, client), key)
        vector = tree.flatten(message)
        assert bool(jnp.isfinite(vector).all())
        same(tree.unflatten(vector, message), message)
        sizes.add(vector.shape)
    assert len(sizes) == 1


def test_weights_are_one_where_the_algorithm_says_so(algorithm, local, begun, federation):
    state, memory, key = begun
    message, _ = local(state, memory, own_data(federation, 0), key)
    assert (float(message.weight) == 1) == algorithm.unit_weight


def test_functions_are_pure(algorithm, local, begun, federation):
    state, memory, key = begun
    data = own_data(federation, 1)
    same(local(state, memory, data, key), local(state, memory, data, key))
    personalize = jax.jit(algorithm.personalize)
    same(personalize(state, memory, data, key), personalize(state, memory, data, key))


def test_padding_and_the_pool_change_nothing(local, begun, federation):
    """A client reads its own rows: others' rows and padding may hold NaN."""
    state, memory, key = begun
    client = 2
    first, size = int(federation.train.start[client]), int(federation.train.size[client])
    mine = np.zeros(len(federation.train.x), bool)
    mine[first : first + size] = True
    x = np.where(mine[:, None], federation.train.x, np.nan)
    pooled = ClientData(
        *map(jnp.asarray, (x, federation.train.y, first, size, federation.train.pooled().rows))
    )
    alone = own_data(federation, client)
    close(local(state, memory, pooled, key), local(state, memory, alone, key))


def test_state_is_data(begun, tmp_path):
    state, memory, _ = begun
    path = tmp_path / "state.safetensors"
    checkpoint.save_checkpoint(path, {"state": state, "memory": memory}, identity="x")
    back = checkpoint.load_arrays(path, {"state": state, "memory": memory})
    same(back, {"state": state, "memory": memory})


def test_draws_are_keyed_not_ordered(algorithm, federation):
    """A round's result for a client does not depend on who else is in the cohort's arrays."""
    size = fedprior.Poisson(rate=0.5, cap=5)
    wide = replace(size, cap=None)
    first = fedprior.simulate(algorithm, federation, rounds=2, cohort=size, seed=3)
    second = fedprior.simulate(algorithm, federation, rounds=2, cohort=wide, seed=3)
    close(first.state, second.state, 1e-6)
    other = fedprior.simulate(algorithm, federation, rounds=2, cohort=size, seed=4)
    words = [np.asarray(result.store.memories["words"]) for result in (first, other)]
    assert not np.array_equal(*words)


PARITY = {"rounds": 3, "cohort": fedprior.FixedSize(size=3), "seed": 1}


@pytest.fixture(scope="module")
def slow(algorithm, federation):
    return fedprior.debug(algorithm, federation, **PARITY)


@pytest.mark.parametrize("store", ["device", "disk"])
def test_simulate_agrees_with_debug(algorithm, federation, slow, store):
    fast = fedprior.simulate(algorithm, federation, store=store, **PARITY)
    close(slow.state, fast.state)
    close(slow.store.read(np.arange(5)), fast.store.read(np.arange(5)))
    np.testing.assert_allclose(slow.scores, fast.scores, atol=1e-6)
    np.testing.assert_allclose(slow.valid_scores, fast.valid_scores, atol=1e-6)
    close(slow.thetas, fast.thetas)


def test_a_newcomer_starts_from_the_learned_population(algorithm, federation):
    """Personalised without having taken part: not the initial model, and no error."""
    result = fedprior.simulate(
        algorithm, federation, rounds=4, cohort=fedprior.FixedSize(size=1), seed=0
    )
    enrolled = np.asarray(result.store.enrolled)
    assert not enrolled.all()
    newcomer = int(np.flatnonzero(~enrolled)[0])
    theta = result.theta(newcomer)
    assert bool(tree.is_finite(theta))
