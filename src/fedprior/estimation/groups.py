"""Labels of groups, as an analyst has them, to places in an array, and columns back to frames.

Labels come as lists, NumPy arrays, pandas or polars columns, or any other that exports Arrow data.
Which library a column belongs to is read off its type, so that none is ever imported for somebody
who does not use it.
"""

import contextlib
import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.arrow import Frame
from fedprior.data.frames import column_names, taken
from fedprior.estimation.notes import recommends
from fedprior.estimation.numeric import frame_kind, missing_cells, numbers, same_length, single

_SPAN = 4  # a table of all whole numbers in the range is cheaper than a sort up to this many a row


class EstimationWarning(UserWarning):
    """An estimate came out, but something in the data says not to trust it as it stands."""


def warn_of(notes: Iterable[str], *, stacklevel: int) -> None:
    """Warn of notes that recommend an alternative, which means poor estimates."""
    for note in notes:
        if recommends(note):
            warnings.warn(note, EstimationWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True, eq=False)
class Factor:
    """row r carries the label `levels[place[r]]`; place -1 is a row without a label."""

    levels: np.ndarray
    place: np.ndarray

    def keep(self, rows: Any) -> "Factor":
        """These rows (a mask, or all) and the labels left in them, which all have a row before.

        Where every label has one row only, the labels take the order of the rows, so that what is
        estimated stands beside what came in.
        """
        levels, place = self.levels, self.place[rows]
        if not isinstance(rows, slice):
            used = np.bincount(place, minlength=len(levels)) > 0
            levels, place = levels[used], (np.cumsum(used) - 1)[place]
        if len(levels) == len(place):
            return Factor(levels[place], np.arange(len(place)))
        return Factor(levels, place)


def to_frame(columns: Mapping[str, Any], kind: str | None) -> Any:
    """Columns as a data frame of the library `kind`, or as a plain dictionary."""
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(dict(columns))
    if kind == "polars":
        import polars

        return polars.DataFrame(
            {name: v.tolist() if v.dtype == object else v for name, v in columns.items()}
        )
    if kind == "pyarrow":
        import pyarrow

        return pyarrow.table(dict(columns))
    return dict(columns)


def factorize(owner: str, name: str, labels: Any) -> Factor:
    """Distinct labels in order, and the place of each row's among them.

    The order is that of the categories for categorical columns, else by size or alphabet; labels
    that cannot be compared with each other stay in the order in which they first occur.

    >>> found = factorize("example", "groups", ["b", "a", None, "b"])
    >>> found.levels.tolist(), found.place.tolist()
    (['a', 'b'], [1, 0, -1, 1])
    """
    present, cells = present_labels(owner, name, labels)
    levels, inner = _levels(owner, name, cells)
    order = _category_order(labels)
    if order is not None:
        rank = {label: number for number, label in enumerate(order)}
        by_rank = np.argsort([rank[level] for level in levels.tolist()], kind="stable")
        levels, inner = levels[by_rank], np.argsort(by_rank)[inner]
    place = np.full(len(present), -1, np.int64)
    place[present] = inner
    return Factor(levels, place)


def look_up(
    owner: str, name: str, levels: np.ndarray, labels: Any, *, any_kind: bool = False
) -> np.ndarray:
    """The place among `levels` of each label; -1 for one that is missing or not there.

    Text looked up among numbers, or numbers among text, is an error unless `any_kind`.
    """
    present, cells = present_labels(owner, name, labels)
    place = np.full(len(present), -1, np.int64)
    in_order = levels.dtype.kind == cells.dtype.kind != "O" and len(levels) > 0
    if in_order and bool((levels[1:] > levels[:-1]).all()):
        near = np.minimum(np.searchsorted(levels, cells), len(levels) - 1)
        place[present] = np.where(levels[near] == cells, near, -1)
        return place
    where = {level: number for number, level in enumerate(levels.tolist())}
    try:
        place[present] = [where.get(cell, -1) for cell in cells.tolist()]
    except TypeError:
        raise _unhashable(owner, name, cells) from None
    if len(cells) and not any_kind and (place == -1).all():
        known, first = _kind(levels), cells.tolist()[0]
        if {known, _kind(cells[:1])} == {"numbers", "text"}:
            rule = f"{known}, as they were in fit"
            raise TypeError(check.message(owner, name, rule, first, "Convert them."))
    return place


def of_rows(owner: str, groups: Any, **first: np.ndarray) -> Factor:
    """The labels of the rows of a column; without labels each row is a group, 0, 1, ..."""
    if groups is None:
        rows = len(*first.values())
        return Factor(np.arange(rows), np.arange(rows))
    factor = factorize(owner, "groups", groups)
    same_length(owner, **first, groups=factor.place)
    return factor


