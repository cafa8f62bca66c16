"""The one reader of tables: a CSV file, a Parquet file, a data frame or arrays -> typed columns.

Nothing past this module knows which of them it was. In all of them a cell is missing where it is
NULL, None, NaN, empty or a word for missing (`cells.MISSING`, unless others are given).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data import spelling
from fedprior.data.cells import MISSING, Column, Kind, as_kind, describe, in_turn
from fedprior.data.cells import key as key_of
from fedprior.data.frames import taken
from fedprior.data.scan import Scan, need, quoted, scan, unreadable

Columns = dict[str, np.ma.MaskedArray]

_LONGEST = 256  # characters: NumPy gives every cell the room of the longest one
_MOST_SAID = 30  # columns
_FEW = 20  # rows, below which any column may look like a row number
_IDS = re.compile(
    r"(.*[\W_])?(id|ids|uuid|guid|index|key|row|rownames|#1|unnamed: 0)", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Rows in their order: `columns` by name, each a masked array, and the `kinds` they are of.

    Numbers are float64, dates float64 days since 1970-01-01, truth values bool, words text. `key`
    names each row's group or client, where one was asked for. `source` is the file's path, or
    "table", for error messages.
    """

    columns: Columns
    kinds: dict[str, Column]
    key: np.ma.MaskedArray | None = None
    source: str = "table"

    def said(self) -> dict[str, str]:
        """What each column was read as, in words."""
        return {
            name: column.said(int(np.ma.getmaskarray(self.columns[name]).sum()))
            for name, column in self.kinds.items()
        }

    def remarks(self, features: Iterable[str]) -> list[str]:
        """What was guessed, and what may be meant otherwise: row numbers, ids, spellings."""
        said = list(self.said().values())
        more = f"; and {len(said) - _MOST_SAID} more" if len(said) > _MOST_SAID else ""
        remarks = [f"Read {'; '.join(said[:_MOST_SAID])}{more}."]
        for name in features:
            if looks_like_id(name, self.columns[name]):
                remarks.append(
                    f"Column {name!r} looks like the number or id of a row, which says nothing of "
                    "other rows: leave it out of the features unless it does."
                )
        for name, column in self.kinds.items():
            if column.kind == "text":
                remarks.extend(spelling.of_words(f"Column {name!r}", self.columns[name]))
                remarks.extend(spelling.of_numbers(f"Column {name!r}", self.columns[name]))
        if self.key is not None:
            remarks.extend(spelling.of_words("The client or group column", self.key))
        return remarks


def read(
    source: Any,
    *,
    key: Sequence[str] = (),
    wanted: Iterable[str] | None = None,
    optional: Iterable[str] = (),
    exclude: Iterable[str] = (),
    kinds: Mapping[str, tuple[Kind, str]] | None = None,
    missing: Sequence[str] | None = None,
) -> Table:
    """The wanted columns (all by default) of a file, a glob, a data frame, or arrays by name.

    A data frame is anything with Arrow data, or with `.columns` and `[name]`. Columns of `key` are
    read as labels, as they stand (the county 08014 does not become 8014); several make one key. An
    `optional` column is read where there is one, an excluded one never. What a column holds is told
    by its cells, unless `kinds` gives its kind and form: then each cell is read by itself alone.
    """
    import duckdb

    optional, words = list(optional), MISSING if missing is None else tuple(missing)
    asked = None if wanted is None else [*key, *wanted]
    if not isinstance(source, str | Path):
        source = _in_memory(source, None if asked is None else [*asked, *optional])
    opened = scan(source, columns=asked, optional=optional)
    try:
        names = _chosen(opened, key, asked, optional, exclude)
        if not opened.typed:  # parsed once
            cells = ", ".join(quoted(name) for name in dict.fromkeys([*key, *names]))
            opened.run(f"CREATE TEMP TABLE cells AS SELECT {cells} FROM source")
            opened.run("DROP VIEW source")
            opened.run("ALTER TABLE cells RENAME TO source")
        return _fetch(opened, key, names, kinds or {}, words)
    except duckdb.Error as error:
        raise unreadable(opened.path, error) from None
    finally:
        opened.close()


