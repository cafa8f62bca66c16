"""Eighteen batters of 1970: hits in their first 45 at bats, and how the season went on.

Facts from Efron and Morris, "Data analysis using Stein's estimator and its generalizations"
(Journal of the American Statistical Association 70, 1975, table 1) and "Stein's paradox in
statistics" (Scientific American 236, 1977).
"""

from typing import NamedTuple

import numpy as np

AT_BATS = 45

# player, hits in the first 45 at bats, at bats in the rest of the season, batting average in it
_PLAYERS = (
    ("Roberto Clemente", 18, 367, 0.346),
    ("Frank Robinson", 17, 426, 0.298),
    ("Frank Howard", 16, 521, 0.276),
    ("Jay Johnstone", 15, 275, 0.222),
    ("Ken Berry", 14, 418, 0.273),
    ("Jim Spencer", 14, 466, 0.270),
    ("Don Kessinger", 13, 586, 0.263),
    ("Luis Alvarado", 12, 138, 0.210),
    ("Ron Santo", 11, 510, 0.269),
    ("Ron Swoboda", 11, 200, 0.230),
    ("Del Unser", 10, 277, 0.264),
    ("Billy Williams", 10, 270, 0.256),
    ("George Scott", 10, 435, 0.303),
    ("Rico Petrocelli", 10, 538, 0.264),
    ("Ellie Rodriguez", 10, 186, 0.226),
    ("Bert Campaneris", 9, 558, 0.285),
    ("Thurman Munson", 8, 408, 0.316),
    ("Max Alvis", 7, 70, 0.200),
)


class Baseball(NamedTuple):
    """One entry a player, in order of hits."""

    player: np.ndarray
    hits: np.ndarray
    at_bats: np.ndarray
    remaining_at_bats: np.ndarray
    remaining_average: np.ndarray


def baseball() -> Baseball:
    """The table; the remaining average plays the part of the truth.

    >>> table = baseball()
    >>> float(((table.hits / table.at_bats - table.remaining_average) ** 2).sum().round(4))
    0.0753
    """
    player, hits, remaining, average = (np.array(each) for each in zip(*_PLAYERS, strict=True))
    return Baseball(player, hits, np.full(len(hits), AT_BATS), remaining, average)
