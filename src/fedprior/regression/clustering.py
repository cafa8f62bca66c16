"""The paper's server: it sees every theta_i and clusters them (Algorithms 4 and 7)."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedprior.core import check

# (points (m, q), num_components) -> probabilities (k,), centers (k, q), scales (k,)
Cluster = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Clusters(NamedTuple):
    """P, mu and sigma of the paper: `scales` are root mean squared distances a coordinate."""

    probabilities: np.ndarray
    centers: np.ndarray
    scales: np.ndarray


def k_means(points: np.ndarray, num_components: int, *, seed: int = 0) -> Clusters:
    """Shares, means and scales of the clusters of least squared distance, best of four starts.

    Trusts: the server, with every point. A clustering function that is differentially private has
    to give back its own scales: those of the true clusters tell of their members.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # points that have drawn together are fewer than the clusters; some are then empty
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(num_components, n_init=4, random_state=seed).fit(points)
    counts = np.bincount(found.labels_, minlength=num_components)
    squares = ((points - found.cluster_centers_[found.labels_]) ** 2).mean(axis=1)
    inside = np.bincount(found.labels_, squares, minlength=num_components)
    scales = np.sqrt(inside / np.maximum(counts, 1))
    return Clusters(counts / len(points), found.cluster_centers_, scales)


def clustered(cluster: Cluster, points: np.ndarray, num_components: int) -> Clusters:
    """What a clustering function found, checked."""
    owner = "cluster"
    found = cluster(points, num_components)
    rule = "a function with three results: probabilities, centers, scales"
    check.require(len(found) == 3, owner, "cluster", rule, len(found))
    share, centers, scales = (np.asarray(each, np.float64) for each in found)
    shape = (num_components, points.shape[1])
    fits = centers.shape == shape and bool(np.isfinite(centers).all())
    check.require(fits, owner, "centers", f"finite and of shape {shape}", centers.shape)
    fits = share.shape == shape[:1] and bool((share >= 0).all()) and float(share.sum()) > 0
    rule = f"{num_components} numbers of at least 0, not all of them 0"
    check.require(fits, owner, "probabilities", rule, share.tolist())
    fits = scales.shape == shape[:1] and bool((scales >= 0).all() and np.isfinite(scales).all())
    rule = f"{num_components} finite numbers of at least 0"
    check.require(fits, owner, "scales", rule, scales.tolist())
    return Clusters(share / share.sum(), centers, scales)
