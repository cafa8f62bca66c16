"""Ranks of the groups' true values, with their posterior uncertainty."""

import numpy as np

from fedprior.core import check, random
from fedprior.estimation.result import Ranks

_FEW = 2000  # up to so many groups are ranked draw by draw, more through their mixture
_DRAWS = 1000
_MANY_DRAWS = 200_000  # from the mixture of all groups


def rank(
    mean: np.ndarray,
    scale: np.ndarray,
    *,
    level: float = 0.95,
    seed: int = 0,
    count: np.ndarray | None = None,
) -> Ranks:
    """Rank_i = 1 + #{j: theta_j > theta_i} under independent theta_j ~ N(mean_j, scale_j^2).

    Up to 2,000 groups, 1,000 keyed joint draws are ranked. With more groups, theta_i is ranked
    against the mixture of all groups, whose own fluctuation of O(sqrt(m)) ranks is ignored. With
    `count`, an entry stands for so many groups and has the ranks of the first of them.

    >>> found = rank(np.array([0.0, 5.0]), np.array([0.1, 0.1]))
    >>> found.mean.tolist()
    [2.0, 1.0]
    """
    mean, scale = np.asarray(mean, np.float64), np.asarray(scale, np.float64)
    check.require(mean.ndim == 1, "rank", "mean", "one number per group", mean.shape)
    if count is not None:
        all_groups = (np.repeat(each, count) for each in (mean, scale))
        found, first = rank(*all_groups, level=level, seed=seed), np.cumsum(count) - count
        return Ranks(mean=found.mean[first], lower=found.lower[first], upper=found.upper[first])
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    draws = random.stream(seed, "personalize")
    if len(mean) <= _FEW:
        theta = mean + scale * draws.standard_normal((_DRAWS, len(mean)))
        order = np.argsort(-theta, axis=1, kind="stable")
        places = np.empty_like(order)
        np.put_along_axis(places, order, np.arange(1, len(mean) + 1)[None, :], axis=1)
        lower, upper = np.quantile(places, tails, axis=0, method="inverted_cdf")
        return Ranks(mean=places.mean(axis=0), lower=lower, upper=upper)
    return _rank_many(mean, scale, tails, draws)


def _rank_many(
    mean: np.ndarray, scale: np.ndarray, tails: np.ndarray, draws: np.random.Generator
) -> Ranks:
    from scipy.special import ndtri

    chosen = draws.integers(0, len(mean), _MANY_DRAWS)
    law = np.sort(mean[chosen] + scale[chosen] * draws.standard_normal(_MANY_DRAWS))

    def place(theta: np.ndarray) -> np.ndarray:
        larger = 1 - np.searchsorted(law, theta) / len(law)
        return 1 + larger * (len(mean) - 1)

    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    average = sum(
        weight * place(mean + scale * node) for node, weight in zip(nodes, weights, strict=True)
    ) / np.sqrt(2 * np.pi)
    low, high = (mean + scale * ndtri(tail) for tail in tails)
    return Ranks(mean=np.asarray(average), lower=np.floor(place(high)), upper=np.ceil(place(low)))
