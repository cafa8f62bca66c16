"""What a count of a group is, in rates that are shares of the largest one, and how it is reported.

A group of size n has a count with mean n p and variance n V(p), p in [0, 1]: n trials with rate p,
or events over an exposure of which n are expected at the largest rate. What is reported is the
count, or the largest one that is reported (`most`) if it is larger; for trials it never is.
"""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.families.binomial import BINOMIAL
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.families.poisson import POISSON

_LOST_RATE = 1e-3  # of a rate, at most, by reporting `most` in place of a larger count
_LOST_SQUARE = 1e-2  # of the noise of a square, per expected event
_STEPS = 60  # of bisection, enough for any double


@dataclass(frozen=True)
class CountLaw:
    """A family of counts with rates in [0, 1]."""

    family: CountFamily

    @property
    def largest_variance(self) -> float:
        """The largest V(p) = p - excess p^2 in [0, 1]."""
        excess = self.family.excess
        return 1 / (4 * excess) if excess > 0.5 else 1 - excess

    def tells_square(self, n: np.ndarray) -> np.ndarray:
        """Whether a count says something of p^2; one trial does not."""
        return n > self.family.excess

    def pairs(self, n: np.ndarray) -> np.ndarray:
        """E z (z - 1) / p^2."""
        return n * (n - self.family.excess)

    def most(self, n: np.ndarray) -> np.ndarray:
        """The largest count that is reported.

        For events it is the least one by which at most 0.1% of a rate is lost, and of the square at
        most 1% / max(n, 1) of the rate, if the rate is at most 1.
        """
        if self.family is BINOMIAL:
            return np.asarray(n)
        low, high = np.zeros(np.shape(n)), np.ceil(n + 12 * np.sqrt(n) + 12)
        for _ in range(_STEPS):
            middle = np.floor((low + high) / 2)
            rate, square = self.lost(n, middle)
            fits = (rate <= _LOST_RATE) & (square <= _LOST_SQUARE / np.maximum(n, 1))
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
            if (high - low <= 1).all():
                break
        return high.astype(np.int64)

    def lost(self, n: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds, as multiples of p, on p - E z' / n and p^2 - E z' (z' - 1) / n^2, z' reported.

        E (z - most)+ and E (z (z - 1) - most (most - 1))+ are convex in the rate, and 0 at rate 0,
        so that their values at rate 1, times p, bound them.
        """
        if self.family is BINOMIAL:
            return np.zeros(np.shape(n)), np.zeros(np.shape(n))
        from scipy.special import pdtrc

        def at_least(count: np.ndarray) -> np.ndarray:
            return np.where(count > 0, pdtrc(np.maximum(count - 1, 0), n), 1.0)

        beyond = at_least(most + 1)
        rate = at_least(most) - most * beyond / n
        square = at_least(most - 1) - most * (most - 1) * beyond / n**2
        return np.maximum(rate, 0.0) + 1e-12, np.maximum(square, 0.0) + 1e-12

    def at_most(self, count: np.ndarray, n: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """P(z <= count)."""
        from scipy.special import bdtr, pdtr

        there = np.maximum(count, 0)
        found = bdtr(there, n, rate) if self.family is BINOMIAL else pdtr(there, n * rate)
        return np.where(count >= 0, found, 0.0)


TRIALS, EVENTS = CountLaw(BINOMIAL), CountLaw(POISSON)
