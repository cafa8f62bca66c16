"""Draws keyed by (seed, round, client, purpose), never by call order.

Host draws (cohorts, partitions) come from NumPy's Philox, device draws from JAX keys, and minibatch
orders from a keyed permutation that any engine can evaluate at single positions. Channels draw from
a JAX key, a NumPy generator, or the operating system (`secure`).
"""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array, Key

_PURPOSES = (
    "init",
    "enroll",
    "local",
    "encode",
    "decode",
    "personalize",
    "cohort",
    "batches",
    "split",
    "partition",
    "style",
    "channel",
    "score",
    "table",
)


def stream(seed: int, purpose: str, *path: int) -> np.random.Generator:
    """Return an independent NumPy generator for each (seed, purpose, path)."""
    # The length is included because NumPy pads entropy with zeros: (1,) and (1, 0) would coincide.
    entropy = (seed, _PURPOSES.index(purpose), len(path), *path)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def root(seed: int) -> Key:
    """Return the JAX key from which all device draws of a run are derived."""
    import jax

    return jax.random.key(seed)


def fold(key: Key, purpose: str, *path: Any) -> Key:
    """Return the key of (key, purpose, path); entries of `path` may be traced."""
    import jax

    key = jax.random.fold_in(key, _PURPOSES.index(purpose))
    for entry in path:
        key = jax.random.fold_in(key, entry)
    return key


def words(key: Key) -> Array:
    """Return a key as plain uint32 words, the form stored in a client's memory."""
    import jax

    return jax.random.key_data(key)


class Secure:
    """Uniform 53-bit draws from the operating system, without a seed and not reproducible."""

    def random(self, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Return independent multiples of 2**-53, uniform in [0, 1)."""
        words = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64) >> np.uint64(11)
        return (words * 2.0**-53).reshape(shape)


def secure() -> Secure:
    """Return a stream for data that leaves a real client; deliberately without a seed."""
    return Secure()


def uniform(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw uniformly from [0, 1).

    Values are multiples of 2**-53 for a NumPy generator or `secure()`, of 2**-23 for a JAX key.
    """
    if isinstance(key, np.random.Generator | Secure):
        return key.random(shape)
    import jax

    return jax.random.uniform(key, shape)


def uniform_and_integer(key: Key, shape: tuple[int, ...], number: int) -> tuple[Array, Array]:
    """Draw from [0, 1) as `uniform` does, and independently an integer from 0 .. number - 1.

    Each integer has a probability of floor or ceil(2**b / number) / 2**b, with b = 53 on the host
    and b = 32 for a JAX key, where it is found in whole numbers: a product in float32 would be
    rounded, for large numbers by more than the probabilities of two integers may differ.
    """
    if isinstance(key, np.random.Generator | Secure):
        draws = key.random((*shape, 2))
        integer = np.minimum(np.floor(draws[..., 1] * number), number - 1).astype(np.int64)
        return draws[..., 0], integer
    import jax
    import jax.numpy as jnp

    check.require(number < 2**31, "random", "number", "below 2**31", number)
    words = jax.random.bits(key, (*shape, 2), jnp.uint32)
    uniform = (words[..., 0] >> 9).astype(jnp.float32) * np.float32(2.0**-23)
    return uniform, high_word(words[..., 1], number).astype(jnp.int32)


@np.errstate(over="ignore")
def high_word(words: Array, number: int) -> Array:
    """floor(words * number / 2**32) for uint32 words and a number below 2**32, in 32 bits."""
    xp = words.__array_namespace__()
    low, half = xp.uint32(0xFFFF), xp.uint32(16)
    top, bottom = words >> half, words & low
    number_top, number_bottom = xp.uint32(number >> 16), xp.uint32(number & 0xFFFF)
    first, second = top * number_bottom, bottom * number_top
    carried = (first & low) + (second & low) + (bottom * number_bottom >> half)
    return top * number_top + (first >> half) + (second >> half) + (carried >> half)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Draw standard normal values from a JAX key or a NumPy generator."""
    if isinstance(key, np.random.Generator):
        return key.standard_normal(shape)
    if isinstance(key, Secure):
        raise check.PrivacyError(
            "normal: a secure stream cannot draw floating-point normal noise, whose low bits "
            "reveal the message. Use a keyed stream, for simulation only."
        )
    import jax

    return jax.random.normal(key, shape)


# One swap-or-not round leaves a given element in place with probability 1/2: after 24 rounds,
# 2**-24 of the elements have never moved, which is far too few to affect training.
_SWAP_ROUNDS = 24


@np.errstate(over="ignore")  # unsigned words are meant to wrap around
def permuted(seed_words: Array, index: Array, size: Array) -> Array:
    """Return pi(index) for a keyed permutation pi of 0..size-1 (index < size < 2**31).

    The swap-or-not shuffle costs O(1) per entry for any size, so a minibatch without replacement
    needs neither a sort nor a stored order. `seed_words` is uint32 with shape (..., 2) and
    broadcasts against `index`. This is not a cryptographic shuffle: cohorts on which a privacy
    guarantee depends are never drawn with it.

    >>> import numpy as np
    >>> order = permuted(np.array([1, 2], np.uint32), np.arange(5), 5)
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """
    xp = seed_words.__array_namespace__()
    size = xp.asarray(size).astype(xp.uint32)
    low, high = seed_words[..., 0], seed_words[..., 1]

    def swap(number: Array, position: Array) -> Array:
        number = xp.asarray(number).astype(xp.uint32)
        round_key = _mix(low + number * xp.uint32(0x9E3779B9), high, xp)
        partner = round_key % size + size - position
        partner = xp.where(partner >= size, partner - size, partner)
        larger = xp.maximum(position, partner)
        coin = _mix(larger ^ round_key, high + number, xp) & xp.uint32(1)
        return xp.where(coin == 1, partner, position)

    position = xp.asarray(index).astype(xp.uint32) + xp.zeros_like(low * size)
    return _repeat(swap, position, xp).astype(xp.int32)


def _repeat(swap: Callable[[Array, Array], Array], position: Array, xp: Any) -> Array:
    """Apply all rounds of `swap`.

    On a CPU this is a loop, which compiles several times faster; elsewhere it is unrolled into one
    kernel, because every iteration of a loop would launch a separate one.
    """
    if xp is np:
        for number in range(1, _SWAP_ROUNDS + 1):
            position = swap(np.uint32(number), position)
        return position
    import jax

    unroll = jax.default_backend() != "cpu"
    return jax.lax.fori_loop(1, _SWAP_ROUNDS + 1, swap, position, unroll=unroll)


def _mix(first: Array, second: Array, xp: Any) -> Array:
    """Hash two words to one by multiply-xorshift rounds, with odd constants of many set bits."""
    word = xp.asarray(first) ^ (xp.asarray(second) * xp.uint32(0x85EBCA6B))
    for multiplier in (0x7FEB352D, 0x846CA68B):
        word = (word ^ (word >> xp.uint32(16))) * xp.uint32(multiplier)
        word = word ^ (word >> xp.uint32(15))
    return word ^ (word >> xp.uint32(16))


@np.errstate(over="ignore")
def vary(seed_words: Array, number: Array) -> Array:
    """Return the seed words for the `number`-th use of `seed_words` (the epochs of one client)."""
    xp = seed_words.__array_namespace__()
    number = xp.asarray(number).astype(xp.uint32)
    low = _mix(seed_words[..., 0] + number, seed_words[..., 1], xp)
    high = _mix(seed_words[..., 1], number * xp.uint32(0x9E3779B1) + xp.uint32(1), xp)
    return xp.stack([low, high], axis=-1)