def one_row_each(owner: str, groups: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels and places of distinct labels; 0, 1, ... if there are no labels."""
    if groups is None:
        return np.arange(rows), np.arange(rows)
    factor = factorize(owner, "groups", groups)
    check.require(len(factor.place) == rows, owner, "groups", f"{rows} labels", len(factor.place))
    twice = np.flatnonzero(np.bincount(factor.place[factor.place >= 0]) > 1)
    if len(twice):
        rule, remedy = "distinct labels, one row per group", "Combine the rows of a group first."
        check.require(False, owner, "groups", rule, factor.levels[twice].tolist()[:3], remedy)
    return factor.levels, factor.place


def read_target(owner: str, y: Any, target_type: str) -> tuple[np.ndarray, str, np.ndarray | None]:
    """The target as numbers, its type, and its classes where it has two.

    On `auto`, two whole numbers, words or truth values are classes; all else is continuous.

    >>> read_target("example", ["no", "yes", "yes"], "auto")[0].tolist()
    [0.0, 1.0, 1.0]
    """
    from sklearn.utils.validation import column_or_1d

    cells = np.asarray(column_or_1d(single(owner, "y", y), warn=True))
    missing = missing_cells(cells)
    remedy = "Leave such rows out."
    check.require(not missing.any(), owner, "y", "present in every row", None, remedy)
    factor = factorize(owner, "y", cells)
    classes = factor.levels
    of_numbers = classes.dtype.kind in "biuf"
    whole = of_numbers and bool((classes == np.rint(classes)).all())
    if target_type == "auto" and of_numbers:
        target_type = "binary" if len(classes) == 2 and whole else "continuous"
    if target_type == "continuous":
        return numbers(owner, "y", cells), target_type, None
    if len(classes) == 1 and of_numbers and classes[0] in (0, 1):
        return cells.astype(np.float64), "binary", np.array([0, 1], classes.dtype)
    remedy = "Encode one class at a time, as y == class."
    got = f"{len(classes)} ({', '.join(map(str, classes[:4].tolist()))})"
    check.require(len(classes) == 2, owner, "number of classes in y", "2", got, remedy)
    return factor.place.astype(np.float64), "binary", classes


def present_labels(owner: str, name: str, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have a label, and those labels; None, NaN, NaT and null are no label."""
    labels = taken(labels)
    if isinstance(labels, str | bytes) or not hasattr(labels, "__len__"):
        raise TypeError(check.message(owner, name, "one label a row", labels, "Pass a list."))
    labels = _single_column(owner, name, labels)
    kind = frame_kind(labels)
    if kind is not None:
        gaps = labels.is_null() if kind == "polars" else labels.isna()
        present = ~np.asarray(gaps, bool)
        labels = labels.filter(present) if kind == "polars" else labels[present]
        cells = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    elif isinstance(labels, np.ma.MaskedArray):
        present = ~np.ma.getmaskarray(labels)
        cells = labels.data[present] if labels.ndim == 1 else labels.data
    else:
        # NumPy would turn the list ["a", nan] into the words "a" and "nan".
        cells = labels if hasattr(labels, "__array__") else _objects(labels)
        cells = np.asarray(cells)
        present = np.ones(len(cells), bool)
    remedy = "For groups within groups, use GroupLevels or join their labels."
    check.require(cells.ndim == 1, owner, name, "one label a row", f"shape {cells.shape}", remedy)
    if cells.dtype.kind in "mM":  # one unit, so that a day is found among nanoseconds
        cells = cells.astype(f"{cells.dtype.kind}8[ns]")
    there = ~missing_cells(cells)
    if not there.all():
        present = present.copy()
        present[present] = there
        cells = cells[there]
    return present, cells


def _objects(cells: Any) -> np.ndarray:
    """A list as an object array of one axis, whatever stands in it (tuples stay tuples)."""
    cells = list(cells)
    array = np.empty(len(cells), object)
    for number, cell in enumerate(cells):
        array[number] = cell
    return array


def _single_column(owner: str, name: str, labels: Any) -> Any:
    names = column_names(labels)
    if names is None:
        return labels
    remedy = "For groups within groups, use GroupLevels or join their labels."
    check.require(len(names) == 1, owner, name, "one column of labels", names, remedy)
    if isinstance(labels, Frame):
        return labels[names[0]]
    return labels.to_series() if frame_kind(labels) == "polars" else labels.iloc[:, 0]


def _category_order(labels: Any) -> list[Hashable] | None:
    """The categories of a pandas categorical column, in their order."""
    if frame_kind(labels) != "pandas" or column_names(labels) is not None:
        return None
    categories = getattr(getattr(labels, "dtype", None), "categories", None)
    return None if categories is None else list(np.asarray(categories).tolist())


def _levels(owner: str, name: str, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct labels and the place of each cell's, without missing ones."""
    if cells.dtype.kind in "iu" and len(cells):
        low, high = int(cells.min()), int(cells.max())
        if high - low < max(_SPAN * len(cells), 1 << 16) and high < 2**63:
            shifted = cells.astype(np.int64) - low
            there = np.bincount(shifted, minlength=high - low + 1) > 0
            levels = np.flatnonzero(there)
            place = np.cumsum(there) - 1
            return (levels + low).astype(cells.dtype), place[shifted]
    if cells.dtype.kind in "biufmM":
        levels, place = np.unique(cells, return_inverse=True)
        return levels, place
    rows = cells.tolist()
    try:
        found = list(dict.fromkeys(rows))
    except TypeError:
        raise _unhashable(owner, name, cells) from None
    with contextlib.suppress(TypeError):  # labels of several types have no order: as they came
        found.sort()
    where = {level: number for number, level in enumerate(found)}
    place = np.fromiter(map(where.__getitem__, rows), np.int64, len(rows))
    return _tidy(found), place


def _tidy(levels: list[Any]) -> np.ndarray:
    """Whole numbers and floats as such; text and anything else as objects, never cut or cast."""
    if levels and {type(level) for level in levels} in ({int}, {float}, {bool}):
        return np.array(levels)
    return _objects(levels)


def _kind(cells: np.ndarray) -> str:
    """`text`, `numbers` or `mixed`."""
    kinds = {cells.dtype.kind}
    if cells.dtype == object:
        kinds = {np.asarray(cell).dtype.kind for cell in cells.tolist()}
    return "text" if kinds == {"U"} else "numbers" if kinds and kinds <= set("biuf") else "mixed"


def _unhashable(owner: str, name: str, cells: np.ndarray) -> TypeError:
    bad = next(cell for cell in cells.tolist() if not isinstance(cell, Hashable))
    return TypeError(f"{owner}: each {name} argument must be a string or a number, got {bad!r}.")
