"""Where draws come from: repetition, forks, and what the operating system and OpenDP deliver."""

import math
import os
import random as standard
import select
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

_PATIENCE = 60.0  # seconds for a forked process to draw


def repeats(draw: Callable[[], np.ndarray]) -> Iterator[str]:
    """Whether `draw` returns the same twice, in this process or in two forks of it."""
    first, second = draw(), draw()
    if np.array_equal(first, second):
        yield "the same call returns the same numbers"
        return
    if hasattr(os, "fork"):
        children = [_forked(draw), _forked(draw)]
        here = np.asarray(draw()).tobytes()
        if b"" in children:
            yield "a forked process could not draw"
        elif len({*children, here}) < 3:
            yield "a forked process repeats the numbers of another: a generator in memory"


def _forked(draw: Callable[[], np.ndarray]) -> bytes:
    """What `draw` returns in a forked process; empty if it failed."""
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads; the child only draws, writes and ends
        child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            with os.fdopen(sending, "wb") as pipe:
                pipe.write(np.asarray(draw()).tobytes())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        if not select.select([pipe], [], [], _PATIENCE)[0]:
            os.kill(child, signal.SIGKILL)  # a lock that a thread held at the fork
        content = pipe.read()
    os.waitpid(child, 0)
    return content


@contextmanager
def system_bytes() -> Iterator[list[bytes]]:
    """Collect what the operating system delivers to this process meanwhile."""
    delivered: list[bytes] = []
    real = os.urandom

    def urandom(size: int) -> bytes:
        delivered.append(real(size))
        return delivered[-1]

    patches = ((os, "urandom"), (standard, "_urandom"))
    with mock.patch.object(*patches[0], urandom), mock.patch.object(*patches[1], urandom):
        yield delivered


class Delivered(list[np.ndarray]):
    """What OpenDP returned, and the mechanisms that it was returned by."""

    def __init__(self) -> None:
        super().__init__()
        self.mechanisms: list[Any] = []


@contextmanager
def opendp() -> Iterator[Delivered]:
    """Collect what OpenDP's mechanisms return meanwhile."""
    from opendp import core

    delivered = Delivered()
    real = core.measurement_invoke

    def invoke(this: Any, arg: Any) -> Any:
        answer = real(this, arg)
        delivered.append(np.asarray(answer, np.float64).ravel())
        delivered.mechanisms.append(this)
        return answer

    with mock.patch.object(core, "measurement_invoke", invoke):
        yield delivered


def delivered(released: np.ndarray, delivered: list[np.ndarray]) -> bool:
    """Whether every row of `released` is one that OpenDP returned, rounded to float32."""
    known = {row.astype(np.float32).tobytes() for row in delivered}
    rows = np.atleast_2d(released)
    return all(row.astype(np.float32).tobytes() in known for row in rows)


def off_grid(noise: np.ndarray, scale: float) -> list[str]:
    """Whether small values, which float32 holds exactly, are multiples of 2^-30 of the scale.

    OpenDP's grid is 2^-30 of the scale rounded down to a power of two, or coarser.
    """
    grid = 2.0 ** (math.floor(math.log2(scale)) - 30)
    units = noise[np.abs(noise) < 2**22 * grid] / grid
    if (units != np.round(units)).any():
        return ["noise off the integer grid: its low bits tell of the number below"]
    return []
