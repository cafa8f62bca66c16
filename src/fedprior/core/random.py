"""Draws keyed by (seed, round, client, purpose), never by call order.

Host draws (cohorts, partitions) come from NumPy's Philox, device draws from JAX keys, minibatch
orders from a keyed permutation that any engine evaluates at single positions. What a channel draws
comes from a JAX key, from a NumPy generator, or from the operating system (`secure`).
"""

import math
import os
from collections.abc import Callable
from typing import Any, Literal

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
)


def stream(seed: int, purpose: str, *path: int) -> np.random.Generator:
    """A NumPy generator of its own for (seed, purpose, path)."""
    # The length stands in it because NumPy pads entropy with zeros: (1,) and (1, 0) would be one.
    entropy = (seed, _PURPOSES.index(purpose), len(path), *path)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def root(seed: int) -> Key:
    """The JAX key from which all device draws of a run are folded."""
    import jax

    return jax.random.key(seed)


def fold(key: Key, purpose: str, *path: Any) -> Key:
    """The key of (key, purpose, path); `path` entries may be traced."""
    import jax

    key = jax.random.fold_in(key, _PURPOSES.index(purpose))
    for entry in path:
        key = jax.random.fold_in(key, entry)
    return key


def words(key: Key) -> Array:
    """A key as plain uint32 words, the form in which a client's memory keeps it."""
    import jax

    return jax.random.key_data(key)


class Secure:
    """Uniform draws of 53 bits each from the operating system: no seed, never the same again."""

    def random(self, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Independent multiples of 2**-53, uniform in [0, 1)."""
        words = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64) >> np.uint64(11)
        return (words * 2.0**-53).reshape(shape)


def secure() -> Secure:
    """A stream for what leaves a real client; it takes no seed on purpose."""
    return Secure()


def noise_of(key: Key) -> Literal["simulated", "secure"]:
    """How draws from `key` are to be labelled: only `secure` ones are valid for release."""
    return "secure" if isinstance(key, Secure) else "simulated"


def uniform(key: Key, shape: tuple[int, ...]) -> Array:
    """Draws uniform in [0, 1): multiples of 2**-53 from a NumPy generator or `secure()`,
    of 2**-23 from a JAX key.
    """
    if isinstance(key, np.random.Generator | Secure):
        return key.random(shape)
    import jax

    return jax.random.uniform(key, shape)


def normal(key: Key, shape: tuple[int, ...]) -> Array:
    """Standard normal draws, from a JAX key or a NumPy generator."""
    if isinstance(key, np.random.Generator):
        return key.standard_normal(shape)
    if isinstance(key, Secure):
        raise check.PrivacyError(
            "normal: key must be a keyed stream, got a secure one. The low bits of floating-point "
            "normal noise give the message away; such noise is for simulation."
        )
    import jax

    return jax.random.normal(key, shape)


# One swap-or-not round leaves a given element unswapped with probability 1/2: after 24 rounds
# 2**-24 of the elements would be untouched, far below what any training could notice.
_SWAP_ROUNDS = 24


@np.errstate(over="ignore")  # unsigned words wrap on purpose
def permuted(seed_words: Array, index: Array, size: Array) -> Array:
    """pi(index), pi a keyed permutation of 0..size-1 (index < size < 2**31), by swap-or-not.

    Costs O(1) an entry whatever the size, so a minibatch without replacement needs neither a sort
    nor a stored order. `seed_words` is uint32, shape (..., 2), and broadcasts against `index`.
    Not a cryptographic shuffle: cohorts that a privacy claim rests on are never drawn with it.

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
    """All rounds of `swap`: on a CPU as a loop, which compiles several times faster; elsewhere
    unrolled into one kernel, since each turn of a loop would launch its own.
    """
    if xp is np:
        for number in range(1, _SWAP_ROUNDS + 1):
            position = swap(np.uint32(number), position)
        return position
    import jax

    unroll = jax.default_backend() != "cpu"
    return jax.lax.fori_loop(1, _SWAP_ROUNDS + 1, swap, position, unroll=unroll)


def _mix(first: Array, second: Array, xp: Any) -> Array:
    """Two words to one: multiply-xorshift rounds whose constants are odd and dense in bits."""
    word = xp.asarray(first) ^ (xp.asarray(second) * xp.uint32(0x85EBCA6B))
    for multiplier in (0x7FEB352D, 0x846CA68B):
        word = (word ^ (word >> xp.uint32(16))) * xp.uint32(multiplier)
        word = word ^ (word >> xp.uint32(15))
    return word ^ (word >> xp.uint32(16))


@np.errstate(over="ignore")
def vary(seed_words: Array, number: Array) -> Array:
    """Other words for the `number`-th use of the same words (the epochs of one client)."""
    xp = seed_words.__array_namespace__()
    number = xp.asarray(number).astype(xp.uint32)
    low = _mix(seed_words[..., 0] + number, seed_words[..., 1], xp)
    high = _mix(seed_words[..., 1], number * xp.uint32(0x9E3779B1) + xp.uint32(1), xp)
    return xp.stack([low, high], axis=-1)
