"""Noise for a budget and the budget of a noise: the Gaussian mechanism, exactly (ERRATA 7, 8)."""

import math

from fedprior.core import check

# dp-accounting finds its root to 1e-12: a scale so much larger is on the safe side of it.
_SAFE_SIDE = 1 + 1e-9


def gaussian_scale(epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """Standard deviation a coordinate of noise that makes `rounds` releases (epsilon, delta)-DP.

    The analytic Gaussian mechanism, valid for every epsilon: `sensitivity` is the largest l2
    distance between the messages of neighbors (2 * clip for replace-one and a ball of radius clip).
    k releases with noise of scale sqrt(k) are exactly as private as one with scale 1, so the
    composition is exact.
    """
    from dp_accounting import gaussian_mechanism

    _check("gaussian_scale", delta, sensitivity, rounds)
    check.positive("gaussian_scale", epsilon=epsilon)
    scale = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    return float(scale * _SAFE_SIDE * sensitivity * math.sqrt(rounds))


def gaussian_epsilon(scale: float, delta: float, *, sensitivity: float, rounds: int = 1) -> float:
    """The smallest epsilon with which `rounds` releases with noise of `scale` are DP at `delta`."""
    from dp_accounting import gaussian_mechanism

    _check("gaussian_epsilon", delta, sensitivity, rounds)
    check.positive("gaussian_epsilon", scale=scale)
    ratio = scale / (sensitivity * math.sqrt(rounds))
    return float(gaussian_mechanism.get_epsilon_gaussian(ratio, delta))


def paper_gaussian_scale(epsilon: float, delta: float, *, radius: float) -> float:
    """(radius / epsilon) sqrt(8 log(2 / delta)): the paper's noise, per coordinate (Thm 2.2).

    As printed it is meant for a message in the box [-radius, radius]^d and claims (epsilon, delta)
    for the whole of it; that holds in one dimension (epsilon up to about 9), not in general. The
    epsilon that it has is `paper_gaussian_epsilon` (ERRATA 7, 8).
    """
    _check("paper_gaussian_scale", delta, radius, 1)
    check.positive("paper_gaussian_scale", epsilon=epsilon)
    return radius / epsilon * math.sqrt(8 * math.log(2 / delta))


def paper_gaussian_epsilon(epsilon: float, delta: float, *, dimension: int) -> float:
    """The true epsilon of the paper's noise where it claims `epsilon`, for a d-dimensional box.

    Two messages in the box are up to 2 * radius * sqrt(d) apart.

    >>> round(paper_gaussian_epsilon(0.5, 1e-4, dimension=1), 3)
    0.315
    >>> round(paper_gaussian_epsilon(0.5, 1e-4, dimension=100), 2)
    4.37
    """
    check.count("paper_gaussian_epsilon", dimension=dimension)
    scale = paper_gaussian_scale(epsilon, delta, radius=1.0)
    return gaussian_epsilon(scale, delta, sensitivity=2 * math.sqrt(dimension))


def _check(owner: str, delta: float, sensitivity: float, rounds: int) -> None:
    check.share(owner, delta=delta)
    remedy = "Gaussian noise has no pure epsilon; a randomized response has (OneBit)."
    check.require(delta > 0, owner, "delta", "above 0", delta, remedy)
    check.positive(owner, sensitivity=sensitivity)
    check.count(owner, rounds=rounds)