def looks_like_id(name: str, values: np.ma.MaskedArray) -> bool:
    """Whether the cells are all different and number the rows, are words, or are called an id."""
    if len(values) < _FEW or np.ma.getmaskarray(values).any() or values.dtype.kind not in "fU":
        return False
    data = values.data
    if len(np.unique(data)) < len(data):
        return False
    if data.dtype.kind == "U" or _IDS.fullmatch(name):
        return True
    return bool(np.ptp(data) == len(data) - 1 and (data == np.rint(data)).all())


def names(values: np.ma.MaskedArray) -> np.ndarray:
    """Cells as text; a whole number reads the same whether it was stored as 3 or as 3.0."""
    data = np.where(np.ma.getmaskarray(values), np.zeros((), values.dtype), values.data)
    text = data.astype(str)
    if data.dtype.kind == "f":
        whole = (data == np.rint(data)) & (np.abs(data) < 2**53)  # beyond, a float skips integers
        text[whole] = data[whole].astype(np.int64).astype(str)
    return text


def _chosen(
    opened: Scan,
    keys: Sequence[str],
    asked: list[str] | None,
    optional: Iterable[str],
    exclude: Iterable[str],
) -> list[str]:
    """The columns to read as values, each once."""
    exclude = list(exclude)
    need(opened.types, [*keys, *exclude], owner=opened.path)
    if asked is None:
        return [name for name in opened.types if name not in {*keys, *exclude}]
    need(opened.types, asked, owner=opened.path)
    both = [name for name in asked if name in exclude]
    sentence = f"{', '.join(map(repr, both))} cannot be both excluded and a feature or label."
    check.expect(not both, opened.path, sentence)
    there = [name for name in optional if name in opened.types]
    return list(dict.fromkeys(name for name in [*asked, *there] if name not in keys))


def _fetch(
    opened: Scan,
    keys: Sequence[str],
    names: list[str],
    kinds: Mapping[str, tuple[Kind, str]],
    missing: Sequence[str],
) -> Table:
    """The columns, each with the kind that was given or is guessed."""
    guessed = [name for name in names if name not in kinds]
    columns = describe(opened, guessed, missing=missing)
    given = [name for name in names if name in kinds]
    for name in given:
        columns[name] = as_kind(opened, name, *kinds[name], missing, commas=False)
    for name in _unread(opened, [columns[name] for name in given]):
        columns[name] = as_kind(opened, name, *kinds[name], missing)
        _check_kind(opened, columns[name])
    cells = [columns[name].value for name in names]
    if keys:
        cells.append(key_of(opened.types, keys, missing))
    arrays = [array for some in in_turn(cells) for array in _arrays(opened, some)]
    check.expect(len(arrays[0]) > 0, opened.path, "the file has a header but no rows.")
    key = _masked(" and ".join(keys), arrays.pop(), opened.path) if keys else None
    own = zip(names, arrays, strict=True)
    return Table(
        columns={name: _masked(name, values, opened.path) for name, values in own},
        kinds={name: columns[name] for name in names},
        key=key,
        source=opened.path,
    )


def _arrays(opened: Scan, cells: Sequence[str]) -> list[Any]:
    """Cells as arrays, in the order of the rows."""
    selected = [f"{cell} AS v{place}" for place, cell in enumerate(cells)]
    found = opened.connection.execute(f"SELECT {', '.join(selected)} FROM source").fetchnumpy()
    return [found[f"v{place}"] for place in range(len(cells))]


def _unread(opened: Scan, columns: Sequence[Column]) -> Iterator[str]:
    """Names of the columns with a present cell that cannot be read as their kind."""
    for some in in_turn(columns):
        unread = [f"bool_or(({each.cell}) IS NOT NULL AND ({each.value}) IS NULL)" for each in some]
        found = opened.run(f"SELECT {', '.join(unread)} FROM source")[0]
        yield from (column.name for column, is_so in zip(some, found, strict=True) if is_so)


def _check_kind(opened: Scan, column: Column) -> None:
    """Every present cell can be read as the kind that was given."""
    cells = f"SELECT row_number() OVER () AS place, {column.cell} AS c, {column.value} AS v"
    wrong = opened.run(
        f"SELECT place, CAST(c AS VARCHAR) FROM ({cells} FROM source) "
        "WHERE c IS NOT NULL AND v IS NULL ORDER BY place LIMIT 1"
    )
    if wrong:
        row, cell = wrong[0]
        rule = "a number" if column.kind == "number" else "a date"
        remedy = f"See row {row}."
        check.require(False, opened.path, f"column {column.name!r}", rule, cell, remedy)


