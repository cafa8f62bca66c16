"""C x + z on the integers, with discrete Gaussian noise z; C is inverted afterwards.

x are exact sums (`secure.add_exactly`), in units of their grid, and the coefficients of C are
multiples of 2^-GRID_BITS, so C x is a vector of integers in units of grid / 2^GRID_BITS, without
any rounding. OpenDP adds z, drawn from the operating system's randomness. What is released is a
function of C x + z, so its floating-point arithmetic reveals nothing more.
"""

import math
from collections.abc import Sequence

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.privacy import secure
from fedprior.privacy.strategy import GRID_BITS

_MOST = 64.0  # sum of the coefficients, so that 2^17 clients of 2^25 units stay below 2^63


def check_coefficients(owner: str, coefficients: Sequence[float]) -> None:
    """Check that C x is a vector of integers of 64 bits."""
    exact = all(float(c * 2**GRID_BITS).is_integer() for c in coefficients)
    rule = f"multiples of 2^-{GRID_BITS} with a sum of at most {_MOST:g} for secure noise"
    fits = exact and math.fsum(coefficients) <= _MOST
    check.require(fits, owner, "coefficients", rule, tuple(coefficients))


def begin(dimension: int, *, bands: int) -> dict[str, np.ndarray]:
    """Return the last clear sums, which are secret, and the last releases: none yet."""
    return {
        "sums": np.zeros((bands - 1, 2, dimension), np.int32),
        "released": np.zeros((bands - 1, dimension), np.float32),
    }


def release(
    total: Array,
    memory: dict[str, Array],
    *,
    coefficients: tuple[float, ...],
    clip: float,
    noise_multiplier: float,
) -> tuple[Array, dict[str, Array]]:
    """Return x_t + (C^-1 z)_t, as a function of the first t rounds of C x + z, and the memory.

    A client that moves C x by a vector of norm s * clip, over all rounds together, is hidden as by
    N(0, (clip * noise_multiplier)^2 I) on a vector that moves by as much, including the rounding
    of the clip in float32. Every call draws anew, inside or outside a compiled loop.
    """

    def noised(total: np.ndarray, sums: np.ndarray, released: np.ndarray) -> np.ndarray:
        weights = [round(c * 2**GRID_BITS) for c in coefficients]
        parts = [np.asarray(total), *np.asarray(sums)]
        mixed = sum(w * secure.units(part) for w, part in zip(weights, parts, strict=True))
        unit = secure.grid(clip) / 2**GRID_BITS
        reach = secure.reach(clip, mixed.size) / unit  # of a move by one whole message
        mechanism = secure.discrete_gaussian(mixed.size, reach, float(noise_multiplier))
        noisy = unit * np.asarray(mechanism(mixed.tolist()), np.float64)
        before = np.tensordot(np.array(coefficients[1:]), np.asarray(released, np.float64), axes=1)
        return ((noisy - before) / coefficients[0]).astype(np.float32)

    given = (total, memory["sums"], memory["released"])
    if isinstance(total, np.ndarray):
        now = noised(*given)
    else:
        import jax
        from jax.experimental import io_callback

        like = jax.ShapeDtypeStruct(total.shape[1:], np.float32)  # type: ignore[no-untyped-call]
        # With ordered=True, the compiler can neither drop nor repeat a call.
        now = io_callback(noised, like, *given, ordered=True)
    kept, xp = len(coefficients) - 1, total.__array_namespace__()
    return now, {
        "sums": xp.concatenate([total[None], memory["sums"]])[:kept],
        "released": xp.concatenate([now[None], memory["released"]])[:kept],
    }
