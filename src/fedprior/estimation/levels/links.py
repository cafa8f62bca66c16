"""From the scale of the linear predictor to means, rates, and rates of events."""

from typing import NamedTuple

import numpy as np
from scipy import special

_NARROW, _WIDE = (special.roots_hermitenorm(points) for points in (7, 21))
_MOST = 4.0  # variance of a logarithm: the mean of a wider log-normal is its tail's


class Moments(NamedTuple):
    """Mean and variance."""

    mean: np.ndarray
    variance: np.ndarray


def moments(family: str, location: np.ndarray, variance: np.ndarray) -> Moments:
    """Mean and variance of the inverse link of N(location, variance).

    For events, variances of a logarithm count up to 4.
    """
    if family == "gaussian":
        return Moments(location, variance)
    if family == "poisson":
        variance = np.minimum(variance, _MOST)
        mean = np.exp(location + variance / 2)
        return Moments(mean, mean**2 * np.expm1(variance))
    scale = np.sqrt(variance)
    first, second = np.zeros(location.shape), np.zeros(location.shape)
    nodes, weights = _WIDE if scale.max(initial=0.0) > 1 else _NARROW
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        rate = special.expit(location + node * scale)
        first += weight * rate
        second += weight * rate**2
    return Moments(first, np.maximum(second - first**2, 0.0))
