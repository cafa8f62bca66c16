"""Several grouping columns as factors: their levels, and the cells in which rows lie."""

import itertools
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Cell c is the combination of level `places[k][c]` of each factor k; no two cells are equal.

    `sizes` are the numbers of levels. In a chain (`nested`), every level lies in one level of the
    factor before it, and cell c is level c of the last factor.
    """

    names: tuple[str, ...]
    places: tuple[np.ndarray, ...]
    sizes: tuple[int, ...]
    nested: bool

    @property
    def number(self) -> int:
        return len(self.places[0])

    def parents(self) -> tuple[np.ndarray, ...]:
        """For each factor of a chain but the first: the level before it in which a level lies."""
        found = []
        for upper, lower, size in zip(self.places, self.places[1:], self.sizes[1:], strict=False):
            parent = np.zeros(size, np.int64)
            parent[lower] = upper
            found.append(parent)
        return tuple(found)

    def extended(self, places: tuple[np.ndarray, ...], sizes: tuple[int, ...]) -> "Cells":
        """The same cells and others after them, whose levels may be new."""
        both = (np.append(old, new) for old, new in zip(self.places, places, strict=True))
        return Cells(names=self.names, places=tuple(both), sizes=sizes, nested=self.nested)


def nested_cells(names: tuple[str, ...], columns: list[np.ndarray]) -> tuple[Cells, np.ndarray]:
    """Cells of columns of places, coarse to fine, and the cell of each row.

    A level of a factor is a combination of labels of this column and all before it: a county of
    the same name in two states is two counties.

    >>> state, county = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 0])
    >>> cells, of_row = nested_cells(("state", "county"), [state, county])
    >>> cells.sizes, cells.places[0].tolist(), of_row.tolist()
    ((2, 3), [0, 0, 1], [0, 1, 2, 2])
    """
    code = np.zeros(len(columns[0]), np.int64)
    keys, sizes = [], []
    for column in columns:
        code = _combined(code, column)
        keys.append(code)
        sizes.append(int(code.max()) + 1)
    first = _first(code, sizes[-1])
    places = tuple(key[first] for key in keys)
    return Cells(names=names, places=places, sizes=tuple(sizes), nested=True), code


def crossed_cells(names: tuple[str, ...], columns: list[np.ndarray]) -> tuple[Cells, np.ndarray]:
    """Cells of columns of places whose labels mean the same wherever they occur.

    Where each column determines the one before it, in order of size, the factors are a chain.
    """
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = _combined(code, column)
    number = int(code.max()) + 1
    first = _first(code, number)
    places = [column[first] for column in columns]
    sizes = [int(column.max()) + 1 for column in columns]
    order = np.argsort(sizes, kind="stable").tolist()
    chain = sizes[order[-1]] == number and all(
        int(_combined(places[upper], places[lower]).max()) + 1 == sizes[lower]
        for upper, lower in itertools.pairwise(order)
    )
    if chain:
        names = tuple(names[k] for k in order)
        places, sizes = [places[k] for k in order], [sizes[k] for k in order]
        renumbered = places[-1]  # the finest level is the cell
        code, places = renumbered[code], [each[np.argsort(renumbered)] for each in places]
    found = Cells(names=names, places=tuple(places), sizes=tuple(sizes), nested=chain)
    return found, code


def _combined(code: np.ndarray, column: np.ndarray) -> np.ndarray:
    """The place of each pair among the distinct pairs, in order."""
    pair = code * (int(column.max()) + 1) + column
    return np.unique(pair, return_inverse=True)[1]


def _first(code: np.ndarray, number: int) -> np.ndarray:
    """A row of each code."""
    first = np.empty(number, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first
