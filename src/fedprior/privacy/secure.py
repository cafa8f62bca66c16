"""Noise for real releases: OpenDP's samplers, seeded by the operating system.

The rounding of ordinary floating-point noise reveals information about the number it is added to;
OpenDP adds noise exactly, on a grid, and rounds afterwards. A floating-point sum depends on the
order of its terms, so one term can change it by more than its own value; `add_exactly` is exact.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.core.check import PrivacyError


def require_opendp() -> None:
    """Raise PrivacyError if OpenDP is not installed."""
    if find_spec("opendp") is None:
        raise PrivacyError(
            "noise: secure noise needs OpenDP, which is not installed. "
            "pip install 'fedprior[secure]', or set noise = 'simulated' for a simulation."
        )


# Coordinates of a message are truncated to multiples of clip / 2^22 or a slightly larger unit:
# integers below 2^23, which float32 represents exactly. Their sum is stored as two integers, the
# multiples of 2^12 and the remainders, which fit into 32 bits for up to _MOST_CLIENTS clients.
_FINENESS = 22
_LOW_BITS = 12
_LONGEST = 2**25  # in units; channels between clip and noise may lengthen messages to 4 clips
_MOST_CLIENTS = 2**17


def check_cohort_size(size: int) -> None:
    """Check that the exact sum over `size` clients cannot overflow."""
    rule = f"at most {_MOST_CLIENTS:,}, the limit of exact sums"
    remedy = "Lower the sampling rate or the cap of the cohort."
    check.require(size <= _MOST_CLIENTS, "secure noise", "cohort size", rule, size, remedy)


def add_exactly(rows: Array, *, clip: float) -> Array:
    """Sum (clients, d) messages exactly, as integers of shape (2, d): high and low parts.

    Each row is first truncated toward zero to a grid, which never increases its norm. Adding or
    removing a client changes the sum by exactly that client's truncated message.
    """
    check_cohort_size(len(rows))
    xp = rows.__array_namespace__()
    units = xp.clip(xp.trunc(rows * (1 / grid(clip))), -_LONGEST, _LONGEST).astype(xp.int32)
    parts = (units >> _LOW_BITS, units & (2**_LOW_BITS - 1))
    return xp.stack([xp.sum(part, axis=0, dtype=xp.int32) for part in parts])


def units(total: np.ndarray) -> np.ndarray:
    """Convert the result of `add_exactly` to 64-bit integers, in units of the grid."""
    high, low = total.astype(np.int64)
    return high * 2**_LOW_BITS + low


def parts(units: np.ndarray) -> np.ndarray:
    """Invert `units`: whole numbers of units as `add_exactly` returns them."""
    most = _MOST_CLIENTS * _LONGEST
    fits = units.dtype == np.int64 and not ((units < -most) | (units > most)).any()
    rule = f"64-bit integers of at most {_MOST_CLIENTS:,} uploads of {_LONGEST:,} units"
    check.expect(bool(fits), "secure sum", f"units must be {rule}.")
    return np.stack([units >> _LOW_BITS, units & (2**_LOW_BITS - 1)]).astype(np.int32)


def value(total: np.ndarray, *, clip: float) -> np.ndarray:
    """Convert the result of `add_exactly` to double precision, which represents it exactly."""
    return units(total) * grid(clip)


def rounded(total: Array, *, clip: float) -> Array:
    """Convert the result of `add_exactly` to float32: the same bits on the host and compiled.

    The first product and the last are exact, so no compiler can round them in another way.
    """
    xp = total.__array_namespace__()
    high, low = total[0] + (total[1] >> _LOW_BITS), total[1] & (2**_LOW_BITS - 1)
    return (high.astype(xp.float32) * 2**_LOW_BITS + low.astype(xp.float32)) * grid(clip)


def grid(clip: float) -> float:
    """The unit of the grid: a power of 2, so that scaling by it is exact in float32."""
    return 2.0 ** max(math.floor(math.log2(clip)) - _FINENESS, -120)


def reach(clip: float, size: int) -> float:
    """An upper bound on the norm of `size` coordinates after clipping in float32.

    The relative error of their sum of squares is at most `size` * 2^-24, in any order of summation;
    root, quotient and product add a few 2^-24, and squares below 2^-126 are lost.
    """
    return clip * (1 + (size + 16) * 2.0**-24) + math.sqrt(size) * 2.0**-63


def add_gaussian(total: Array, *, clip: float, noise_multiplier: float) -> Array:
    """Return `total` + noise, a new draw in every call, inside or outside a compiled loop.

    `total` is the result of `add_exactly`, or a vector of floats whose sum was exact. If messages
    were clipped to `clip` in float32, the privacy loss is at most that of
    N(0, (clip * noise_multiplier)^2 I), including the rounding of the clip and of OpenDP's grid.
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
    # With ordered=True, the compiler can neither drop nor repeat a call.
    return io_callback(noised, like, total, ordered=True)


