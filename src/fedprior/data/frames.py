"""The one place where tables and columns of other libraries become what the rest reads."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.data.arrow import Frame, has_arrow, read_arrow

NATIVE = ("pandas", "polars")  # read by their own methods, with their categories and missing values
_PLAIN = ("builtins", "numpy", "collections", "jax", "jaxlib", "scipy")


def library(values: Any) -> str:
    """The package of the object's type; of a narwhals object, that of what it wraps."""
    return _package(unwrapped(values))


def unwrapped(values: Any) -> Any:
    """What a narwhals object wraps."""
    wraps = _package(values) == "narwhals" and hasattr(values, "to_native")
    return values.to_native() if wraps else values


def taken(values: Any) -> Any:
    """A foreign table as a Frame, a foreign column as an array (masked where cells are missing).

    Foreign is whoever exports Arrow data, and whatever narwhals knows, lazy frames included, which
    are collected. All else (lists, arrays, mappings, pandas and polars) is returned as it is.
    """
    values = unwrapped(values)
    package = _package(values)
    if isinstance(values, Mapping) or package in _PLAIN:
        return values
    if package == "polars" and hasattr(values, "collect"):
        return values.collect()
    if package in NATIVE:
        return values
    return read_arrow(values) if has_arrow(values) else _by_narwhals(values)


def column_names(values: Any) -> list[str] | None:
    """The names of a table's columns; None for anything else. Nothing of the table is read."""
    values = unwrapped(values)
    if isinstance(values, Frame):
        return values.names
    if _package(values) not in NATIVE and not has_arrow(values):
        return None
    if hasattr(values, "collect_schema"):
        return list(values.collect_schema().names())
    schema = getattr(values, "schema", None)
    for found in (getattr(values, "column_names", None), getattr(schema, "names", None)):
        if isinstance(found, list):  # pyarrow, whose `columns` are the columns themselves
            return found
    columns = getattr(values, "columns", None)
    return None if columns is None else [str(name) for name in columns]


def _package(values: Any) -> str:
    return type(values).__module__.partition(".")[0]


def _by_narwhals(values: Any) -> Any:
    """What narwhals makes of the object, where it is installed and knows it."""
    if importlib.util.find_spec("narwhals") is None:
        return values
    import narwhals

    known = narwhals.from_native(values, allow_series=True, pass_through=True)
    if isinstance(known, narwhals.LazyFrame):
        return taken(known.collect())
    if isinstance(known, narwhals.Series):
        return _masked(known)
    if isinstance(known, narwhals.DataFrame):
        return {name: _masked(known[name]) for name in known.columns}
    return values


def _masked(column: Any) -> np.ndarray:
    """A column of a library that narwhals knows and that exports no Arrow data."""
    missing = np.asarray(column.is_null().to_numpy(), bool)
    present = np.asarray(column.drop_nulls().to_numpy())
    cells = np.zeros(len(missing), present.dtype)
    cells[~missing] = present
    return np.ma.MaskedArray(cells, missing)
