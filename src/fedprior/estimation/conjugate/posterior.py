"""The posterior of each pair's rate given a grid of populations: moments, quantiles, tails."""

from typing import NamedTuple

import numpy as np

from fedprior.estimation import intervals
from fedprior.estimation.conjugate.grid import BetaGrid

_EDGE = 1e-12  # rates closer than this to 0 or 1 are treated as 0 or 1
_NARROW = 0.1  # below this deviation of log M one Beta replaces the mixture: levels err by 5e-4
_EXACT_CELLS = 10_000  # pairs x nodes; beyond, exact quantiles would cost more than the fit
_CHUNK = 1 << 16  # pairs at a time


class RateMoments(NamedTuple):
    """Mean and variance of the rate and the weight of the group's own data, one row per pair."""

    mean: np.ndarray
    variance: np.ndarray
    weight: np.ndarray


def moments(grid: BetaGrid, n: np.ndarray, successes: np.ndarray) -> RateMoments:
    """Posterior mean (z + mu M) / (n + M), averaged over the grid; the variance adds its spread."""
    mean, square, weight = (np.zeros(len(n)) for _ in range(3))
    for node, share in enumerate(grid.weight):  # a table of pairs x nodes may not fit in memory
        center, variance, own = moments_at(grid, node, n, successes)
        mean += share * center
        square += share * (variance + center**2)
        weight += share * own
    return RateMoments(mean, np.maximum(square - mean**2, 0.0), weight)


def moments_at(grid: BetaGrid, node: int, n: np.ndarray, successes: np.ndarray) -> RateMoments:
    """Mean, variance and weight at one concentration, including the uncertainty of the mean."""
    size = grid.concentration[node]
    weight = n / (n + size)
    center = (successes + grid.mean[node] * size) / (n + size)
    moved = (1 - weight) ** 2 * grid.mean_variance[node]
    inner = np.maximum(center * (1 - center) - moved, 0.0) / (n + size + 1)
    return RateMoments(center, inner + moved, weight)


