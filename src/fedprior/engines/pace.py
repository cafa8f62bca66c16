"""The number of rounds per call of a compiled program."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fedprior.engines.device import LONGEST

_CALL_SECONDS = 1.0  # target duration of a call, to show progress and to react to an interrupt


class Pace:
    """Chooses the rounds of the next call such that calls take about `_CALL_SECONDS`."""

    def __init__(self) -> None:
        self.last, self.seconds = 1, math.inf

    def rounds(self) -> int:
        if math.isinf(self.seconds):
            return 1  # the first call compiles
        wanted = self.last * _CALL_SECONDS / max(self.seconds, 1e-6)
        return int(min(max(1, wanted), 4 * self.last, LONGEST))

    @contextmanager
    def timed(self, rounds: int) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.last, self.seconds = rounds, time.perf_counter() - start
