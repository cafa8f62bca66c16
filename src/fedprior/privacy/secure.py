"""Noise for what really leaves: OpenDP's samplers, seeded by the operating system.

The floating-point rounding of a plain normal draw tells of the number it was added to; OpenDP adds
noise on a grid, exactly, and rounds afterwards. A floating-point sum depends on the order of its
terms, and so moves further than the one term that is added; `add_exactly` does not.
"""

import math
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.core.check import PrivacyError


def require_opendp() -> None:
    """OpenDP is installed, or the run does not begin."""
    if find_spec("opendp") is None:
        raise PrivacyError(
            "noise: secure noise must be drawn by OpenDP, which is not installed. "
            "pip install 'fedprior[secure]', or say noise = 'simulated' for a simulation."
        )


# A message's coordinates are cut to multiples of the clip / 2^22 or a little more: whole numbers
# below 2^23, up to which float32 is exact. A sum of them is kept as two, of multiples of 2^12 and
# of the rest, which 32 bits hold for so many clients.
_FINENESS = 22
_LOW_BITS = 12
_LONGEST = 2**25  # in multiples; what stands between clip and noise reaches 4 clips and more
_MOST_CLIENTS = 2**17


def check_cohort_size(size: int) -> None:
    """So many clients can be added up."""
    rule = f"at most {_MOST_CLIENTS:,} clients, or secure sums would overflow"
    remedy = "Lower the sampling rate or the cap of the cohort."
    check.require(size <= _MOST_CLIENTS, "secure noise", "a cohort", rule, size, remedy)


def add_exactly(rows: Array, *, clip: float) -> Array:
    """The sum of (clients, d) messages as whole numbers (2, d), high and low, without any rounding.

    Each row is cut toward zero to a grid first, by itself, and so gets no longer: a client that is
    there or not moves the sum by its own cut message, exactly.
    """
    check_cohort_size(len(rows))
    xp = rows.__array_namespace__()
    units = xp.clip(xp.trunc(rows * (1 / _grid(clip))), -_LONGEST, _LONGEST).astype(xp.int32)
    parts = (units >> _LOW_BITS, units & (2**_LOW_BITS - 1))
    return xp.stack([xp.sum(part, axis=0, dtype=xp.int32) for part in parts])


def value(total: np.ndarray, *, clip: float) -> np.ndarray:
    """What `add_exactly` found, in double precision, which holds it exactly."""
    high, low = total.astype(np.int64)
    return (high * 2**_LOW_BITS + low) * _grid(clip)


def _grid(clip: float) -> float:
    """A power of 2, so that multiplying by it or its inverse is exact in float32."""
    return 2.0 ** max(math.floor(math.log2(clip)) - _FINENESS, -120)


def reach(clip: float, size: int) -> float:
    """The largest norm of `size` coordinates that were clipped in float32, at most.

    Their sum of squares is wrong by a relative `size` * 2^-24 at most, in whatever order it is
    taken; root, quotient and product add a few 2^-24, squares below 2^-126 are lost.
    """
    return clip * (1 + (size + 16) * 2.0**-24) + math.sqrt(size) * 2.0**-63


def add_gaussian(total: Array, *, clip: float, noise_multiplier: float) -> Array:
    """`total` + noise, a new draw at every call, inside or outside a compiled loop.

    `total` is from `add_exactly`, or a vector of floats whose sum was exact. Where a client's
    message was clipped to `clip` in float32, the noise costs no more than
    N(0, (clip * noise_multiplier)^2 I) would, that clip's rounding and OpenDP's to a grid included.
    """

    def noised(values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        exact = value(values, clip=clip) if values.dtype == np.int32 else values
        dtype = np.float32 if values.dtype == np.int32 else values.dtype
        return _noised(exact, float(clip), float(noise_multiplier)).astype(dtype)

    if isinstance(total, np.ndarray):
        return noised(total)
    import jax
    from jax.experimental import io_callback

    whole = total.dtype == np.int32
    shape, dtype = (total.shape[1:], np.float32) if whole else (total.shape, total.dtype)
    like = jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
    # Ordered: a call is neither left out nor repeated, whatever the compiler thinks of it.
    return io_callback(noised, like, total, ordered=True)


def _noised(total: np.ndarray, clip: float, noise_multiplier: float) -> np.ndarray:
    mechanism = _gaussian(total.size, clip, noise_multiplier)
    # A non-finite sum would be refused by the mechanism, and tell that it was there.
    finite = np.nan_to_num(total.astype(np.float64).ravel(), posinf=0.0, neginf=0.0)
    return np.asarray(mechanism(finite.tolist())).reshape(total.shape)


@lru_cache(maxsize=8)
def _gaussian(size: int, clip: float, noise_multiplier: float) -> Any:
    """OpenDP's mechanism whose own account of its cost is at most the one that is claimed.

    A client may move the total a little further than its clip, by the clip's own rounding and that
    to OpenDP's grid; the scale is raised by as much (6e-8 of it for each coordinate).
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)
    claimed = 1 / (2 * noise_multiplier**2)  # zero-concentrated rho of the noise
    scale = clip * noise_multiplier
    # A billionth of the scale: practically the noise of the finest grid, at a quarter of its time.
    grid = math.floor(math.log2(scale)) - 30
    for _ in range(4):
        mechanism: Any = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale, k=grid)
        cost = mechanism.map(reach(clip, size))
        if cost <= claimed:
            return mechanism
        scale *= math.sqrt(cost / claimed) * (1 + 1e-12)
    raise PrivacyError(
        f"noise: OpenDP must reach the noise multiplier, got rho {cost:g} for {claimed:g}. "
        "Choose a larger clip or less noise."
    )