def matched(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(alpha, beta) of the Beta with this mean and variance (clipped if no Beta has them)."""
    spread = mean * (1 - mean)
    size = np.clip(spread / np.maximum(variance, 1e-300) - 1, 1e-6, 1e15)
    return np.maximum(mean * size, 1e-290), np.maximum((1 - mean) * size, 1e-290)


def quantile(mean: np.ndarray, variance: np.ndarray, level: float) -> np.ndarray:
    """The quantile of the Beta with this mean and variance."""
    from scipy.special import betaincinv

    return betaincinv(*matched(mean, variance), level)


def is_narrow(grid: BetaGrid) -> bool:
    """Whether the concentration is known so precisely that one Beta replaces the mixture."""
    logs = np.log(grid.concentration)
    center = grid.weight @ logs
    return bool(grid.weight @ (logs - center) ** 2 < _NARROW**2)


def rate_interval(
    grid: BetaGrid, n: np.ndarray, successes: np.ndarray, *, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed posterior intervals of the rate: quantiles of a mixture of Betas.

    For few pairs they are computed exactly. For many pairs they are quantiles of the Beta with the
    same two moments, whose distance from the mean is stretched by the factor that a mixture of
    normals with the nodes' moments has (levels err by less than 0.001). If all trials failed and
    the density is highest at 0, the lower bound is 0, as usual for Jeffreys' interval; likewise the
    upper bound is 1 if all trials succeeded.
    """
    about = moments(grid, n, successes)
    bounds = []
    exact = len(n) * len(grid.weight) <= _EXACT_CELLS
    for tail in ((1 - level) / 2, (1 + level) / 2):
        start = quantile(about.mean, about.variance, tail)
        if is_narrow(grid):
            bounds.append(start)
        elif exact:
            bounds.append(beta_mixture_quantile(beta_mixture(grid, n, successes), start, tail))
        else:
            stretch = _stretch(grid, n, successes, about, tail)
            bounds.append(np.clip(about.mean + (start - about.mean) * stretch, 0.0, 1.0))
    alpha, beta = matched(about.mean, about.variance)
    lower = np.where((successes == 0) & (alpha <= 1), 0.0, bounds[0])
    return lower, np.where((successes == n) & (beta <= 1), 1.0, bounds[1])


def _stretch(
    grid: BetaGrid, n: np.ndarray, successes: np.ndarray, about: RateMoments, tail: float
) -> np.ndarray:
    """The quantile of a normal mixture with the nodes' moments, relative to that of one normal."""
    from scipy.special import ndtri

    distance = np.empty(len(n))
    for start in range(0, len(n), _CHUNK):
        rows = slice(start, start + _CHUNK)
        scale = np.sqrt(np.maximum(about.variance[rows], 1e-300))
        nodes = [
            moments_at(grid, node, n[rows], successes[rows]) for node in range(len(grid.weight))
        ]
        location = np.stack([(each.mean - about.mean[rows]) / scale for each in nodes])
        width = np.stack([np.sqrt(each.variance) / scale for each in nodes])
        width = np.maximum(width, 1e-9)
        distance[rows] = intervals.mixture_quantile(tail, grid.weight, location, width)
    return distance / ndtri(tail)


def above(grid: BetaGrid, n: np.ndarray, successes: np.ndarray, *, threshold: float) -> np.ndarray:
    """P(p > threshold) under the mixture of Betas."""
    from scipy.special import betainc

    if is_narrow(grid):
        about = moments(grid, n, successes)
        return 1 - betainc(*matched(about.mean, about.variance), threshold)
    below = np.zeros(len(n))
    for node, share in enumerate(grid.weight):
        if share > 1e-9:
            part = moments_at(grid, node, n, successes)
            below += share * betainc(*matched(part.mean, part.variance), threshold)
    return np.clip(1 - below, 0.0, 1.0)


class BetaMixture(NamedTuple):
    """A mixture of Betas for each pair: alpha and beta (pairs, nodes), weight (nodes,)."""

    alpha: np.ndarray
    beta: np.ndarray
    weight: np.ndarray

    def below(self, rate: np.ndarray) -> np.ndarray:
        """P(p <= rate) for one rate per pair."""
        from scipy.special import betainc

        return betainc(self.alpha, self.beta, rate[:, None]) @ self.weight

    def density(self, rate: np.ndarray) -> np.ndarray:
        from scipy.special import betaln

        rate = rate[:, None]
        log = (self.alpha - 1) * np.log(rate) + (self.beta - 1) * np.log1p(-rate)
        return np.exp(log - betaln(self.alpha, self.beta)) @ self.weight

    def rows(self, chosen: np.ndarray) -> "BetaMixture":
        return BetaMixture(self.alpha[chosen], self.beta[chosen], self.weight)


def beta_mixture(grid: BetaGrid, n: np.ndarray, successes: np.ndarray) -> BetaMixture:
    """The Beta with the posterior's first two moments given each concentration."""
    kept = [node for node, share in enumerate(grid.weight) if share > 1e-7]
    shapes = [matched(*moments_at(grid, node, n, successes)[:2]) for node in kept]
    alpha, beta = (np.stack(each, axis=1) for each in zip(*shapes, strict=True))
    return BetaMixture(alpha, beta, grid.weight[kept] / grid.weight[kept].sum())


def beta_mixture_quantile(posterior: BetaMixture, start: np.ndarray, level: float) -> np.ndarray:
    """The quantile of the mixture at `level`.

    Newton's method on the normal score of the cdf as a function of the logit of the rate, where it
    is nearly linear; a step that leaves the bracket is replaced by bisection.
    """
    from scipy.special import expit, logit, ndtri

    target, edge = ndtri(level), logit(_EDGE)
    place = np.clip(logit(np.clip(start, _EDGE, 1 - _EDGE)), edge + 2, -edge - 2)
    low, high = np.full(len(start), edge), np.full(len(start), -edge)
    active = np.arange(len(start))
    for _ in range(50):
        part, rate = posterior.rows(active), expit(place[active])
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
        slope = part.density(rate) * rate * (1 - rate) * np.sqrt(2 * np.pi) * np.exp(total**2 / 2)
        trial = at - score / np.maximum(slope, 1e-12)
        inside = (trial > low[active]) & (trial < high[active])
        place[active] = np.where(inside, trial, (low[active] + high[active]) / 2)
    return expit(place)
