"""Cohorts that leave some clients out for good: newcomers, who are scored but never take part."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core.protocols import Cohort


@dataclass(frozen=True)
class Veterans(Cohort):
    """`inner` among all but the last `newcomers` clients."""

    inner: Cohort
    newcomers: int

    @property
    def cycle(self) -> int:
        return self.inner.cycle

    def expected_size(self, num_clients: int) -> float:
        return self.inner.expected_size(num_clients - self.newcomers)

    def capacity(self, num_clients: int) -> int:
        return self.inner.capacity(num_clients - self.newcomers)

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        return np.asarray(self.inner.draw(seed, round, num_clients - self.newcomers))

    def amplify(self, event: Any, num_clients: int) -> Any:
        return self.inner.amplify(event, num_clients - self.newcomers)
