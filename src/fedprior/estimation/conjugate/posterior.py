"""The posterior of each pair's rate given a grid of populations: moments, quantiles, tails."""

from typing import NamedTuple

import numpy as np

from fedprior.estimation import intervals
from fedprior.estimation.conjugate.grid import PopulationGrid
from fedprior.estimation.families.family import CountFamily, Shapes

_EDGE = 1e-12  # rates closer than this to their bounds are treated as equal to them
_NARROW = 0.1  # below this deviation of log M one member replaces the mixture: levels err by 5e-4
_EXACT_CELLS = 10_000  # pairs x nodes; beyond, exact quantiles would cost more than the fit
_CHUNK = 1 << 16  # pairs at a time


class RateMoments(NamedTuple):
    """Mean and variance of the rate and the weight of the group's own data, one row per pair."""

    mean: np.ndarray
    variance: np.ndarray
    weight: np.ndarray


def moments(grid: PopulationGrid, n: np.ndarray, successes: np.ndarray) -> RateMoments:
    """Posterior mean (z + mu M) / (n + M), averaged over the grid; the variance adds its spread."""
    mean, square, weight = (np.zeros(len(n)) for _ in range(3))
    for node, share in enumerate(grid.weight):  # a table of pairs x nodes may not fit in memory
        center, variance, own = moments_at(grid, node, n, successes)
        mean += share * center
        square += share * (variance + center**2)
        weight += share * own
    return RateMoments(mean, np.maximum(square - mean**2, 0.0), weight)


def moments_at(
    grid: PopulationGrid, node: int, n: np.ndarray, successes: np.ndarray
) -> RateMoments:
    """Mean, variance and weight at one concentration, including the uncertainty of the mean."""
    size, family = grid.concentration[node], grid.family
    weight = n / (n + size)
    center = (successes + grid.mean[node] * size) / (n + size)
    moved = (1 - weight) ** 2 * grid.mean_variance[node]
    inner = family.expected_variance(center, moved) / (n + size + family.excess)
    return RateMoments(center, inner + moved, weight)


def is_narrow(grid: PopulationGrid) -> bool:
    """Whether the concentration is known so well that one conjugate member replaces the mixture."""
    logs = np.log(grid.concentration)
    center = grid.weight @ logs
    return bool(np.all(grid.weight @ (logs - center) ** 2 < _NARROW**2))


