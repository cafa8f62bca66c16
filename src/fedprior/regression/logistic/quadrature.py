"""Posterior moments and evidence by quadrature about a Gaussian approximation."""

from functools import cache
from typing import Any

import numpy as np
from scipy import special

from fedprior.regression.logistic.parts import ClassBlock, across, along
from fedprior.regression.logistic.posterior import LatentPosterior, Solve

_FREE_POINTS = 64  # in higher dimensions: 32 evenly distributed points and their mirror images
_EDGE = 1e-9  # the outermost point is 6 standard deviations from the center


def by_points(around: Solve) -> Solve:
    """The integral of p(y | z) N(z; 0, I) with points about the Gaussian that `around` computes.

    Up to three dimensions, a product of Gauss-Hermite rules; otherwise points of low discrepancy,
    shifted from group to group so that errors cancel in sums. The pull is exact given the weights.
    """

    def solve(
        part: ClassBlock, design: np.ndarray, offset: np.ndarray, memory: Any, sweeps: int
    ) -> tuple[LatentPosterior, Any]:
        guide, kept = around(part, design, offset, memory, sweeps)
        return _integrated(part, design, offset, guide), kept

    return solve


def _integrated(
    part: ClassBlock, design: np.ndarray, offset: np.ndarray, guide: LatentPosterior
) -> LatentPosterior:
    points, log_weights = _points(part, design.shape[-1])
    root = np.linalg.cholesky(guide.spread)
    z = guide.mean[:, None, :] + points @ root.transpose(0, 2, 1)  # (g, K, D)
    log_likelihood, probability = _at_points(part, design, offset, z)
    level = log_likelihood + log_weights
    level += 0.5 * ((points**2).sum(axis=-1) - (z**2).sum(axis=-1))
    top = level.max(axis=1, keepdims=True)
    share = np.exp(level - top)
    total = share.sum(axis=1, keepdims=True)
    share /= total
    expected = np.stack([(share[:, None, :] @ each)[:, 0] for each in probability], axis=-1)
    if design.shape[-1] in part.law.points_an_axis:
        mean, spread = _moments(z, share)
    else:
        mean, spread = _by_slopes(part, design, guide, z, share, probability)
    evidence = (top + np.log(total))[:, 0]
    evidence += np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    return LatentPosterior(mean, spread, evidence, part.y - expected, guide.weigh)


def _moments(points: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (g, D) and covariance (g, D, D) of weighted points."""
    mean = (share[:, None, :] @ points)[:, 0]
    away = points - mean[:, None, :]
    return mean, (away * share[..., None]).transpose(0, 2, 1) @ away


def _by_slopes(
    part: ClassBlock,
    design: np.ndarray,
    guide: LatentPosterior,
    z: np.ndarray,
    share: np.ndarray,
    probability: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """E z = m + S E r and Cov z = S + S (Cov r + E slope of r) S, of a guide N(m, S).

    r is the slope by z of log posterior - log guide (Stein's identity, applied twice). The error of
    the points thus affects only the difference between posterior and guide. Direct moments of the
    points would be inexact even without data, which would bias the slope for small variances.
    """
    curvature = across(design, guide.weigh(design))
    slope = (z - guide.mean[:, None, :]) @ curvature
    slope += (along(design, part.y) - guide.mean)[:, None, :]
    bend = curvature
    for own, chance in enumerate(probability):
        columns = design[:, :, own]
        slope -= chance @ columns
        for other, beside in enumerate(probability):
            joint = chance * ((own == other) - beside)
            weight = (share[:, None, :] @ joint)[:, 0, :, None]
            bend = bend - columns.transpose(0, 2, 1) @ (weight * design[:, :, other])
    middle, room = _moments(slope, share)
    mean = guide.mean + (guide.spread @ middle[..., None])[..., 0]
    spread = guide.spread + guide.spread @ (room + bend) @ guide.spread
    return mean, _plausible(spread, across(design, design))


def _plausible(spread: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Clip the spread to [inverse(I + squares / 2) / 2, I], as matrices.

    A row's curvature is at most 1 / 2, so no posterior is narrower than inverse(I + squares / 2)
    (Cramer and Rao), nor wider than its prior (Brascamp and Lieb). Half of the lower bound allows
    for the error of the points; values outside occur if the spread is too large for them.
    """
    root = np.linalg.cholesky(np.linalg.inv(2 * np.eye(squares.shape[-1]) + squares))
    inner = np.linalg.solve(root, np.linalg.solve(root, spread).transpose(0, 2, 1))
    values, vectors = np.linalg.eigh(inner)
    turn = root @ vectors
    wide = (turn * np.maximum(values, 1.0)[:, None, :]) @ turn.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(wide)
    return (vectors * np.minimum(values, 1.0)[:, None, :]) @ vectors.transpose(0, 2, 1)


def _at_points(
    part: ClassBlock, design: np.ndarray, offset: np.ndarray, z: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Log p(y | z) (g, K) and, class by class, the expected y (g, K, n)."""
    odds = [
        z @ design[:, :, own].transpose(0, 2, 1) + offset[:, None, :, own]
        for own in range(design.shape[2])
    ]
    normalizer, expected = part.law.at_points(odds)
    chosen = (z @ along(design, part.y)[..., None])[..., 0]
    chosen += (part.y * offset).sum(axis=(1, 2))[:, None]
    return chosen - normalizer, expected


def _points(part: ClassBlock, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (g or 1, K, D) for N(0, I), and the log of their weights (K,), which sum to 1."""
    if width in part.law.points_an_axis:
        return _product(width, part.law.points_an_axis[width])
    turn = part.groups[:, None, None] * np.sqrt(2.0) * _golden(width)[::-1]
    both = even_points(width, _FREE_POINTS, turn=turn)
    return both, np.full(_FREE_POINTS, -np.log(_FREE_POINTS))


def even_points(width: int, count: int, *, turn: np.ndarray | float = 0.0) -> np.ndarray:
    """`count` points (count, D) distributed like N(0, I): half of them and their mirror images.

    `turn` (g, 1, D) first shifts the points of each group within the unit cube.
    """
    place = np.arange(1, count // 2 + 1)[:, None] * _golden(width)
    half = special.ndtri(np.clip((place + turn) % 1.0, _EDGE, 1 - _EDGE))
    return np.concatenate([half, -half], axis=-2)


@cache
def _product(width: int, points_an_axis: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(points_an_axis)
    grid = np.stack(np.meshgrid(*[nodes] * width, indexing="ij"), axis=-1)
    logs = np.meshgrid(*[np.log(weights / weights.sum())] * width, indexing="ij")
    return grid.reshape(1, -1, width), np.sum(logs, axis=0).ravel()


@cache
def _golden(width: int) -> np.ndarray:
    """1/r, 1/r^2, ... with r^(width + 1) = r + 1; its multiples fill the unit cube evenly."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (width + 1))
    return ratio ** -np.arange(1.0, width + 1)
