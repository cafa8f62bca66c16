"""Rows of one combination of labels as one row: nothing of the likelihood is lost."""

import numpy as np

from fedprior.estimation.levels.cells import nested_cells
from fedprior.estimation.levels.design import LevelData


def collapsed(data: LevelData) -> LevelData:
    """One row per combination of labels, in their order.

    >>> data = LevelData("gaussian", ("shop",), [np.array([0, 1, 0])], np.array([1.0, 5.0, 3.0]),
    ...             np.ones(3), num_rows=3, counts=np.ones(3))
    >>> found = collapsed(data)
    >>> found.y.tolist(), found.size.tolist(), found.within
    ([2.0, 5.0], [2.0, 1.0], 2.0)
    """
    cells, cell = nested_cells(data.names, data.places)
    number, labels = cells.number, []
    for place in data.places:
        own = np.empty(number, np.int64)
        own[cell] = place
        labels.append(own)
    size = np.bincount(cell, data.size, minlength=number)
    count = None if data.counts is None else np.bincount(cell, data.counts, minlength=number)
    if data.family != "gaussian":
        y = np.bincount(cell, data.y, minlength=number)
        return data._replace(places=labels, y=y, size=size, counts=count)
    middle = float(data.y.mean())  # sums about it lose no digits
    total = np.bincount(cell, data.size * (data.y - middle), minlength=number)
    y = np.divide(total, size, out=np.zeros(number), where=size > 0)
    within = 0.0
    if not data.known:
        within = data.within + float((data.size * (data.y - middle - y[cell]) ** 2).sum())
    return data._replace(places=labels, y=y + middle, size=size, counts=count, within=within)
