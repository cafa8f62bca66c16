"""The mean score of all clients, released under an epsilon of its own."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy import events, secure
from fedprior.privacy.events import Event, Relation
from fedprior.privacy.guarantee import Noise

_UNITS = 2**20  # a score of 1, in the whole numbers that are added up


@dataclass(frozen=True, kw_only=True)
class MeanScore:
    """1/2 + (sum of (score - 1/2) over the clients + discrete Laplace noise) / number of clients.

    A score is cut to [0, 1]; a client that has none counts as 1/2. The sum is one of whole numbers,
    and so is the noise, of a scale for which one client more or less (`add-remove`), or another one
    in its place (`replace-one`), costs `epsilon` and no delta. The number of clients is public.

    Protects: one client's score. Trusts: whoever adds up the scores and draws the noise.
    """

    epsilon: float
    relation: Relation
    noise: Noise = "simulated"

    def __post_init__(self) -> None:
        check.positive("MeanScore", epsilon=self.epsilon)
        check.choice("MeanScore", "relation", self.relation, events.RELATIONS)
        check.choice("MeanScore", "noise", self.noise, ("simulated", "secure"))
        if self.noise == "secure":
            secure.require_opendp()

    @property
    def event(self) -> Event:
        """The event of one release; a randomized response dominates all that is pure epsilon-DP.

        It holds under `relation`; on a ledger of replace-one, noise for add-remove costs twice it.
        """
        return events.response(self.epsilon)

    @property
    def sensitivity(self) -> int:
        """What one client can change in the sum, in units."""
        return _UNITS // 2 if self.relation == "add-remove" else _UNITS

    def release(self, scores: np.ndarray, key: Any = None) -> float:
        """Return the mean with new noise: by OpenDP, or from the generator `key` if simulated."""
        total = int(contributions(scores).sum())
        if self.noise == "secure":
            noised = secure.add_laplace(total, sensitivity=self.sensitivity, epsilon=self.epsilon)
        elif isinstance(key, np.random.Generator):
            stop = -math.expm1(-self.epsilon / self.sensitivity)
            up, down = key.geometric(stop, 2)  # their difference is discrete Laplace noise
            noised = total + int(up) - int(down)
        else:
            raise PrivacyError("MeanScore: simulated noise needs a keyed generator, got none.")
        return 0.5 + noised / _UNITS / len(scores)

    def standard_error(self, num_clients: int) -> float:
        """Return the standard deviation of the noise in the mean."""
        return math.sqrt(2) * self.sensitivity / self.epsilon / _UNITS / num_clients


def contributions(scores: np.ndarray) -> np.ndarray:
    """Return what each client adds to the sum, in units: at most half of them, 0 without a score.

    >>> contributions(np.array([1.0, 0.0, 0.5, np.nan, -np.inf, 7.0])).tolist()
    [524288, -524288, 0, 0, -524288, 524288]
    """
    inside = np.clip(np.where(np.isnan(scores), 0.5, scores), 0, 1)
    return np.rint((inside.astype(np.float64) - 0.5) * _UNITS).astype(np.int64)
