"""How the classes are spread over clients."""

import numpy as np

from fedprior.data.federation import Split

_ROWS = 2**20  # at a time, for pools that are mapped from a file


def class_counts(split: Split, num_classes: int) -> np.ndarray:
    """Return the number of samples of each class, (num_clients, num_classes).

    >>> split = Split(np.zeros((3, 1)), np.array([0, 1, 1]), np.array([0, 1]), np.array([1, 2]))
    >>> class_counts(split, 2).tolist()
    [[1, 0], [0, 2]]
    """
    owner = np.full(len(split.y), -1, np.int64)
    order = np.repeat(np.arange(split.num_clients), split.size)
    first = np.repeat(split.start - np.cumsum(split.size) + split.size, split.size)
    owner[first + np.arange(len(order))] = order
    counts = np.zeros(split.num_clients * num_classes, np.int64)
    for begin in range(0, len(owner), _ROWS):
        own, labels = owner[begin : begin + _ROWS], np.asarray(split.y[begin : begin + _ROWS])
        known = own >= 0
        places = own[known] * num_classes + labels[known]
        counts += np.bincount(places, minlength=len(counts))
    return counts.reshape(split.num_clients, num_classes)


def largest_shares(counts: np.ndarray) -> np.ndarray:
    """Return the share of each client's largest class; NaN without samples."""
    whole = counts.sum(axis=1)
    return np.where(whole > 0, counts.max(axis=1) / np.maximum(whole, 1), np.nan)
