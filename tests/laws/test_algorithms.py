"""The laws of an algorithm's functions (core/algorithm.py), for every method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from law_cases import SIZES, close, own_data, same, small_federation
from safetensors.numpy import load, save

from fedprior.core import random, tree

ROOT = random.root(0)


def enrolled(algorithm, state, client):
    key = random.fold(ROOT, "enroll", client)
    return jax.jit(algorithm.enroll)(state, jnp.int32(client), key)


def local(algorithm, state, memory, data, client=0):
    key = random.fold(ROOT, "local", 0, client)
    return jax.jit(algorithm.local)(state, memory, data, key)


def personalize(algorithm, state, memory, data, client=0):
    key = random.fold(ROOT, "personalize", client)
    return jax.jit(algorithm.personalize)(state, memory, data, key)


@pytest.fixture(scope="module")
def state(algorithm):
    return jax.jit(algorithm.init)(random.fold(ROOT, "init"))


@pytest.fixture(scope="module")
def memory(algorithm, state):
    return enrolled(algorithm, state, 0)


@pytest.fixture(scope="module")
def answer(algorithm, state, memory, small):
    """The first client's message, and what it remembers."""
    return local(algorithm, state, memory, own_data(small, 0))


def test_messages_add(algorithm, state, answer):
    """The mean of two equal messages is one of them; the total of none changes nothing learned."""
    message, _ = answer
    update = jax.jit(algorithm.update)
    nothing = jax.tree.map(jnp.zeros_like, message)
    if algorithm.pools == "gather":  # each message by itself; a row of zeros is an absent client
        rows = jax.tree.map(lambda leaf, zero: jnp.stack([leaf, zero, zero]), message, nothing)
        moved = jax.tree.map(lambda leaf: leaf[::-1], rows)
        close(update(state, rows), update(state, moved))
        nothing = jax.tree.map(jnp.zeros_like, rows)
    else:
        twice = jax.tree.map(lambda leaf: leaf + leaf, message)
        close(learned(update(state, message)), learned(update(state, twice)))
    assert learned(state)
    same(learned(update(state, nothing)), learned(state))


def learned(state):
    """Without the clock, and without what a cautious method knows of the noise of a total."""
    others = ("round", "words", "twins", "trust")
    return {name: part for name, part in state.items() if name not in others}


def test_messages_are_finite_vectors_of_one_size(algorithm, state, answer, small):
    message, _ = answer
    other, _ = local(algorithm, state, enrolled(algorithm, state, 1), own_data(small, 1), 1)
    for each in (message, other):
        vector = tree.flatten(each)
        assert vector.shape == (tree.size(message),)
        assert bool(jnp.isfinite(vector).all())
        same(tree.unflatten(vector, each), each)


def test_weights_are_one_where_the_algorithm_says_so(algorithm, answer):
    assert (float(answer[0].weight) == 1) == algorithm.unit_weight


def test_calls_have_no_order(algorithm, state, memory, answer, small):
    """Draws are keyed: a client answers the same whoever was called before it, and again."""
    local(algorithm, state, enrolled(algorithm, state, 1), own_data(small, 1), 1)
    same(local(algorithm, state, memory, own_data(small, 0)), answer)
    thetas = []
    for client in (0, 1, 0):
        kept = enrolled(algorithm, state, client)
        thetas.append(personalize(algorithm, state, kept, own_data(small, client), client))
    same(thetas[0], thetas[2])


def test_a_client_reads_its_own_rows(algorithm, state, memory, answer, small):
    """Rows of others before and after its own, and padding, may be NaN."""
    alone = own_data(small, 0)
    size, shift = int(alone.size), 2
    assert shift + size < len(alone.x)  # there are rows on both sides
    x = jnp.full_like(alone.x, jnp.nan).at[shift : shift + size].set(alone.x[:size])
    y = jnp.full_like(alone.y, 2**30).at[shift : shift + size].set(alone.y[:size])
    pooled = alone._replace(x=x, y=y, start=jnp.int32(shift))
    same(local(algorithm, state, memory, pooled), answer)
    for kept in (memory, answer[1]):
        theta = personalize(algorithm, state, kept, alone)
        same(personalize(algorithm, state, kept, pooled), theta)
        assert bool(tree.is_finite(theta))


def test_a_memoryless_message_does_not_tell_of_earlier_rounds(algorithm, state, answer, small):
    if not algorithm.memoryless:
        pytest.skip("The algorithm makes no such claim.")
    message, after = answer
    again, _ = local(algorithm, state, after, own_data(small, 0))
    same(message, again)


def test_state_is_data(state, memory):
    """Arrays alone, which come back from a file as they were."""
    kept = {"state": state, "memory": memory}
    leaves, shape = jax.tree.flatten(kept)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    arrays = {str(place): np.asarray(leaf) for place, leaf in enumerate(leaves)}
    back = load(save(arrays))
    same(shape.unflatten([back[name] for name in arrays]), kept)
    assert all(back[name].dtype == arrays[name].dtype for name in arrays)


def test_a_message_depends_on_no_other_client(algorithm, state, memory, answer):
    """Others of any size take the places of the others, and no bit of this message changes."""
    other = small_federation((SIZES[0], 40, 2, 3))
    same(local(algorithm, state, memory, own_data(other, 0)), answer)
