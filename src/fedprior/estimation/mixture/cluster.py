"""Starts for a mixture: k-means++ seeds, and Lloyd's k-means as the paper's server (Alg 1)."""

from collections.abc import Callable

import numpy as np

from fedprior.core import random
from fedprior.estimation.mixture.em import DiscreteMixture, MixtureFit, fit_discrete

# (points (groups, d), num_components, seed) -> centers (num_components, d), probabilities
Cluster = Callable[[np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]

_NUM_STARTS = 8
_START_ROUNDS = 10
_START_GROUPS = 5000  # enough to rank the starts; the winner then sees every group


def seeds(
    points: np.ndarray, weight: np.ndarray, num_components: int, draws: np.random.Generator
) -> np.ndarray:
    """Centers by k-means++: the next is drawn by weight * (distance to the nearest so far)^2.

    `weight` is the precision of a point, so that a center is drawn for being far away in standard
    errors and not for being noisy.
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


def lloyd(points: np.ndarray, num_components: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Centers and shares by k-means: the least sum of squared distances from 4 starts."""
    found = []
    for number in range(4):
        draws = random.stream(seed, "init", number)
        start = seeds(points, np.ones(len(points)), num_components, draws)
        found.append(_lloyd_steps(points, start))
    centers, nearest, _ = min(found, key=lambda each: each[2])
    return centers, np.bincount(nearest, minlength=num_components) / len(points)


def _lloyd_steps(points: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    nearest = np.full(len(points), -1)
    for _ in range(100):
        squares = np.stack([((points - center) ** 2).sum(axis=1) for center in centers], axis=1)
        moved = squares.argmin(axis=1)
        if (moved == nearest).all():
            break
        nearest = moved
        size = np.bincount(nearest, minlength=len(centers))
        sums = [np.bincount(nearest, column, minlength=len(centers)) for column in points.T]
        some = size > 0  # an empty cluster keeps its center
        centers = np.where(
            some[:, None], np.stack(sums, axis=1) / np.maximum(size, 1)[:, None], centers
        )
    return centers, nearest, float(squares.min(axis=1).sum())


def best_start(
    mean: np.ndarray, variance: np.ndarray, num_components: int, seed: int
) -> DiscreteMixture:
    """The best of 8 k-means++ starts after 10 rounds of EM each, on at most 5,000 groups."""
    if len(mean) > _START_GROUPS:
        some = random.stream(seed, "split").choice(len(mean), _START_GROUPS, replace=False)
        mean, variance = mean[some], variance[some]
    found: list[MixtureFit] = []
    for number in range(_NUM_STARTS):
        draws = random.stream(seed, "init", number)
        centers = seeds(mean, 1 / variance, num_components, draws)
        start = DiscreteMixture(centers, np.full(num_components, 1 / num_components))
        found.append(fit_discrete(mean, variance, start, most_rounds=_START_ROUNDS))
    return max(found, key=lambda each: each.log_likelihood).mixture
