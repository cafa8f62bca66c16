"""Estimates, their expected errors and intervals for every group, from tables over the bins."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.intervals import mixture_cdf, mixture_quantile

_CHUNK = 1 << 16  # groups processed at a time, so that they stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearRule:
    """personal = slope[bin] x + offset[bin], relative to the center: (bins + 1,), (bins + 1, d)."""

    slope: np.ndarray
    offset: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticError:
    """E[(theta - personal)^2 | data] = square x^2 + linear x + constant, per bin and coordinate."""

    square: np.ndarray
    linear: np.ndarray
    constant: np.ndarray


def mean_rule(nodes: PopulationNodes) -> LinearRule:
    """The posterior mean of theta: x - E[B] x + E[B l] over the nodes."""
    kept = nodes.probability @ nodes.shrinkage
    moved = np.einsum("g,gu,gud->ud", nodes.probability, nodes.shrinkage, nodes.location)
    return LinearRule(
        slope=np.maximum(1 - kept, 0.0), offset=moved
    )  # probabilities sum to 1 + 1e-16


def spread_about(nodes: PopulationNodes, rule: LinearRule) -> QuadraticError:
    """The expected squared error of a linear rule, including the uncertainty of the population.

    For the posterior mean it is the posterior variance; for another rule the squared distance is
    added (Morris 1983). It is positive even if theta's variance is estimated as 0.
    """
    weight = nodes.probability
    gap = 1 - nodes.shrinkage - rule.slope
    shift = nodes.shrinkage[:, :, None] * nodes.location - rule.offset
    own = nodes.inflation * (weight @ nodes.squared_scale)
    return QuadraticError(
        square=weight @ gap**2,
        linear=2 * np.einsum("g,gu,gud->ud", weight, gap, shift),
        constant=np.einsum("g,gud->ud", weight, shift**2) + own[:, None],
    )


def average_error(bins: Bins, spread: QuadraticError) -> float:
    """The mean of `spread` over groups with data and over coordinates, from the bins."""
    squares = bins.scatter + bins.count * (bins.mean**2).sum(axis=1)
    total = spread.square[:-1] @ squares
    total += (spread.linear[:-1] * bins.mean * bins.count[:, None]).sum()
    total += (spread.constant[:-1] * bins.count[:, None]).sum()
    return float(total) / (bins.num_groups * bins.dimension)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeanRows:
    """Results per group: weight (groups,); personal, scale and interval limits (groups, d)."""

    weight: np.ndarray
    personal: np.ndarray
    scale: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def apply_rule(
    bins: Bins,
    raw: np.ndarray,
    rule: LinearRule,
    spread: QuadraticError,
    *,
    score: float,
    half: np.ndarray | None = None,
) -> MeanRows:
    """Estimates with intervals of +- score * scale, or +- half[bin]; O(1) work per group."""
    personal, scale, lower, upper = (np.empty_like(raw) for _ in range(4))
    weight = np.empty(len(raw))
    empty = bool((bins.place == bins.num_bins).any())
    for start in range(0, len(raw), _CHUNK):
        rows = slice(start, start + _CHUNK)
        place = bins.place[rows]
        slope, square = rule.slope[place], spread.square[place]
        weight[rows] = slope
        for column, center in enumerate(bins.center):
            x = raw[rows, column] - center
            if empty:
                x[place == bins.num_bins] = 0.0
            middle = slope * x + rule.offset[:, column][place] + center
            second = (square * x + spread.linear[:, column][place]) * x
            second += spread.constant[:, column][place]
            deviation = np.sqrt(np.maximum(second, 0.0))
            width = score * deviation if half is None else half[place]
            personal[rows, column] = middle
            scale[rows, column] = deviation
            np.subtract(middle, width, out=lower[rows, column])
            np.add(middle, width, out=upper[rows, column])
    return MeanRows(weight=weight, personal=personal, scale=scale, lower=lower, upper=upper)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudentMixture:
    """theta of each group as a mixture over nodes; location and scale are (nodes, groups, d)."""

    probability: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    freedom: float

    def quantile(self, level: float) -> np.ndarray:
        return mixture_quantile(
            level, self.probability, self.location, self.scale, freedom=self.freedom
        )

    def above(self, threshold: float) -> np.ndarray:
        below = mixture_cdf(
            np.asarray(threshold), self.probability, self.location, self.scale, freedom=self.freedom
        )
        return 1 - below


def mixture_of(bins: Bins, nodes: PopulationNodes, raw: np.ndarray) -> StudentMixture:
    """The posterior of theta of each group; for few groups, since memory is nodes x groups."""
    x = np.where((bins.place == bins.num_bins)[:, None], 0.0, raw - bins.center)
    shrinkage = nodes.shrinkage[:, bins.place, None]
    location = bins.center + (1 - shrinkage) * x + shrinkage * nodes.location[:, bins.place]
    scale = np.sqrt(nodes.squared_scale[:, bins.place])[:, :, None]
    return StudentMixture(
        probability=nodes.probability,
        location=location,
        scale=np.broadcast_to(scale, location.shape),
        freedom=nodes.freedom,
    )
