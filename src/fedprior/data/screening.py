"""Screening: which columns of a wide table say most about the label, each by itself."""

from collections.abc import Sequence

import numpy as np


def strongest(columns: Sequence[np.ndarray], y: np.ndarray, most: int) -> list[int]:
    """Places of the columns that explain most of `y`, in order, of at most `most` inputs together.

    `columns` are the inputs of each column, (rows, inputs), and `y` codes of classes or a quantity.
    A column explains what a linear fit of its best input alone does, in squared errors of the
    quantity or of the indicators of the classes. There is always one, however many inputs it has.

    >>> x = np.array([[0.0, 1, 2, 3], [1, -1, -1, 1], [0, 0, 0, 0]])[:, :, None]
    >>> strongest(x, np.array([0, 0, 1, 1]), 1)
    [0]
    """
    is_class = y.dtype.kind in "iu"
    target = np.eye(int(y.max()) + 1)[y] if is_class else y[:, None].astype(np.float64)
    target = target - target.mean(axis=0)
    explained = np.array([_explained(x, target) for x in columns])
    chosen: list[int] = []
    number = 0
    for place in np.argsort(-explained, kind="stable").tolist():
        size = columns[place].shape[1]
        if not chosen or number + size <= most:
            chosen.append(place)
            number += size
    return sorted(chosen)


def _explained(x: np.ndarray, target: np.ndarray) -> float:
    """What the best input alone explains of the target, whose columns have mean 0."""
    if not x.size:
        return 0.0
    centered = x - x.mean(axis=0, dtype=np.float64)
    variance = np.square(centered).sum(axis=0)
    gained = np.square(centered.T @ target).sum(axis=1)
    return float((gained / np.where(variance > 0, variance, np.inf)).max())
