"""Noise for what really leaves: OpenDP's samplers, seeded by the operating system.

The floating-point rounding of a plain normal draw tells of the number it was added to; OpenDP adds
noise on a grid, exactly, and rounds afterwards.
"""

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


def add_gaussian(total: Array, scale: float) -> Array:
    """`total` + N(0, scale^2 I), a new draw at every call, inside or outside a compiled loop."""
    if isinstance(total, np.ndarray):
        return _noised(total, scale)
    import jax
    from jax.experimental import io_callback

    like = jax.ShapeDtypeStruct(total.shape, total.dtype)  # type: ignore[no-untyped-call]
    # Ordered: a call is neither left out nor repeated, whatever the compiler thinks of it.
    return io_callback(lambda values: _noised(np.asarray(values), scale), like, total, ordered=True)


def _noised(total: np.ndarray, scale: float) -> np.ndarray:
    mechanism = _gaussian(total.size, float(scale))
    # A non-finite sum would be refused by the mechanism, and tell that it was there.
    finite = np.nan_to_num(total.astype(np.float64).ravel(), posinf=0.0, neginf=0.0)
    return np.asarray(mechanism(finite.tolist()), total.dtype).reshape(total.shape)


@lru_cache(maxsize=8)
def _gaussian(size: int, scale: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)
    # A grid of 2**-30: practically the same noise as the finest one, at a quarter of its time.
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale, k=-30)
