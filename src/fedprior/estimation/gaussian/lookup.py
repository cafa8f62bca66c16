"""The estimates of groups of one size as functions of the group's own mean, for a join."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw
from fedprior.estimation.gaussian.posterior import LinearRule, QuadraticError
from fedprior.estimation.gaussian.robust import FEW
from fedprior.estimation.gaussian.rows import linear, quadratic
from fedprior.estimation.statistics import Means


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanLookup:
    """With y = raw - center: personal = center + weight y + offset, limits = personal -+ half.

    half^2 = score^2 (square y^2 + slant y + constant), at least 0. One row per size.
    """

    center: float
    score: float
    weight: np.ndarray
    offset: np.ndarray
    square: np.ndarray
    slant: np.ndarray
    constant: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """The table that is joined by size; the score is part of the squares."""
        factor = self.score**2
        return {
            "weight": self.weight,
            "offset": self.offset,
            "square": factor * self.square,
            "slant": factor * self.slant,
            "constant": factor * self.constant,
        }


def lookup_of(
    bins: Bins, law: MeanLaw, rule: LinearRule, spread: QuadraticError, *, score: float
) -> MeanLookup:
    """The lookup of each row of the statistics, of one coordinate."""
    every = slice(None)
    place = bins.place
    return MeanLookup(
        center=float(bins.center[0]),
        score=float(score),
        weight=rule.slope[place],
        offset=linear(bins, law, rule.offset[..., 0])(every),
        square=spread.square[place],
        slant=linear(bins, law, spread.linear[..., 0])(every),
        constant=quadratic(bins, law, spread.form[..., 0])(every) + spread.own[place],
    )


def check_collapsed(statistics: Means, **asked: Any) -> None:
    """Rows that stand for many groups serve what needs no single group's mean."""
    if statistics.count is None:
        return
    for name, needed in asked.items():
        sentence = f"{name} needs each group's mean, and cannot be combined with count."
        check.expect(not needed, "estimate_means", sentence)
    number = int(statistics.groups[np.asarray(statistics.n) > 0].sum())
    rule = f"at least {FEW} with count"
    remedy = "Fewer groups are given one by one."
    check.require(number >= FEW, "estimate_means", "groups", rule, number, remedy)
