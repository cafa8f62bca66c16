"""Numbers from arrays, lists and columns of data frames, missing values included."""

import math
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data import frames
from fedprior.data.arrow import Frame

_MISSING_TYPES = ("NAType", "NaTType")  # by name, because pandas' NA has no truth value


def frame_kind(*inputs: Any) -> str | None:
    """The library of the first input of pandas, polars or pyarrow, for what goes back."""
    found = (frames.library(each) for each in inputs)
    return next((each for each in found if each in (*frames.NATIVE, "pyarrow")), None)


def check_complete(
    owner: str, keep: np.ndarray, *, strict: bool, missing: str, whole: str, remedy: str = ""
) -> int:
    """How many rows are not kept; raise for one if `strict`, and where none is kept.

    Those have a missing cell, `missing` in words, and the others `whole`.
    """
    number = int((~keep).sum())
    if strict and number:
        name, where = f"number of rows with {missing}", f"The first is row {np.argmin(keep) + 1}."
        check.require(False, owner, name, "0 in strict mode", number, f"{where} {remedy}".strip())
    check.require(bool(keep.any()), owner, f"number of rows with {whole}", "at least 1", 0)
    return number


def single(owner: str, name: str, values: Any) -> Any:
    """A column as it is; of a foreign table its only one; missing cells as NaN or None."""
    values = frames.taken(values)
    if isinstance(values, Frame):
        check.require(len(values) == 1, owner, name, "one column", values.names)
        values = values[values.names[0]]
    if isinstance(values, np.ma.MaskedArray):
        gaps = np.nan if values.dtype.kind == "f" else None
        kept = values.data.copy() if gaps is not None else values.data.astype(object)
        kept[np.ma.getmaskarray(values)] = gaps
        return kept
    return values


def numbers(owner: str, name: str, values: Any, *, most_axes: int = 1) -> np.ndarray:
    """Return `values` as float64 with at most `most_axes` axes; a missing cell is NaN.

    Raises for text, dates, complex and infinite numbers, naming the row.
    """
    values = frames.taken(values)
    if isinstance(values, Frame):
        check.require(len(values) > 0, owner, name, "one or more columns", 0)
        parts = [_float_array(owner, f"{name}, column {key!r},", values[key]) for key in values]
        array = np.stack(parts, axis=1) if len(parts) > 1 else parts[0]  # a relation of one column
    else:
        array = _float_array(owner, name, values)
    rule = "one value per row" + (" (or one row of coordinates)" if most_axes > 1 else "")
    check.require(1 <= array.ndim <= most_axes, owner, name, rule, f"shape {array.shape}")
    infinite = np.isinf(array)
    if infinite.any():
        row = int(np.argwhere(infinite)[0, 0])
        value = float(array[infinite][0])
        check.require(False, owner, name, "finite", value, f"See row {row + 1} of {len(array)}.")
    return array


def check_rows(
    owner: str, name: str, values: np.ndarray, good: np.ndarray, rule: str, remedy: str = ""
) -> None:
    """Raise for the first value that violates the rule, naming its row; NaN is ignored."""
    bad = ~(good | np.isnan(values))
    if bad.any():
        row = int(np.argmax(bad))
        where = f"See row {row + 1} of {len(values)}. {remedy}".strip()
        value = float(values[row])
        check.require(False, owner, name, rule, int(value) if value.is_integer() else value, where)


def check_whole(owner: str, name: str, values: np.ndarray, *, least: int = 0) -> None:
    """Raise for the first value that is no whole number of at least `least`."""
    whole = (values >= least) & (values == np.rint(values))
    check_rows(owner, name, values, whole, f"whole numbers of at least {least}")


def check_trials(owner: str, name: str, successes: np.ndarray, trials: np.ndarray) -> None:
    """Raise for trials that are no whole numbers, and for more successes than trials."""
    check_whole(owner, "trials", trials)
    check_rows(owner, name, successes, ~(successes > trials), "at most the number of trials")


def check_exposure(
    owner: str, name: str, events: np.ndarray, exposure: np.ndarray, remedy: str = ""
) -> None:
    """Raise for an exposure below 0, and for events without an exposure."""
    check_rows(owner, "exposure", exposure, exposure >= 0, "at least 0")
    possible = ~((events > 0) & (exposure == 0))
    check_rows(owner, name, events, possible, "0 where exposure is 0", remedy)


def same_length(owner: str, **columns: Any) -> int:
    """Return the common length of all `columns` that are not None, which must be at least 1."""
    lengths = {name: len(each) for name, each in columns.items() if each is not None}
    remedy = "Every row needs one of each."
    same = len(set(lengths.values())) == 1
    check.require(same, owner, " and ".join(lengths), "of one length", lengths, remedy)
    rows = next(iter(lengths.values()))
    check.require(rows > 0, owner, "number of rows", "at least 1", 0)
    return rows


def missing_cells(cells: np.ndarray) -> np.ndarray:
    """Mask of the cells that are None, NaN, NaT or pandas' NA."""
    if cells.dtype.kind == "f":
        return np.isnan(cells)
    if cells.dtype.kind in "mM":
        return np.isnat(cells)
    if cells.dtype == object:
        return np.fromiter(map(_is_missing, cells.ravel()), bool, cells.size).reshape(cells.shape)
    return np.zeros(cells.shape, bool)


def _is_missing(cell: Any) -> bool:
    if cell is None or type(cell).__name__ in _MISSING_TYPES:
        return True
    return isinstance(cell, float | np.floating) and math.isnan(cell)


def _float_array(owner: str, name: str, values: Any) -> np.ndarray:
    masked = isinstance(values, np.ma.MaskedArray)
    array = values.data if masked else _as_array(owner, name, values)
    if array.dtype.kind in "biuf":
        floats = array.astype(np.float64)
    elif array.dtype == object:
        floats = _float_cells(owner, name, array)
    else:
        first = array.ravel()[0].item() if array.size else str(array.dtype)
        raise TypeError(check.message(owner, name, "numbers", first, _remedy(first)))
    if masked:
        floats = np.where(np.ma.getmaskarray(values), np.nan, floats)
    return floats


def _as_array(owner: str, name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except ValueError:
        rule = "rows of equal length"
        raise ValueError(check.message(owner, name, rule, "rows that differ")) from None


def _float_cells(owner: str, name: str, array: np.ndarray) -> np.ndarray:
    """Convert objects to floats cell by cell, so that an error can name the row."""
    flat = np.full(array.size, np.nan)
    for number, cell in enumerate(array.ravel().tolist()):
        if _is_missing(cell):
            continue
        try:
            if isinstance(cell, str | bytes):
                raise TypeError
            flat[number] = float(cell)
        except (TypeError, ValueError):
            row = number // (array.size // len(array)) + 1
            remedy = f"See row {row} of {len(array)}. {_remedy(cell)}".strip()
            raise TypeError(check.message(owner, name, "numbers", cell, remedy)) from None
    return flat.reshape(array.shape)


def _remedy(cell: Any) -> str:
    return "Convert text to numbers first." if isinstance(cell, str | bytes) else ""
