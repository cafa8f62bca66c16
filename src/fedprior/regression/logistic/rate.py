"""The Poisson likelihood of a count averaged over a Gaussian log rate, by quadrature."""

from functools import cache

import numpy as np
from scipy import special

from fedprior.regression.logistic.sigmoid import Tilt

_NODES = 21  # error of the logarithm below 1e-6 for variances up to 4, 1e-4 up to 25
_MOST = 300.0  # log rates above are not distinguished: exp(300) has room for squares and sums


def expected(a: np.ndarray) -> np.ndarray:
    """exp(a), without overflow."""
    return np.exp(np.minimum(a, _MOST))


def tilted(a: np.ndarray, variance: np.ndarray, y: np.ndarray) -> Tilt:
    """Log E exp(y b - exp(b)), b ~ N(a, v), its first derivative by a, and minus its second.

    Gauss-Hermite nodes about the mode b of y b - exp(b) - (b - a)^2 / (2 v), which is
    b = a + v y - u with u exp(u) = v exp(a + v y), scaled by its curvature. With r = exp(b) the
    derivatives are E (y - r) and E r - Var r under the tilted law; where its variance is far below
    v these are differences of large numbers, and the mean and the variance of b give them.
    """
    u = special.wrightomega(np.log(variance) + a + variance * y)
    mode = np.minimum(a + variance * y - u, _MOST)
    scale = np.sqrt(variance / (1 + u))
    top = np.exp(mode)
    total, first, second, rate_first, rate_second = (np.zeros_like(top) for _ in range(5))
    for node, log_weight in zip(*_rule(), strict=True):
        step = scale * node
        grown = np.expm1(step)
        share = np.exp(log_weight - top * (grown - step - step**2 / 2))
        total += share
        first += share * node
        second += share * node**2
        rate_first += share * grown
        rate_second += share * grown**2
    middle, growth = first / total, rate_first / total
    spread = second / total - middle**2
    rate_spread = rate_second / total - growth**2
    pull = (y - top) + scale * middle / variance
    weight = (1 - spread / (1 + u)) / variance
    vague = u < 1
    pull = np.where(vague, y - top * (1 + growth), pull)
    weight = np.where(vague, top * (1 + growth) - top**2 * rate_spread, weight)
    height = y * mode - top - (mode - a) ** 2 / (2 * variance) - 0.5 * np.log1p(u)
    return Tilt(height + np.log(total), pull, np.maximum(weight, 0.0))


@cache
def _rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes for N(0, 1), and the log of their weights, which sum to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return nodes, np.log(weights / weights.sum())