def rate_interval(
    grid: PopulationGrid,
    n: np.ndarray,
    successes: np.ndarray,
    *,
    level: float,
    about: RateMoments | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed posterior intervals of the rate: quantiles of a mixture of Betas or Gammas.

    For few pairs they are computed exactly. For many pairs they are quantiles of the one Beta or
    Gamma with the same two moments, whose distance from the mean is stretched by the factor that a
    mixture of normals with the nodes' moments has (levels err by less than 0.001). If all trials
    failed and the density is highest at 0, the lower bound is 0, as usual for Jeffreys' interval;
    likewise the upper bound is 1 if all trials succeeded. `about` are the `moments`, if known.
    """
    family = grid.family
    about = moments(grid, n, successes) if about is None else about
    matched = family.matched(about.mean, about.variance)
    bounds = []
    exact = len(n) * len(grid.weight) <= _EXACT_CELLS
    for tail in ((1 - level) / 2, (1 + level) / 2):
        start = family.quantile(matched, tail)
        if is_narrow(grid):
            bounds.append(start)
        elif exact:
            bounds.append(mixture_quantile(mixture(grid, n, successes), start, tail))
        else:
            stretch = _stretch(grid, n, successes, about, tail)
            far = about.mean + (start - about.mean) * stretch
            bounds.append(np.clip(far, 0.0, family.top))
    lower = np.where((successes == 0) & (matched.first <= 1), 0.0, bounds[0])
    at_top = family.reaches_top(n, successes, matched)
    return lower, np.where(at_top, family.top, bounds[1])


def _stretch(
    grid: PopulationGrid, n: np.ndarray, successes: np.ndarray, about: RateMoments, tail: float
) -> np.ndarray:
    """The quantile of a normal mixture with the nodes' moments, relative to that of one normal."""
    from scipy.special import ndtri

    distance = np.empty(len(n))
    for start in range(0, len(n), _CHUNK):
        rows = slice(start, start + _CHUNK)
        scale = np.sqrt(np.maximum(about.variance[rows], 1e-300))
        part = grid.rows(rows)
        nodes = [
            moments_at(part, node, n[rows], successes[rows]) for node in range(len(grid.weight))
        ]
        location = np.stack([(each.mean - about.mean[rows]) / scale for each in nodes])
        width = np.stack([np.sqrt(each.variance) / scale for each in nodes])
        width = np.maximum(width, 1e-9)
        distance[rows] = intervals.mixture_quantile(tail, grid.weight, location, width)
    return distance / ndtri(tail)


def above(
    grid: PopulationGrid, n: np.ndarray, successes: np.ndarray, *, threshold: float
) -> np.ndarray:
    """P(p > threshold) under the mixture."""
    family = grid.family
    if is_narrow(grid):
        about = moments(grid, n, successes)
        return 1 - family.below(family.matched(about.mean, about.variance), threshold)
    below = np.zeros(len(n))
    for node, share in enumerate(grid.weight):
        if share > 1e-9:
            part = moments_at(grid, node, n, successes)
            below += share * family.below(family.matched(part.mean, part.variance), threshold)
    return np.clip(1 - below, 0.0, 1.0)


class Mixture(NamedTuple):
    """A mixture of conjugate members for each pair: shapes (pairs, nodes), weight (nodes,)."""

    family: CountFamily
    shapes: Shapes
    weight: np.ndarray

    def below(self, rate: np.ndarray) -> np.ndarray:
        """P(p <= rate) for one rate per pair."""
        return self.family.below(self.shapes, rate[:, None]) @ self.weight

    def density(self, rate: np.ndarray) -> np.ndarray:
        return np.exp(self.family.log_density(self.shapes, rate[:, None])) @ self.weight

    def rows(self, chosen: np.ndarray) -> "Mixture":
        return self._replace(shapes=Shapes(*(each[chosen] for each in self.shapes)))


def mixture(grid: PopulationGrid, n: np.ndarray, successes: np.ndarray) -> Mixture:
    """The member with the posterior's first two moments given each concentration."""
    kept = [node for node, share in enumerate(grid.weight) if share > 1e-7]
    nodes = [grid.family.matched(*moments_at(grid, node, n, successes)[:2]) for node in kept]
    shapes = Shapes(*(np.stack(each, axis=1) for each in zip(*nodes, strict=True)))
    return Mixture(grid.family, shapes, grid.weight[kept] / grid.weight[kept].sum())


def mixture_quantile(posterior: Mixture, start: np.ndarray, level: float) -> np.ndarray:
    """The quantile of the mixture at `level`.

    Newton's method on the normal score of the cdf as a function of the linked rate, where it is
    nearly linear; a step that leaves the bracket is replaced by bisection.
    """
    from scipy.special import ndtri

    family = posterior.family
    target, edge = ndtri(level), family.link(_EDGE)
    start = np.clip(start, _EDGE, family.top - _EDGE)
    place = np.clip(family.link(start), edge + 2, -edge - 2)
    low, high = np.full(len(start), edge), np.full(len(start), -edge)
    active = np.arange(len(start))
    for _ in range(50):
        part, rate = posterior.rows(active), family.unlink(place[active])
        total = ndtri(np.clip(part.below(rate), 1e-300, 1 - 1e-16))
        score = total - target
        beyond = np.where(score > 0, place[active] - edge, -edge - place[active]) < 1
        going = (np.abs(score) > 1e-5) & ~beyond
        active, part, rate = active[going], part.rows(going), rate[going]
        score, total = score[going], total[going]
        if not len(active):
            break
        at = place[active]
        low[active] = np.where(score < 0, at, low[active])
        high[active] = np.where(score > 0, at, high[active])
        slope = part.density(rate) * family.variance(rate)
        slope *= np.sqrt(2 * np.pi) * np.exp(total**2 / 2)
        trial = at - score / np.maximum(slope, 1e-12)
        inside = (trial > low[active]) & (trial < high[active])
        place[active] = np.where(inside, trial, (low[active] + high[active]) / 2)
    return family.unlink(place)
