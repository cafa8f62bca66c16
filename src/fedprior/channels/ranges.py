"""Ranges of a message's coordinates, one for all or one each, as values that can be hashed."""

from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array

Bound = float | tuple[float, ...]


def bound(owner: str, name: str, value: Any) -> Bound:
    """A finite number as it is; a vector as a tuple, so that a channel stays hashable."""
    array = np.asarray(value, np.float64)
    good = array.ndim <= 1 and bool(np.isfinite(array).all()) and array.size > 0
    check.require(good, owner, name, "a finite number or one a coordinate", value)
    return tuple(array.tolist()) if array.ndim else float(array)


def box(owner: str, low: Any, high: Any) -> tuple[Bound, Bound]:
    """`low` below `high` in every coordinate."""
    low, high = bound(owner, "low", low), bound(owner, "high", high)
    lengths = {len(each) for each in (low, high) if isinstance(each, tuple)}
    check.require(len(lengths) <= 1, owner, "low and high", "of one length", (low, high))
    below = bool((np.asarray(low) < np.asarray(high)).all())
    check.require(below, owner, "low", "below high", low, f"high is {high!r}.")
    return low, high


def spread(owner: str, value: Bound, like: Array) -> Array:
    """A bound as an array of `like`'s kind that broadcasts against its last axis."""
    xp = like.__array_namespace__()
    if isinstance(value, tuple):
        rule = f"of the message's length ({like.shape[-1]})"
        check.require(len(value) == like.shape[-1], owner, "low, high or center", rule, value)
    return xp.asarray(value, dtype=like.dtype)
