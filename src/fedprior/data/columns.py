"""Columns: name -> masked array, the mask saying which cells are missing.

A CSV file, a Parquet file and a data frame all become columns, and nothing past this module knows
which of them it was. In a file, NULL or an empty cell is missing and a literal NaN is a value (that
the encoder refuses); in a data frame, NaN is how a cell is missing.
"""

import glob
import math
import re
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check

Columns = dict[str, np.ma.MaskedArray]

TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
# What NumPy has a type for. Wider numbers are read as DOUBLE, all other types as text.
_NATIVE = re.compile(
    "BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|DATE|TIMESTAMP.*"
)
_CSV_TYPES = ("BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "VARCHAR")
_LONGEST = 256  # characters: NumPy gives every cell the room of the longest one
_WIDE = re.compile(r"U?HUGEINT|DECIMAL.*")


def read_table(
    path: str | Path,
    *,
    columns: Iterable[str] | None = None,
    optional: Iterable[str] = (),
    text: Iterable[str] = (),
) -> Columns:
    """The named columns (all of them by default) of a CSV or Parquet file, rows in file order.

    A column in `optional` is read where the file has it. A CSV column in `text` keeps its cells as
    they stand, so that the county 08014 does not become 8014.
    """
    import duckdb

    path = Path(path)
    is_parquet = _check_file(path)
    name = glob.escape(str(path))  # DuckDB would read [, * and ? as a pattern
    try:
        with duckdb.connect() as connection:
            relation = connection.read_parquet(name) if is_parquet else _csv(connection, name, text)
            wanted = _wanted(relation.columns, columns, optional, owner=str(path))
            types = dict(zip(relation.columns, map(str, relation.types), strict=True))
            found = relation.project(", ".join(_cast(each, types[each]) for each in wanted))
            arrays = found.fetchnumpy()
    except duckdb.Error as error:
        reason = " ".join(str(error).split("\n\n")[0].split())
        raise ValueError(f"read_table: {path} must be a readable table, got: {reason}") from None
    if len(next(iter(arrays.values()))) == 0:
        raise ValueError(f"read_table: {path} must have rows, got a header only.")
    return {each: column(each, arrays[each]) for each in wanted}


def as_columns(
    source: Any,
    *,
    wanted: Iterable[str] | None = None,
    optional: Iterable[str] = (),
    text: Iterable[str] = (),
) -> Columns:
    """The wanted columns of columns, of a CSV or Parquet file, or of a data frame.

    A data frame is anything with `.columns` and `[name]`; in it, and only in it, NaN is missing.
    """
    if isinstance(source, str | Path):
        return read_table(source, columns=wanted, optional=optional, text=text)
    is_mapping = isinstance(source, Mapping)
    if not is_mapping and not (hasattr(source, "columns") and hasattr(source, "__getitem__")):
        rule = "columns, a path, or a data frame (something with .columns and [name])"
        raise TypeError(check.message("table", "source", rule, type(source).__name__))
    present = {str(name): name for name in (source if is_mapping else source.columns)}
    chosen = _wanted(list(present), wanted, optional, owner="table")
    found = {
        each: column(each, source[present[each]], nan_missing=not is_mapping) for each in chosen
    }
    lengths = {each: len(values) for each, values in found.items()}
    same = len(set(lengths.values())) == 1 and min(lengths.values()) > 0
    check.require(same, "table", "columns", "of one length above 0", lengths)
    return found


def column(name: str, values: Any, *, nan_missing: bool = False) -> np.ma.MaskedArray:
    """One column with its missing cells masked; None is always missing, NaN on request."""
    masked = isinstance(values, np.ma.MaskedArray)
    array = values.data if masked else np.asarray(values)
    check.require(array.ndim == 1, "table", f"column {name!r}", "a single column", array.shape)
    missing = np.ma.getmaskarray(values) if masked else np.zeros(len(array), bool)
    if hasattr(values, "isna"):  # pandas, whose NA has no truth value to test cell by cell
        missing = missing | np.asarray(values.isna(), bool)
    if array.dtype == object:
        missing = missing | np.array([cell is None for cell in array], bool)
        array, missing = _infer(name, array, missing, nan_missing)
    elif nan_missing and array.dtype.kind == "f":
        missing = missing | np.isnan(array)
    return np.ma.MaskedArray(array, missing)


def need(present: Iterable[str], wanted: Iterable[str], *, owner: str) -> None:
    """Every wanted column is present, once; the error names the nearest."""
    present = list(present)
    for name in wanted:
        times = present.count(name)
        rule, remedy = "named once in the header", "Which of them is meant cannot be told."
        check.require(times <= 1, owner, f"column {name!r}", rule, times, remedy)
        if name not in present:
            hint = check.nearest(name, present)
            shown = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            raise ValueError(
                f"{owner}: column must be one of {shown}, got {name!r}." + (f" {hint}" * bool(hint))
            )


def names(values: np.ma.MaskedArray) -> np.ndarray:
    """Cells as text; a whole number reads the same whether it was stored as 3 or as 3.0."""
    data = np.where(np.ma.getmaskarray(values), np.zeros((), values.dtype), values.data)
    text = data.astype(str)
    if data.dtype.kind == "f":
        whole = (data == np.rint(data)) & (np.abs(data) < 2**53)  # beyond, a float skips integers
        text[whole] = data[whole].astype(np.int64).astype(str)
    return text


def _check_file(path: Path) -> bool:
    """Whether the file is Parquet, having checked that it exists, has content and a known end."""
    if not path.is_file():
        raise ValueError(f"read_table: {path} must be a file, got none there.")
    lower = path.name.lower()
    is_parquet = lower.endswith(PARQUET_SUFFIXES)
    if not is_parquet and not lower.endswith(TEXT_SUFFIXES):
        known = ", ".join(TEXT_SUFFIXES + PARQUET_SUFFIXES)
        raise ValueError(f"read_table: {path} must end in one of {known}, got {path.suffix!r}.")
    if path.stat().st_size == 0:
        raise ValueError(f"read_table: {path} must have rows, got an empty file.")
    return is_parquet


def _csv(connection: Any, name: str, text: Iterable[str]) -> Any:
    """A CSV file with types from all of its rows, so that a late row cannot break them.

    Truth values stay text: DuckDB would turn the labels yes and no into True and False.
    """
    options = {"header": True, "sample_size": -1, "auto_type_candidates": list(_CSV_TYPES)}
    relation = connection.read_csv(name, **options)
    kept = {each: "VARCHAR" for each in text if each in relation.columns}
    return connection.read_csv(name, dtype=kept, **options) if kept else relation


def _wanted(
    present: list[str], wanted: Iterable[str] | None, optional: Iterable[str], *, owner: str
) -> list[str]:
    """The names to read, each once: all of them, or the wanted ones and the optional ones there."""
    if wanted is None:
        return present
    chosen = [*wanted, *(name for name in optional if name in present)]
    need(present, chosen, owner=owner)
    return list(dict.fromkeys(chosen))


def _cast(name: str, kind: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    if _NATIVE.fullmatch(kind):
        return quoted
    return f"CAST({quoted} AS {'DOUBLE' if _WIDE.fullmatch(kind) else 'VARCHAR'}) AS {quoted}"


def _infer(
    name: str, array: np.ndarray, missing: np.ndarray, nan_missing: bool
) -> tuple[np.ndarray, np.ndarray]:
    """An object column with the type that its present cells have in common."""
    if nan_missing:
        missing = missing | np.array([isinstance(c, float) and math.isnan(c) for c in array], bool)
    cells = array[~missing].tolist()
    longest = max((len(cell) for cell in cells if isinstance(cell, str)), default=0)
    rule, remedy = f"at most {_LONGEST} characters long", "Leave it out of the features."
    check.require(longest <= _LONGEST, "table", f"text in column {name!r}", rule, longest, remedy)
    scalar = not any(isinstance(cell, Sized) and not isinstance(cell, str) for cell in cells)
    rule = "one number, word or truth value"
    check.require(scalar, "table", f"each cell of column {name!r}", rule, "a list")
    present = np.array(cells) if cells else np.empty(0, str)
    if present.dtype == object:  # decimals and the like
        try:
            present = present.astype(float)
        except (TypeError, ValueError):
            present = present.astype(str)
    filled = np.zeros(array.shape, present.dtype)
    filled[~missing] = present
    return filled, missing
