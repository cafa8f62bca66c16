"""Symmetric matrices stored as lower triangles, which takes half the memory."""

import math

import numpy as np


def pack(matrices: np.ndarray) -> np.ndarray:
    """(..., d, d), symmetric -> (..., d (d + 1) / 2), row by row of the lower triangle.

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    rows, columns = np.tril_indices(matrices.shape[-1])
    return matrices[..., rows, columns]


def unpack(triangles: np.ndarray) -> np.ndarray:
    """The inverse of `pack`.

    >>> unpack(np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    width = (math.isqrt(8 * triangles.shape[-1] + 1) - 1) // 2
    rows, columns = np.tril_indices(width)
    places = np.empty((width, width), np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return triangles[..., places]
