"""All levels of groups as one table, and labels that may be new as cells."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.estimation.levels.estimate import FittedLevels
from fedprior.estimation.levels.result import Values
from fedprior.estimation.result import Estimates

_FIELDS = ("raw", "personal", "weight", "lower", "upper")
ALL = "all"


def level_table(estimates: Estimates, keys: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One row for the whole, one for each group of each level, and one for each finest group.

    `keys` are the labels of the finest groups, by column. A label of a level below the row's (or
    beside it, where groups cross) is None.
    """
    levels, names = estimates.levels, tuple(keys)
    assert levels is not None
    parts: list[tuple[str, tuple[str, ...], np.ndarray, Values | Estimates]]
    parts = [(ALL, (), np.zeros(1, np.int64), levels.whole)]
    for number, part in enumerate(levels.parts):
        above = levels.parts[: number + 1] if levels.chain else (part,)
        parts.append((part.name, tuple(each.name for each in above), part.example, part.values))
    if levels.chain:  # its finest level are the groups
        parts.pop()
    finest = levels.parts[-1].name if levels.chain else " x ".join(names)
    parts.append((finest, names, np.arange(len(estimates.n)), estimates))
    columns = {_free("level", names): _objects([name for name, _, rows, _ in parts for _ in rows])}
    for name in names:
        cells: list[Any] = []
        for _, held, rows, _ in parts:
            cells += keys[name][rows].tolist() if name in held else [None] * len(rows)
        columns[name] = _objects(cells)
    for field in ("n", *_FIELDS):
        title = estimates.size_name if field == "n" else field
        column = np.concatenate([getattr(values, field) for *_, values in parts])
        column = column.astype(np.int64) if title == "n" else column
        columns[_free(title, names)] = column
    return columns


def asked(
    fitted: FittedLevels, known: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> Values:
    """Values of rows of labels: `known` are the places of the groups' labels, `wanted` the rows'.

    A place of -1 is a label that is not known.
    """
    cells = fitted.cells
    names = cells.names
    rows = np.array([wanted[name] for name in names]).T
    groups = np.array([known[name] for name in names]).T
    unique, place = np.unique(rows, axis=0, return_inverse=True)
    place = place.reshape(-1)
    where = {
        tuple(key): int(at) for key, at in zip(groups.tolist(), fitted.design.cell, strict=True)
    }
    found = np.array([where.get(tuple(key), -1) for key in unique.tolist()], np.int64)
    new = unique[found < 0]
    estimates = fitted.estimates
    table = {name: getattr(estimates, name)[fitted.row] for name in ("n", "scale", *_FIELDS)}
    if len(new):
        beyond = fitted.further(*_places(fitted, groups, new))
        table = {name: np.append(each, getattr(beyond, name)) for name, each in table.items()}
        found[found < 0] = cells.number + np.arange(len(new))
    return Values(**{name: each[found[place]] for name, each in table.items()})


def _places(
    fitted: FittedLevels, groups: np.ndarray, new: np.ndarray
) -> tuple[tuple[np.ndarray, ...], tuple[int, ...]]:
    """The levels of the factors in which new cells lie, and the numbers of levels with them."""
    cells, places, sizes = fitted.cells, [], []
    for k in range(len(cells.names)):
        size = cells.sizes[k]
        if cells.nested:
            level = cells.places[k][fitted.design.cell]
            pairs = zip(groups[:, : k + 1].tolist(), level.tolist(), strict=True)
            seen = {tuple(key): at for key, at in pairs}
            place = []
            for number, key in enumerate(new[:, : k + 1].tolist()):
                own = (*key, number) if k == len(cells.names) - 1 else tuple(key)
                if own not in seen:
                    seen[own] = size
                    size += 1
                place.append(seen[own])
        else:
            place = np.where(new[:, k] < 0, size, new[:, k]).tolist()
            size += bool((new[:, k] < 0).any())
        places.append(np.array(place, np.int64))
        sizes.append(size)
    return tuple(places), tuple(sizes)


def _objects(cells: list[Any]) -> np.ndarray:
    found = np.empty(len(cells), object)
    found[:] = cells
    return found


def _free(name: str, taken: tuple[str, ...]) -> str:
    """The name, or one that no column of groups has, in any case."""
    while name.casefold() in {each.casefold() for each in taken}:
        name += "_"
    return name