def _masked(name: str, values: Any, owner: str) -> np.ma.MaskedArray:
    """A fetched column: words as text, NaN as missing."""
    missing, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if data.dtype == object:
        words = np.where(missing, "", data).tolist()
        longest = max(map(len, words), default=0)
        rule, remedy = f"at most {_LONGEST} characters long", "Leave it out of the features."
        fits = longest <= _LONGEST
        check.require(fits, owner, f"text in column {name!r}", rule, longest, remedy)
        data = np.array(words, str)
    elif data.dtype.kind == "f":
        missing = missing | np.isnan(data)
    return np.ma.MaskedArray(data, missing)


def _in_memory(source: Any, wanted: Iterable[str] | None) -> dict[str, np.ndarray]:
    """The wanted columns of a data frame or mapping that are there, as arrays for DuckDB."""
    source = taken(source)
    is_mapping = isinstance(source, Mapping)
    if not is_mapping and not (hasattr(source, "columns") and hasattr(source, "__getitem__")):
        rule = "columns, a path, or a data frame (Arrow data, or .columns and [name])"
        raise TypeError(check.message("table", "source", rule, type(source).__name__))
    labels = list(source if is_mapping else source.columns)
    present = {str(label): label for label in labels}
    once = len(present) == len(labels)
    check.require(once, "table", "names of columns", "different", [str(each) for each in labels])
    chosen = present if wanted is None else [name for name in wanted if name in present]
    columns = {name: _column(name, taken(source[present[name]])) for name in chosen}
    lengths = {name: len(values) for name, values in columns.items()}
    same = len(set(lengths.values())) == 1 and min(lengths.values()) > 0
    check.require(same or not lengths, "table", "columns", "of one length above 0", lengths)
    return columns


def _column(name: str, values: Any) -> np.ndarray:
    """One column in memory as DuckDB takes it, missing cells None, NaN or NaT."""
    masked = isinstance(values, np.ma.MaskedArray)
    array = values.data if masked else np.asarray(values)
    check.require(array.ndim == 1, "table", f"column {name!r}", "a single column", array.shape)
    missing = np.ma.getmaskarray(values) if masked else np.zeros(len(array), bool)
    if hasattr(values, "isna"):  # pandas, whose NA has no truth value to test cell by cell
        missing = missing | np.asarray(values.isna(), bool)
    if array.dtype == object:
        array, missing = _inferred(name, array, missing)
    if array.dtype.kind not in "biufMUS":
        rule, remedy = "numbers, text, dates or truth values", "Leave it out of the features."
        check.require(False, "table", f"column {name!r}", rule, str(array.dtype), remedy)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    elif array.dtype.kind == "f" or (array.dtype.kind in "iu" and missing.any()):
        exact = array.dtype.kind == "f" or bool((np.abs(array[~missing]) < 2**53).all())
        array = array.astype(np.float64 if exact else str)
    elif missing.any():
        array = array.astype(str)
    if array.dtype.kind in "US":
        array = array.astype(str).astype(object)
    if missing.any():  # DuckDB before 2.0 does not look at masks
        array = array.copy()
        array[missing] = {"f": np.nan, "M": "NaT"}.get(array.dtype.kind)
    return array


def _inferred(name: str, array: np.ndarray, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An object column with the type that its present cells have in common."""
    gaps = [cell is None or (isinstance(cell, float) and math.isnan(cell)) for cell in array]
    missing = missing | np.array(gaps, bool)
    cells = array[~missing].tolist()
    scalar = not any(isinstance(cell, Sized) and not isinstance(cell, str) for cell in cells)
    rule = "one number, word or truth value"
    check.require(scalar, "table", f"each cell of column {name!r}", rule, "a list")
    present = np.array(cells) if cells else np.empty(0, str)
    if present.dtype == object:  # decimals, dates and the like
        try:
            present = present.astype(float)
        except (TypeError, ValueError):
            present = present.astype(str)
    typed = np.zeros(array.shape, present.dtype)
    typed[~missing] = present
    return typed, missing
