"""Starting points for EM of a mixture: k-means++ draws, ranked after a few rounds."""

import numpy as np

from fedprior.core import random
from fedprior.estimation.mixture.em import DiscreteMixture, fit_discrete

_NUM_STARTS = 8
_START_ROUNDS = 10
_START_GROUPS = 5000  # enough to rank the starts; the winner then sees every group


def seeds(
    points: np.ndarray, weight: np.ndarray, num_components: int, draws: np.random.Generator
) -> np.ndarray:
    """Centers by k-means++: the next is drawn by weight * (distance to the nearest so far)^2.

    `weight` is the precision of each point, so that a center is chosen for being many standard
    errors away and not for being noisy.
    """
    chosen = [int(draws.choice(len(points), p=weight / weight.sum()))]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < num_components:
        nearest = np.minimum(nearest, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        chance = weight * nearest
        if chance.sum() <= 0:  # fewer distinct points than components
            chance = np.ones(len(points))
        chosen.append(int(draws.choice(len(points), p=chance / chance.sum())))
    return points[chosen]


def best_start(
    mean: np.ndarray, variance: np.ndarray, num_components: int, seed: int
) -> DiscreteMixture:
    """The best of 8 k-means++ starts after 10 rounds of EM each, on at most 5,000 groups."""
    if len(mean) > _START_GROUPS:
        sample = random.stream(seed, "split").choice(len(mean), _START_GROUPS, replace=False)
        mean, variance = mean[sample], variance[sample]
    fits = []
    for number in range(_NUM_STARTS):
        draws = random.stream(seed, "init", number)
        centers = seeds(mean, 1 / variance, num_components, draws)
        start = DiscreteMixture(centers, np.full(num_components, 1 / num_components))
        fits.append(fit_discrete(mean, variance, start, most_rounds=_START_ROUNDS))
    return max(fits, key=lambda fit: fit.log_likelihood).mixture
