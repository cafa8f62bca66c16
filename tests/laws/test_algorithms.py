"""The laws of core/algorithm.py, for every algorithm.

Compiling is what costs time here, so the tests of one algorithm share its programs: one padded
shape of client data, cohorts of three, the same numbers of rounds and clients.
"""

import operator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior
from fedprior.core import random, tree
from fedprior.data.federation import ClientData
from fedprior.exchange import checkpoint


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


@pytest.fixture(scope="module")
def update(algorithm):
    return jax.jit(algorithm.update)


def own_data(federation, client):
    """A client's rows at the front of a padded array: one shape for all clients."""
    padded = federation.train.padded(np.array([client]))
    own = padded._replace(x=padded.x[0], y=padded.y[0], start=padded.start[0], size=padded.size[0])
    return jax.tree.map(jnp.asarray, own)


def test_a_memoryless_message_does_not_tell_of_earlier_rounds(algorithm, local, begun, federation):
    if not algorithm.memoryless:
        pytest.skip("The algorithm makes no such claim.")
    state, memory, key = begun
    data = own_data(federation, 0)
    message, after = local(state, memory, data, key)
    again, _ = local(state, after, data, key)
    same(message, again)


def test_messages_add(algorithm, update, local, begun, federation):
    """The mean of two equal messages is one of them; the total of none changes nothing learned."""
    if algorithm.pools == "gather":
        pytest.skip("Its server looks at every message by itself.")
    state, memory, key = begun
    message, _ = local(state, memory, own_data(federation, 0), key)
    twice = jax.tree.map(lambda leaf: leaf + leaf, message)
    close(update(state, message), update(state, twice))
    nothing = jax.tree.map(jnp.zeros_like, message)
    same(update(state, nothing)["gamma"], state["gamma"])


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
    """A client reads its own rows: others' rows before and after them, and padding, may be NaN."""
    state, memory, key = begun
    client = int(np.argmin(federation.train.size))
    alone = own_data(federation, client)
    size, shift = int(alone.size), 2
    assert shift + size < len(alone.x)  # the pool has rows on both sides
    x = jnp.full_like(alone.x, jnp.nan).at[shift : shift + size].set(alone.x[:size])
    y = jnp.full_like(alone.y, 2**30).at[shift : shift + size].set(alone.y[:size])
    pooled = ClientData(x, y, jnp.asarray(shift, jnp.int32), alone.size, alone.rows)
    close(local(state, memory, pooled, key), local(state, memory, alone, key))


def test_state_is_data(begun, tmp_path):
    state, memory, _ = begun
    path = tmp_path / "state.safetensors"
    checkpoint.save_checkpoint(path, {"state": state, "memory": memory}, identity="x")
    back = checkpoint.read_checkpoint(path).tree({"state": state, "memory": memory})
    same(back, {"state": state, "memory": memory})


PARITY = {"rounds": 3, "cohort": fedprior.FixedSize(size=3), "seed": 1}


@pytest.fixture(scope="module")
def slow(algorithm, federation):
    return fedprior.debug(algorithm, federation, **PARITY)


@pytest.fixture(scope="module")
def slow_thetas(algorithm, federation, slow):
    """`personalize` of one client after the other."""
    rows, enrolled = jax.tree.map(np.asarray, slow.store.read(np.arange(5)))
    thetas = []
    for client in range(5):
        own = jax.tree.map(operator.itemgetter(client), rows) if enrolled[client] else None
        thetas.append(personalized(algorithm, federation, slow, client, own))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *thetas)


def personalized(algorithm, federation, result, client, memory):
    """A client's theta from a result; without a memory it is a newcomer."""
    root = random.root(result.seed)
    if memory is None:
        key = random.fold(root, "enroll", client)
        memory = jax.jit(algorithm.enroll)(result.state, jnp.int32(client), key)
    key = random.fold(root, "personalize", client)
    data = own_data(federation, client)
    return jax.jit(algorithm.personalize)(result.state, memory, data, key)


@pytest.fixture(scope="module")
def fast(algorithm, federation):
    return fedprior.simulate(algorithm, federation, **PARITY)


@pytest.mark.parametrize("store", ["device", "disk"])
def test_simulate_agrees_with_debug(algorithm, federation, slow, slow_thetas, fast, store):
    if store == "disk":
        fast = fedprior.simulate(algorithm, federation, store=store, **PARITY)
    close(slow.state, fast.state)
    close(slow.store.read(np.arange(5)), fast.store.read(np.arange(5)))
    np.testing.assert_allclose(slow.scores, fast.scores, atol=1e-6)
    np.testing.assert_allclose(slow.valid_scores, fast.valid_scores, atol=1e-6)
    close(slow_thetas, fast.thetas)


@dataclass(frozen=True, kw_only=True)
class Wide(fedprior.FixedSize):
    """The draws of `FixedSize`, in arrays with empty slots."""

    def capacity(self, num_clients):
        return num_clients


def test_draws_are_keyed_not_ordered(algorithm, federation, fast):
    """A round's result for a client does not depend on who else is in the cohort's arrays."""
    wide = fedprior.simulate(algorithm, federation, **PARITY | {"cohort": Wide(size=3)})
    close(fast.state, wide.state, 1e-6)
    close(fast.store.read(np.arange(5)), wide.store.read(np.arange(5)), 1e-6)
    other = fedprior.simulate(algorithm, federation, **PARITY | {"seed": 4})
    words = [np.asarray(result.store.read(np.arange(5))[0]["words"]) for result in (fast, other)]
    assert not np.array_equal(*words)


def test_a_newcomer_starts_from_the_learned_population(algorithm, federation):
    """Personalized without having taken part: finite, and what `personalize` makes of the state."""
    result = fedprior.simulate(algorithm, federation, **PARITY | {"rounds": 1})
    enrolled = np.asarray(result.store.read(np.arange(5))[1])
    assert not enrolled.all()
    newcomer = int(np.flatnonzero(~enrolled)[0])
    theta = jax.tree.map(lambda leaf: leaf[newcomer], result.thetas)
    assert bool(tree.is_finite(theta))
    close(theta, personalized(algorithm, federation, result, newcomer, None))
