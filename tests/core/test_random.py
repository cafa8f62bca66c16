"""Keyed draws: streams, folded keys, and the permutation that orders minibatches."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from fedprior.core import random

FALSE_ALARM = 1e-6  # of each statistical test
words = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


@settings(deadline=None)
@given(words, st.integers(1, 300))
def test_permuted_is_a_permutation(pair, size):
    order = random.permuted(np.array(pair, np.uint32), np.arange(size), size)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [1, 2, 3, 60, 61, 1024, 99_991])
def test_permuted_is_the_same_in_numpy_and_jax(size):
    pair = np.array([123456789, 4_000_000_000], np.uint32)
    order = random.permuted(pair, np.arange(size), size)
    np.testing.assert_array_equal(np.sort(order), np.arange(size))
    number = jnp.arange(99_991) % size  # one shape, so that one compiled loop serves every size
    there = _permuted(jnp.asarray(pair), number, jnp.asarray(size))
    np.testing.assert_array_equal(order, np.asarray(there)[:size])


_permuted = jax.jit(random.permuted)


def test_permuted_near_the_largest_size():
    """No word overflows on the way: positions stay below the size and stay distinct."""
    size = 2**31 - 1
    index = np.concatenate([np.arange(1000), size - 1 - np.arange(1000)])
    order = random.permuted(np.array([7, 9], np.uint32), index, size)
    assert order.min() >= 0
    assert order.max() < size
    assert len(np.unique(order)) == len(index)


def test_permuted_broadcasts_words_against_positions():
    many = np.random.default_rng(0).integers(0, 2**32, (4, 1, 2), np.uint32)
    orders = random.permuted(many, np.arange(7), 7)
    assert orders.shape == (4, 7)
    for pair, order in zip(many[:, 0], orders, strict=True):
        np.testing.assert_array_equal(order, random.permuted(pair, np.arange(7), 7))


def _many_orders(size, how, number):
    if how == "drawn":
        pairs = np.random.default_rng(size).integers(0, 2**32, (number, 2), np.uint32)
    else:  # the epochs of one client
        pairs = random.vary(np.array([1, 2], np.uint32), np.arange(number))
    return random.permuted(pairs[:, None], np.arange(size), size)


def _rejected(counts):
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum()) > chi2.isf(
        FALSE_ALARM, counts.size - 1
    )


def _permutation_counts(size, how):
    known = np.array(list(permutations(range(size))))
    base = size ** np.arange(size)
    place = np.full(size**size, -1)
    place[known @ base] = np.arange(len(known))
    orders = _many_orders(size, how, max(200 * len(known), 24_000))
    return np.bincount(place[orders @ base], minlength=len(known))


@pytest.mark.parametrize("how", ["drawn", "epochs"])
@pytest.mark.parametrize("size", [2, 3, 5, 6])
def test_permuted_is_uniform_over_all_permutations(size, how):
    """Detects (with power 1/2) a relative standard deviation between the permutations'

    probabilities of 3.7% at size 6 (720 of them, 144,000 draws), 6.1% at size 5 (24,000 draws).
    """
    assert not _rejected(_permutation_counts(size, how))


def test_the_uniformity_test_sees_too_few_rounds(monkeypatch):
    monkeypatch.setattr(random, "_SWAP_ROUNDS", 6)
    assert _rejected(_permutation_counts(6, "drawn"))


@pytest.mark.parametrize("how", ["drawn", "epochs"])
def test_permuted_is_uniform_over_pairs(how):
    """The images of two positions of 20: 100 draws a pair, 380 pairs; detects a relative

    standard deviation of 6.2% between the pairs' probabilities.
    """
    size = 20
    orders = _many_orders(size, how, 38_000)
    for first, second in ((0, 1), (3, 17), (18, 19)):
        counts = np.bincount(orders[:, first] * size + orders[:, second], minlength=size**2)
        off = ~np.eye(size, dtype=bool).ravel()
        assert counts[~off].sum() == 0
        assert not _rejected(counts[off])


def test_permuted_differs_by_words_and_epochs():
    pairs = np.array([[1, 2], [2, 1], [1, 3], [2, 2], [0, 0]], np.uint32)
    epochs = random.vary(np.array([5, 6], np.uint32), np.arange(20))
    for many in (pairs, epochs):
        orders = random.permuted(many[:, None], np.arange(50), 50)
        assert len(np.unique(orders, axis=0)) == len(many)


def test_vary_is_the_same_in_numpy_and_jax():
    pair = np.array([4_000_000_000, 17], np.uint32)
    there = jax.jit(random.vary)(jnp.asarray(pair), jnp.arange(9))
    np.testing.assert_array_equal(random.vary(pair, np.arange(9)), np.asarray(there))


def test_stream_depends_on_seed_purpose_and_path():
    paths = [(), (0,), (0, 0), (1,), (1, 0), (0, 1), (1, 1)]
    draws = {
        (seed, purpose, path): random.stream(seed, purpose, *path).integers(2**63)
        for seed in (0, 1)
        for purpose in ("cohort", "split")
        for path in paths
    }
    assert len(set(draws.values())) == len(draws)
    assert random.stream(1, "split", 0).integers(2**63) == draws[1, "split", (0,)]


def test_stream_of_another_length_is_independent():
    """(1,) and (1, 0): NumPy alone would give one and the same stream."""
    long, short = (random.stream(3, "cohort", *path).normal(size=20_000) for path in ((1, 0), (1,)))
    # |r| < 4.89 / sqrt(20,000) but for FALSE_ALARM: detects a correlation of 0.035.
    assert abs(np.corrcoef(long, short)[0, 1]) < 4.892 / np.sqrt(20_000)


def test_unknown_purposes_are_refused():
    with pytest.raises(ValueError):
        random.stream(0, "whim")
    with pytest.raises(ValueError):
        random.fold(random.root(0), "whim")


def test_fold_depends_on_key_purpose_and_path_and_may_be_traced():
    root = random.root(0)
    many = [
        random.fold(key, purpose, *path)
        for key in (root, random.root(1))
        for purpose in ("local", "encode")
        for path in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))
    ]
    assert len({tuple(random.words(key).tolist()) for key in many}) == len(many)
    eager = random.words(random.fold(root, "local", 3, 4))
    traced = jax.jit(lambda a, b: random.words(random.fold(root, "local", a, b)))(3, 4)
    np.testing.assert_array_equal(eager, traced)
    assert eager.dtype == jnp.uint32
