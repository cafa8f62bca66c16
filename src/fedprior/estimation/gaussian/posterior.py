"""Estimates, their expected errors and intervals for every group, from tables over the bins."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.gaussian.rows import linear, quadratic, rows_of
from fedprior.estimation.intervals import mixture_cdf, mixture_quantile

_CHUNK = 1 << 16  # groups processed at a time, so that they stay in the cache


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearRule:
    """personal_i = slope[bin] y_i + x_i'offset[bin], relative to the center.

    The slope is (bins + 1,), the offset (bins + 1, p, d).
    """

    slope: np.ndarray
    offset: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadraticError:
    """E[(theta - personal)^2 | data] = square y^2 + x'linear y + x'form x + own, by coordinate.

    `square` and `own` are (bins + 1,), `linear` is (bins + 1, p, d), `form` (bins + 1, p, p, d).
    """

    square: np.ndarray
    linear: np.ndarray
    form: np.ndarray
    own: np.ndarray


def mean_rule(nodes: PopulationNodes) -> LinearRule:
    """The posterior mean of theta: y - E[B] y + x'E[B b] over the nodes."""
    moved = (nodes.probability[:, None] * nodes.shrinkage).T
    return LinearRule(
        slope=nodes.probability @ (1 - nodes.shrinkage),  # 0 for groups without rows
        offset=np.tensordot(moved, nodes.coefficients, axes=1),
    )


def spread_about(nodes: PopulationNodes, rule: LinearRule) -> QuadraticError:
    """The expected squared error of a linear rule, including the uncertainty of the population.

    For the posterior mean it is the posterior variance; for another rule the squared distance is
    added (Morris 1983). It is positive even if theta's variance is estimated as 0.

    With B = kept + moved and b = middle + apart at each node, its location is off the rule's by
    (rest - moved) y + x'(B apart + moved middle + gap), and these parts are squared without a table
    of nodes by bins by coefficients.
    """
    weight = nodes.probability
    kept = weight @ nodes.shrinkage
    moved = nodes.shrinkage - kept
    rest = 1 - kept - rule.slope
    middle = np.tensordot(weight, nodes.coefficients, axes=1)
    apart = nodes.coefficients - middle
    gap = kept[:, None, None] * middle - rule.offset
    pull = weight[:, None] * nodes.shrinkage

    def by_bin(values: np.ndarray, at_nodes: np.ndarray) -> np.ndarray:
        return np.tensordot(values.T, at_nodes, axes=1)

    square = weight @ moved**2
    drift, tilt = by_bin(pull, apart), by_bin(pull * moved, apart)
    linear = rest[:, None, None] * (drift + gap) - tilt - square[:, None, None] * middle
    products = apart[:, :, None] * apart[:, None] + nodes.inflation * nodes.covariance[..., None]
    form = by_bin(pull * nodes.shrinkage, products)
    form += square[:, None, None, None] * middle[:, None] * middle[None]
    half = gap[:, :, None] * (gap / 2 + drift)[:, None] + tilt[:, :, None] * middle[None, None]
    form += half + half.swapaxes(1, 2)
    return QuadraticError(
        square=square + rest**2,
        linear=2 * linear,
        form=form,
        own=nodes.inflation * (weight @ nodes.own),
    )


def average_error(bins: Bins, law: MeanLaw, spread: QuadraticError) -> float:
    """The mean of `spread` over groups with data and over coordinates, from the bins."""
    total = spread.square[:-1] @ bins.squares + bins.dimension * (bins.count @ spread.own[:-1])
    total += (spread.linear[:-1] * law.moment).sum()
    total += (spread.form[:-1] * law.gram[..., None]).sum()
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
    law: MeanLaw,
    raw: np.ndarray,
    rule: LinearRule,
    spread: QuadraticError,
    *,
    score: float,
    half: np.ndarray | None = None,
) -> MeanRows:
    """Estimates with intervals of +- score * scale, or +- half[i]; O(1) work per group."""
    personal, scale, lower, upper = (np.empty_like(raw) for _ in range(4))
    weight = np.empty(len(raw))
    empty = bool((bins.place == bins.num_bins).any())
    coordinates = [
        (
            linear(bins, law, rule.offset[..., column]),
            linear(bins, law, spread.linear[..., column]),
            quadratic(bins, law, spread.form[..., column]),
        )
        for column in range(bins.dimension)
    ]
    for start in range(0, len(raw), _CHUNK):
        rows = slice(start, start + _CHUNK)
        place = bins.place[rows]
        slope, square, own = rule.slope[place], spread.square[place], spread.own[place]
        weight[rows] = slope
        for column, (offset, slant, constant) in enumerate(coordinates):
            center = bins.center[column]
            y = raw[rows, column] - center
            if empty:
                y[place == bins.num_bins] = 0.0
            middle = slope * y + offset(rows) + center
            second = (square * y + slant(rows)) * y
            second += constant(rows) + own
            deviation = np.sqrt(np.maximum(second, 0.0))
            width = score * deviation if half is None else half[rows]
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


def mixture_of(bins: Bins, law: MeanLaw, nodes: PopulationNodes, raw: np.ndarray) -> StudentMixture:
    """The posterior of theta of each group; for few groups, since memory is nodes x groups."""
    y = np.where((bins.place == bins.num_bins)[:, None], 0.0, raw - bins.center)
    x = rows_of(bins, law)
    shrinkage = nodes.shrinkage[:, bins.place]
    pulled = shrinkage[:, :, None]
    error = np.einsum("ip,gpq,iq->gi", x, nodes.covariance, x, optimize=True)
    location = bins.center + (1 - pulled) * y + pulled * (x @ nodes.coefficients)
    scale = np.sqrt(nodes.own[:, bins.place] + shrinkage**2 * error)[:, :, None]
    return StudentMixture(
        probability=nodes.probability,
        location=location,
        scale=np.broadcast_to(scale, location.shape),
        freedom=nodes.freedom,
    )
