"""EM of a mixture of regressions in two halves: what a group sends, and what the server does."""

from typing import NamedTuple

import numpy as np

from fedprior.regression.mixture.totals import soften
from fedprior.regression.rows import Block

_LEAST_NOISE = 1e-3  # of the target's mean square of about 1: a floor that is public


class ScaledMixture(NamedTuple):
    """A mixture in public units, in which features and targets have a mean square of about 1."""

    shares: np.ndarray
    centers: np.ndarray
    noise: float


def private_messages(
    block: Block, shares: np.ndarray, centers: np.ndarray, noise: float
) -> np.ndarray:
    """The messages of a block's groups before clipping, (g, k (1 + d (d + 3) / 2) + 1).

    Off-diagonal products occur twice in X'X and are sent once, times sqrt(2), which keeps the norm.
    A group whose numbers overflow sends zeros, so that it does not spoil the sum.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sent = _messages(block, shares, centers, noise)
    return np.where(np.isfinite(sent).all(axis=1, keepdims=True), sent, 0.0)


def _messages(block: Block, shares: np.ndarray, centers: np.ndarray, noise: float) -> np.ndarray:
    size = block.y.shape[1]
    left = block.y[:, None, :] - centers @ np.swapaxes(block.x, 1, 2)
    with np.errstate(divide="ignore"):
        logits = np.log(shares) - (left**2).sum(axis=2) / (2 * noise)
    alpha, _ = soften(logits)
    square = np.swapaxes(block.x, 1, 2) @ block.x / size
    cross = (block.y[:, None, :] @ block.x)[:, 0] / size
    upper = np.triu_indices(len(square[0]))
    twice = np.where(upper[0] == upper[1], 1.0, np.sqrt(2))
    own = np.concatenate([np.ones((len(alpha), 1)), square[:, *upper] * twice, cross], axis=1)
    spread = (alpha[:, :, None] * own[:, None, :]).reshape(len(alpha), -1)
    return np.concatenate([spread, (block.y**2).mean(axis=1)[:, None]], axis=1)


def maximize_noised(
    total: np.ndarray, error: float, mixture: ScaledMixture, radius: float, learns_noise: bool
) -> ScaledMixture:
    """The server's half: shares, centers and noise from totals with noise of scale `error`.

    center += A^-1 (b - A center), A's eigenvalues at least twice the noise's largest: directions
    that the noise drowns move little. Centers stay within `radius`, a share keeps one `error`.
    """
    count, dimension = mixture.centers.shape
    parts = total[:-1].reshape(count, -1)
    mass = np.maximum(parts[:, 0], min(error, max(float(parts[:, 0].sum()) / count, 1e-12)))
    square = _symmetric(parts[:, 1:-dimension], dimension)
    cross = parts[:, -dimension:]
    left = cross - (square @ mixture.centers[:, :, None])[:, :, 0]
    values, vectors = np.linalg.eigh(square)
    # a symmetric matrix of such noise has spectral norm about sqrt(2 d) error at most
    values = np.maximum(values, 2 * np.sqrt(2 * dimension) * error + 1e-12)
    along = (np.swapaxes(vectors, 1, 2) @ left[:, :, None])[:, :, 0] / values
    centers = mixture.centers + (vectors @ along[:, :, None])[:, :, 0]
    centers *= radius / np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), radius)
    noise = mixture.noise
    if learns_noise:
        fitted = (centers * (2 * cross - (square @ centers[:, :, None])[:, :, 0])).sum()
        weight = max(float(parts[:, 0].sum()), 4 * np.sqrt(count) * error, 1e-12)
        noise = max(float(total[-1] - fitted) / weight, _LEAST_NOISE)
    return ScaledMixture(mass / mass.sum(), centers, noise)


def _symmetric(flat: np.ndarray, dimension: int) -> np.ndarray:
    """(k, d (d + 1) / 2) numbers as they were sent to (k, d, d)."""
    rows, columns = np.triu_indices(dimension)
    matrices = np.empty((len(flat), dimension, dimension))
    values = flat / np.where(rows == columns, 1.0, np.sqrt(2))
    matrices[:, rows, columns] = values
    matrices[:, columns, rows] = values
    return matrices
