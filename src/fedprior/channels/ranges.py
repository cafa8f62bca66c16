"""Ranges of a message's coordinates, common or per coordinate, as hashable values."""

from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array

Bound = float | tuple[float, ...]


def bound(owner: str, name: str, value: Any) -> Bound:
    """Return a finite number unchanged, and a vector as a tuple, so that channels are hashable."""
    array = np.asarray(value, np.float64)
    good = array.ndim <= 1 and bool(np.isfinite(array).all()) and array.size > 0
    check.require(good, owner, name, "a finite number or one per coordinate", value)
    return tuple(array.tolist()) if array.ndim else float(array)


def box(owner: str, low: Any, high: Any) -> tuple[Bound, Bound]:
    """Check that `low` is below `high` in every coordinate, and return both."""
    low, high = bound(owner, "low", low), bound(owner, "high", high)
    lengths = {len(end) for end in (low, high) if isinstance(end, tuple)}
    check.require(len(lengths) <= 1, owner, "low and high", "of equal length", (low, high))
    below = bool((np.asarray(low) < np.asarray(high)).all())
    check.require(below, owner, "low", "below high", low, f"high is {high!r}.")
    return low, high


def spread(owner: str, value: Bound, like: Array) -> Array:
    """Return a bound as an array of the kind of `like` that broadcasts against its last axis."""
    xp = like.__array_namespace__()
    if isinstance(value, tuple):
        rule = f"of the message's length ({like.shape[-1]})"
        check.require(len(value) == like.shape[-1], owner, "low, high or center", rule, value)
    return xp.asarray(value, dtype=like.dtype)
