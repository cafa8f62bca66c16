"""The logistic function averaged over a Gaussian, to seven digits, for any variance."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special

_NODES = 10  # error of the function below 1.5e-7; of its logarithm below 1e-3 down to exp(-30)
_SMALLEST = 1e-200  # below this average its limit is used: log = a + v / 2
_ROOT = np.sqrt(2 * np.pi)


class Averaged(NamedTuple):
    """value = E s(a + sqrt(v) t), t ~ N(0, 1), s(a) = 1 / (1 + exp(-a)); slope, bend by a."""

    value: np.ndarray
    slope: np.ndarray
    bend: np.ndarray


class Tilt(NamedTuple):
    """log E s(a + sqrt(v) t), its first derivative by a, and minus its second."""

    log: np.ndarray
    pull: np.ndarray
    weight: np.ndarray


def averaged(a: np.ndarray, variance: np.ndarray) -> Averaged:
    """s(a) = sum_k share_k Phi(a / width_k), so that averaging over N(0, v) adds v to width^2."""
    value, slope, bend = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    for share, width in zip(*_scales(), strict=True):
        root = np.sqrt(width**2 + variance)
        ratio = a / root
        density = (share / _ROOT) * np.exp(-0.5 * ratio**2) / root
        value += share * special.ndtr(ratio)
        slope += density
        bend -= density * ratio / root
    return Averaged(value, slope, bend)


def averaged_softplus(a: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E log(1 + exp(a + sqrt(v) t)): the integral of `averaged` from -infinity to a."""
    total = np.zeros_like(a)
    for share, width in zip(*_scales(), strict=True):
        root = np.sqrt(width**2 + variance)
        ratio = a / root
        total += share * (a * special.ndtr(ratio) + root * np.exp(-0.5 * ratio**2) / _ROOT)
    return total


def tilted(a: np.ndarray, variance: np.ndarray) -> Tilt:
    """Log E s(a + sqrt(v) t) and its derivatives; the log is concave, its slope in [0, 1]."""
    value, slope, bend = averaged(a, variance)
    seen = value > _SMALLEST
    safe = np.where(seen, value, 1.0)
    pull = np.where(seen, np.minimum(slope / safe, 1.0), 1.0)
    weight = np.where(seen, np.maximum(pull**2 - bend / safe, 0.0), 0.0)
    return Tilt(np.where(seen, np.log(safe), a + variance / 2), pull, weight)


@cache
def _scales() -> tuple[np.ndarray, np.ndarray]:
    """Shares and widths: a logistic variable is 2 K times a normal one.

    K has the limiting distribution of the Kolmogorov-Smirnov statistic (Andrews and Mallows 1974).
    This is the Gauss rule of its density, by Stieltjes' recurrence on a fine grid.
    """
    grid = np.linspace(0.12, 5.0, 4000)  # outside, the density is below 1e-20
    mass = _kolmogorov_density(grid)
    mass /= mass.sum()
    middle, off = np.empty(_NODES), np.empty(_NODES)
    before, now, link = np.zeros_like(grid), np.ones_like(grid), 0.0
    for place in range(_NODES):
        middle[place] = mass @ (grid * now**2)
        after = (grid - middle[place]) * now - link * before
        link = off[place] = np.sqrt(mass @ after**2)
        before, now = now, after / link
    jacobi = np.diag(middle) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1)
    nodes, vectors = np.linalg.eigh(jacobi)
    return vectors[0] ** 2, 2 * nodes


def _kolmogorov_density(k: np.ndarray) -> np.ndarray:
    """Derivative of P(K <= k); one of two series converges fast on either side of 0.9."""
    n = np.arange(1, 21)[:, None]
    sign = np.where(n % 2 == 1, 1.0, -1.0)
    upper = 8 * k * (sign * n**2 * np.exp(-2 * n**2 * k**2)).sum(axis=0)
    odd = ((2 * n - 1) * np.pi) ** 2
    terms = np.exp(-odd / (8 * k**2)) * (odd / (4 * k**4) - 1 / k**2)
    lower = _ROOT * terms.sum(axis=0)
    return np.where(k > 0.9, upper, lower)
