"""The posterior of a population given private reports, on a grid, and safe weights under it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_NODES = 41  # along each axis: a normal posterior over 12 scales is then summed to 1e-9
_REACH = 20.0  # log-likelihoods further below the largest do not count: e^-20 = 2e-9
# Of the upper bound on the risk. By simulation (m = 300 groups of 14, epsilon 0.5 to 4, five
# populations): at 0.99 the 1st percentile of the gain falls to -4.9%, at 0.995 to -1.2%, at 0.998
# it stays above 0; at m = 10,000 the level changes nothing.
_LEVEL = 0.998
_MIDDLES = (np.arange(_NODES) + 0.5) / _NODES
TOO_LITTLE = (
    "At this budget and number of groups, the reports do not show that sharing helps, so every "
    "group keeps its raw value (fallback to local). If the standard errors of the population are "
    "large, it is mostly the flat prior, not a finding."
)


class ReportPosterior(NamedTuple):
    """Nodes: their probability, `spread` = E (theta - center)^2, `noise` = variance of one value.

    `center` is what estimates shrink to; the spread about it holds the heterogeneity and the error
    of the center. One value of a group has variance `noise`, so its mean has noise / n.
    """

    probability: np.ndarray
    spread: np.ndarray
    noise: np.ndarray

    def mean(self, values: np.ndarray) -> float:
        return float(self.probability @ values)

    def scale(self, values: np.ndarray) -> float:
        return float(np.sqrt(max(self.mean(values**2) - self.mean(values) ** 2, 0.0)))


class Weighing(NamedTuple):
    """Weights of the groups' own data, and the expected mean squared errors."""

    own: np.ndarray
    risk: np.ndarray  # of the estimate with weight `own`
    doubt: np.ndarray  # the posterior's standard deviation of the risk
    local: np.ndarray  # of the group's own mean
    spread: float  # of the center taken for every group
    note: str | None
    fell_back: bool = False  # every group keeps its raw value
    gains: tuple[float, float] | None = None  # bounds over raw and over pooled, in percent

    def fallen_back(self, there: np.ndarray, note: str) -> "Weighing":
        """Every group with data, where `there`, keeps its raw value; the note says why."""
        own, risk = np.where(there, 1.0, 0.0), np.where(there, self.local, self.risk)
        return self._replace(own=own, risk=risk, note=note, fell_back=True)


def on_square(
    log_likelihood: Callable[[np.ndarray, np.ndarray], np.ndarray], low: float, high: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, share, log-likelihood) at nodes of [low, high] x [0, 1] that hold the posterior.

    Nodes are midpoints of equal cells; both sides are cut to where the likelihood is, until that is
    most of the rectangle.
    """
    sides = [(low, high), (0.0, 1.0)]
    for _ in range(20):
        mean, share = (left + (right - left) * _MIDDLES for left, right in sides)
        values = log_likelihood(mean[:, None], share[None, :])
        near = values > values.max() - _REACH
        cut = [_cut(side, near.any(axis=1 - axis)) for axis, side in enumerate(sides)]
        if all(b - a >= 0.7 * (d - c) for (a, b), (c, d) in zip(cut, sides, strict=True)):
            break
        sides = cut
    shape = values.shape
    return np.broadcast_to(mean[:, None], shape), np.broadcast_to(share, shape), values


def _cut(side: tuple[float, float], near: np.ndarray) -> tuple[float, float]:
    """The cells that matter and two more at each end: the best may lie beside a narrow ridge."""
    left, right = side
    cell = (right - left) / _NODES
    inside = np.flatnonzero(near)
    first, last = max(inside[0] - 2, 0), min(inside[-1] + 3, _NODES)
    return left + cell * first, left + cell * last


def normalized(log_density: np.ndarray) -> np.ndarray:
    """Probabilities of equal cells, flat."""
    density = np.exp(log_density - log_density.max()).ravel()
    return density / density.sum()


def truncated_normal(value: float, scale: float, low: float, high: float) -> tuple[float, float]:
    """Mean and standard deviation of N(value, scale^2) given that it lies in [low, high]."""
    near, scale = min(max(value, low), high), max(scale, 1e-12)
    points = np.linspace(max(low, near - 8 * scale), min(high, near + 8 * scale), 801)
    probability = normalized(-(((points - value) / scale) ** 2) / 2)
    mean = float(probability @ points)
    return mean, float(np.sqrt(probability @ (points - mean) ** 2))


def weigh(posterior: ReportPosterior, n: np.ndarray, *, distrust: str | None = None) -> Weighing:
    """Own weight E spread / (E spread + E noise / n), or more where that could do harm (ERRATA D3).

    The risk a^2 noise / n + (1 - a)^2 spread is below the group's own noise / n where
    a >= (x - 1) / (x + 1), x = n spread / noise: the guard raises a to where this bound is passed
    with probability 0.2% at most, under the posterior. A population that the reports hardly tell
    has x up to infinity, hence a = 1: the group keeps its own mean. Where the guard leaves less
    than 1% of expected gain in all, every group does. It does not ask whether the heterogeneity is
    above zero: groups that are all alike gain the most. `distrust`, a reason why the population is
    not to be used at all, has every group keep its own mean too, and is the note.
    """
    sizes, place = np.unique(n, return_inverse=True)
    spread, noise = posterior.mean(posterior.spread), posterior.mean(posterior.noise)
    ratio = _quantile(posterior.spread / posterior.noise, posterior.probability, _LEVEL) * sizes
    safe = (ratio - 1) / (ratio + 1)
    local = noise / np.maximum(sizes, 1)
    best = np.where(sizes > 0, spread / (spread + local), 0.0)
    own = np.where(sizes > 0, np.maximum(best, safe), 0.0)
    risk = own**2 * local + (1 - own) ** 2 * spread
    there = n > 0
    gain = 1 - risk[place[there]].sum() / local[place[there]].sum()
    raised = bool((own > best * (1 + 1e-9)).any())
    note, fell_back = distrust, distrust is not None or (raised and gain < 0.01)
    if fell_back:
        own, risk = np.where(sizes > 0, 1.0, 0.0), np.where(sizes > 0, local, spread)
        note = distrust or TOO_LITTLE
    elif raised:
        note = (
            "The reports leave the population uncertain: groups keep more weight on their own data "
            f"({_typical(own, place, there)} instead of {_typical(best, place, there)}), so that "
            "an upper bound on the error stays below that of the raw values."
        )
    doubt = _doubt(posterior, own, sizes)
    parts = (own[place], risk[place], doubt[place], local[place])
    return Weighing(*parts, spread, note, fell_back)


def _doubt(posterior: ReportPosterior, own: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Standard deviation of own^2 noise / n + (1 - own)^2 spread, a linear form of the nodes."""
    both = np.stack([posterior.noise, posterior.spread])
    away = both - (both @ posterior.probability)[:, None]
    covariance = (away * posterior.probability) @ away.T
    form = np.stack([own**2 / np.maximum(sizes, 1), (1 - own) ** 2], axis=1)
    return np.sqrt(np.einsum("gi,ij,gj->g", form, covariance, form))


def _typical(weight: np.ndarray, place: np.ndarray, there: np.ndarray) -> str:
    return f"{100 * np.median(weight[place[there]]):.0f}%"


def _quantile(values: np.ndarray, probability: np.ndarray, level: float) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(probability[order]), level)])
