"""Noise for what really leaves: OpenDP's samplers, seeded by the operating system.

The floating-point rounding of a plain normal draw tells of the number it was added to; OpenDP adds
noise on a grid, exactly, and rounds afterwards.
"""

import math
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedprior.core.algorithm import Array
from fedprior.core.check import PrivacyError


def require_opendp() -> None:
    """OpenDP is installed, or the run does not begin."""
    if find_spec("opendp") is None:
        raise PrivacyError(
            "noise: secure noise must be drawn by OpenDP, which is not installed. "
            "pip install 'fedprior[secure]', or say noise = 'simulated' for a simulation."
        )


def add_gaussian(total: Array, *, clip: float, noise_multiplier: float) -> Array:
    """`total` + noise, a new draw at every call, inside or outside a compiled loop.

    Where a client moves the total by at most `clip`, the noise costs no more than
    N(0, (clip * noise_multiplier)^2 I) would, OpenDP's rounding to a grid included.
    """

    def noised(values: np.ndarray) -> np.ndarray:
        return _noised(np.asarray(values), float(clip), float(noise_multiplier))

    if isinstance(total, np.ndarray):
        return noised(total)
    import jax
    from jax.experimental import io_callback

    like = jax.ShapeDtypeStruct(total.shape, total.dtype)  # type: ignore[no-untyped-call]
    # Ordered: a call is neither left out nor repeated, whatever the compiler thinks of it.
    return io_callback(noised, like, total, ordered=True)


def _noised(total: np.ndarray, clip: float, noise_multiplier: float) -> np.ndarray:
    mechanism = _gaussian(total.size, clip, noise_multiplier)
    # A non-finite sum would be refused by the mechanism, and tell that it was there.
    finite = np.nan_to_num(total.astype(np.float64).ravel(), posinf=0.0, neginf=0.0)
    return np.asarray(mechanism(finite.tolist()), total.dtype).reshape(total.shape)


@lru_cache(maxsize=8)
def _gaussian(size: int, clip: float, noise_multiplier: float) -> Any:
    """OpenDP's mechanism whose own account of its cost is at most the one that is claimed.

    It rounds to a grid first, which lets a client move the total a little further than its clip;
    the scale is raised by as much (1e-9 to 1e-4 of it).
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
        cost = mechanism.map(clip)
        if cost <= claimed:
            return mechanism
        scale *= math.sqrt(cost / claimed) * (1 + 1e-12)
    raise PrivacyError(
        f"noise: OpenDP must reach the noise multiplier, got rho {cost:g} for {claimed:g}. "
        "Choose a larger clip or less noise."
    )