def add_laplace(total: int, *, sensitivity: int, epsilon: float) -> int:
    """Return a whole number + discrete Laplace noise, which costs at most `epsilon`, without delta.

    `sensitivity` is by how much one client changes the number.
    """
    return int(_laplace(sensitivity, float(epsilon))(total))


@lru_cache(maxsize=8)
def _laplace(sensitivity: int, epsilon: float) -> Any:
    """OpenDP's mechanism on whole numbers, of at most `epsilon` by its own account."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, metric = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    scale = sensitivity / epsilon
    for _ in range(4):
        mechanism: Any = dp.m.make_laplace(domain, metric, scale=scale)
        if mechanism.map(sensitivity) <= epsilon:
            return mechanism
        scale *= 1 + 1e-12
    raise PrivacyError(f"noise: OpenDP cannot add noise for an epsilon of {epsilon:g}.")


def _noised(total: np.ndarray, clip: float, noise_multiplier: float) -> np.ndarray:
    mechanism = _gaussian(total.size, clip, noise_multiplier)
    # The mechanism would refuse a non-finite sum, which would reveal its presence.
    finite = np.nan_to_num(total.astype(np.float64).ravel(), posinf=0.0, neginf=0.0)
    return np.asarray(mechanism(finite.tolist())).reshape(total.shape)


@lru_cache(maxsize=8)
def _gaussian(size: int, clip: float, noise_multiplier: float) -> Any:
    """OpenDP's mechanism, with a privacy loss by its own account of at most the claimed one.

    A client can change the total by slightly more than its clip, because of the rounding of the
    clip and of OpenDP's grid; the scale is raised accordingly (by 6e-8 of it per coordinate).
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)
    # A billionth of the scale: practically the noise of the finest grid, in a quarter of the time.
    fineness = math.floor(math.log2(clip * noise_multiplier)) - 30

    def build(scale: float) -> Any:
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale, k=fineness)

    return calibrated(
        build,
        scale=clip * noise_multiplier,
        reach=reach(clip, size),
        noise_multiplier=noise_multiplier,
    )


@lru_cache(maxsize=8)
def discrete_gaussian(size: int, reach: float, noise_multiplier: float) -> Any:
    """OpenDP's discrete Gaussian on vectors of `size` integers.

    By its own account, a move of norm `reach` costs at most the zero-concentrated rho of the
    claimed noise. Rho grows with the square of the move.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=size)

    def build(scale: float) -> Any:
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)

    scale = reach * noise_multiplier
    return calibrated(build, scale=scale, reach=reach, noise_multiplier=noise_multiplier)


def calibrated(
    build: Callable[[float], Any], *, scale: float, reach: float, noise_multiplier: float
) -> Any:
    """Return OpenDP's mechanism with the least scale at which a move of `reach` costs the claim."""
    claimed = 1 / (2 * noise_multiplier**2)  # zero-concentrated rho of the noise
    for _ in range(4):
        mechanism = build(scale)
        cost = mechanism.map(reach)
        if cost <= claimed:
            return mechanism
        scale *= math.sqrt(cost / claimed) * (1 + 1e-12)
    raise PrivacyError(
        f"noise: OpenDP cannot reach the noise multiplier {noise_multiplier:g}: its rho is "
        f"{cost:g} instead of {claimed:g}. Choose a larger clip or less noise."
    )
