"""Clustering by a server that sees every point (the paper's Algorithms 1, 4 and 7)."""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedprior.core import check

# (points (m, q), num_components) -> probabilities (k,), centers (k, q), scales (k,)
Cluster = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray, np.ndarray]]


class Clusters(NamedTuple):
    """P, mu and sigma of the paper; `scales` are root mean squared distances per coordinate."""

    probabilities: np.ndarray
    centers: np.ndarray
    scales: np.ndarray


def k_means(points: np.ndarray, num_components: int, *, seed: int = 0) -> Clusters:
    """Shares, means and scales of scikit-learn's k-means clusters, the best of four starts.

    Trusts: the server, with every point. A differentially private clustering function has to return
    scales of its own, since those of the true clusters reveal their members.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # With fewer distinct points than clusters, some clusters are empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(num_components, n_init=4, random_state=seed).fit(points)
    labels, centers = fitted.labels_, fitted.cluster_centers_
    counts = np.bincount(labels, minlength=num_components)
    squares = ((points - centers[labels]) ** 2).mean(axis=1)
    within = np.bincount(labels, squares, minlength=num_components)
    return Clusters(counts / len(points), centers, np.sqrt(within / np.maximum(counts, 1)))


def cluster_points(cluster: Cluster, points: np.ndarray, num_components: int) -> Clusters:
    """Call a clustering function and check what it returns."""
    owner = "cluster"
    results = cluster(points, num_components)
    rule = "a function with three results: probabilities, centers, scales"
    check.require(len(results) == 3, owner, "cluster", rule, len(results))
    share, centers, scales = (np.asarray(result, np.float64) for result in results)
    shape = (num_components, points.shape[1])
    valid = centers.shape == shape and bool(np.isfinite(centers).all())
    check.require(valid, owner, "centers", f"finite and of shape {shape}", centers.shape)
    valid = share.shape == shape[:1] and bool((share >= 0).all()) and float(share.sum()) > 0
    rule = f"{num_components} numbers of at least 0, not all of them 0"
    check.require(valid, owner, "probabilities", rule, share.tolist())
    valid = scales.shape == shape[:1] and bool((scales >= 0).all() and np.isfinite(scales).all())
    rule = f"{num_components} finite numbers of at least 0"
    check.require(valid, owner, "scales", rule, scales.tolist())
    return Clusters(share / share.sum(), centers, scales)
