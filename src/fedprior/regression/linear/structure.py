"""The parameters of a covariance: one variance, d variances, or a full matrix.

A covariance in its own shape is () for isotropic, (d,) for diagonal and (d, d) for full.
"""

import numpy as np

from fedprior.regression.result import Covariance


def expand(values: np.ndarray, *, width: int) -> np.ndarray:
    """The matrix (width, width) of a covariance in its own shape."""
    if values.ndim == 2:
        return values
    return np.diag(np.broadcast_to(values, (width,)))


def restrict_slope(matrix: np.ndarray, covariance: Covariance) -> np.ndarray:
    """D f / d values from d f / d matrix, (..., d, d): the trace, the diagonal, or all of it."""
    if covariance == "full":
        return matrix
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    return diagonal if covariance == "diagonal" else diagonal.sum(axis=-1)


def nearest_covariance(matrix: np.ndarray, covariance: Covariance) -> np.ndarray:
    """The covariance in its own shape that is nearest to `matrix`."""
    values = restrict_slope(matrix, covariance)
    return values / len(matrix) if covariance == "isotropic" else np.array(values)


def num_covariance_parameters(covariance: Covariance, width: int) -> int:
    """The number of free parameters."""
    return {"isotropic": 1, "diagonal": width, "full": width * (width + 1) // 2}[covariance]
