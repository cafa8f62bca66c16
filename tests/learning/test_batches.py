"""Minibatches without replacement within an epoch, for clients of any size."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprior

LARGEST = 13
STEPS = 3 * LARGEST  # three epochs of the smallest batches
sizes = st.integers(1, LARGEST)
words = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


@cache
def compiled(kind, number):
    batches = fedprior.Batches(**{kind: number})

    @jax.jit
    def at(pair, size):
        rows = jnp.arange(LARGEST)
        data = fedprior.data.ClientData(x=rows, y=rows, start=jnp.int32(0), size=size, rows=rows)
        return batches.at(pair, jnp.arange(STEPS), data)

    return at


def drawn(kind, number, pair, size):
    index, mask = compiled(kind, number)(np.array(pair, np.uint32), np.int32(size))
    return np.asarray(index), np.asarray(mask)


def epochs(index, mask, steps):
    """The positions that each whole epoch reads."""
    for first in range(0, STEPS - steps + 1, steps):
        rows = slice(first, first + steps)
        yield index[rows][mask[rows]]


@settings(deadline=None, max_examples=40)
@given(sizes, words, st.sampled_from([1, 4, 13, 20]))
def test_a_fixed_size_reads_every_sample_once_an_epoch(size, pair, number):
    index, mask = drawn("size", number, pair, size)
    width = min(number, LARGEST)
    assert index.shape == mask.shape == (STEPS, width)
    assert ((index >= 0) & (index < size)).all()  # what the mask hides lies in range too
    steps = -(-size // width)
    lengths = mask.sum(axis=1)
    last = size - (steps - 1) * width
    np.testing.assert_array_equal(lengths, np.resize([width] * (steps - 1) + [last], STEPS))
    assert (np.sort(mask, axis=1)[:, ::-1] == mask).all()  # real samples come first
    for read in epochs(index, mask, steps):
        np.testing.assert_array_equal(np.sort(read), np.arange(size))


@settings(deadline=None, max_examples=40)
@given(sizes, words, st.sampled_from([1, 3, 6, 13]))
def test_steps_per_epoch_cut_the_samples_into_even_runs(size, pair, number):
    index, mask = drawn("steps_per_epoch", number, pair, size)
    assert index.shape == mask.shape == (STEPS, -(-LARGEST // number))
    assert ((index >= 0) & (index < size)).all()
    lengths = mask.sum(axis=1)
    if size < number:
        assert (lengths == 1).all()
        for read in epochs(index, mask, number):
            assert set(read) == set(range(size))
        return
    assert set(lengths) <= {size // number, -(-size // number)}
    for read in epochs(index, mask, number):
        np.testing.assert_array_equal(np.sort(read), np.arange(size))


@pytest.mark.parametrize(("kind", "steps"), [("size", 4), ("steps_per_epoch", 4)])
def test_epochs_and_clients_differ(kind, steps):
    """13 samples: two equal orders have probability 1e-10."""
    orders = [
        tuple(read)
        for pair in ((1, 2), (1, 3))
        for read in epochs(*drawn(kind, 4, pair, 13), steps)
    ]
    assert len(orders) == 2 * (STEPS // steps)
    assert len(set(orders)) == len(orders)
    again = drawn(kind, 4, (1, 2), 13)
    np.testing.assert_array_equal(again[0], drawn(kind, 4, (1, 2), 13)[0])


def test_width():
    rows = jnp.arange(13)
    clients = fedprior.data.ClientData(rows, rows, jnp.int32(0), jnp.int32(5), rows)
    assert fedprior.Batches(size=4).width(clients) == 4
    assert fedprior.Batches(size=20).width(clients) == 13
    assert fedprior.Batches(steps_per_epoch=5).width(clients) == 3
    assert fedprior.Batches(steps_per_epoch=20).width(clients) == 1


def test_width_where_no_bound_on_the_samples_is_public():
    rows = jnp.arange(13)
    clients = fedprior.data.ClientData(rows, rows, jnp.int32(0), jnp.int32(5), None)
    assert fedprior.Batches(size=20).width(clients) == 20
    with pytest.raises(fedprior.PrivacyError, match="most_samples must be given"):
        fedprior.Batches(steps_per_epoch=5).width(clients)


def test_exactly_one_of_the_two_is_given():
    wording = (
        "^Batches: size or steps_per_epoch must be the only one given of size, steps_per_epoch"
    )
    for options in ({}, {"size": 3, "steps_per_epoch": 2}):
        with pytest.raises(ValueError, match=wording):
            fedprior.Batches(**options)
    with pytest.raises(ValueError, match="whole number of at least 1, got 0"):
        fedprior.Batches(size=0)
    with pytest.raises(TypeError, match=r"whole number of at least 1, got 2\.5"):
        fedprior.Batches(steps_per_epoch=2.5)
