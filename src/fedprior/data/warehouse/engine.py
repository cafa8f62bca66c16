"""An engine is three verbs: read small tables, upload a lookup, write a table of answers.

Expressions are narwhals'; an engine only moves tables. All are imported on use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedprior.core import check
from fedprior.data.warehouse.tables import (
    ANSWERS,
    check_name,
    copied,
    drop,
    identifier,
    kept,
    new_name,
    transaction,
)

FRAME = "a data frame, a lazy Polars frame, a DuckDB relation, a PySpark frame or an Ibis table"
_GIVEN = "fedprior_given_rows"  # what a statement calls the relation that it runs on
_EXTRAS = {"pyspark": "spark"}


class Engine(Protocol):
    """Where the rows are, and how tables move; frames are narwhals' lazy ones."""

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        """The columns of a small frame; a missing number is NaN, a missing label None."""

    def upload(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Columns without missing values as a frame that the rows can be joined with."""

    def thin(self, frame: Any, keys: Sequence[str], every: int) -> Any:
        """One row in `every`, about, the same each time; a step of `read`."""

    def write(self, frame: Any, table: str | None = None, *, replace: bool = False) -> Any:
        """Compute a frame once: into a table, whole or not at all, or for this session only."""


def engine_of(owner: str, frame: Any) -> Engine:
    """The engine of a native frame; raises TypeError for anything that is not lazy."""
    library = type(frame).__module__.partition(".")[0].removeprefix("_")
    makers: dict[str, Callable[[Any], Engine]] = {
        "duckdb": DuckDB,
        "polars": Polars,
        "pyspark": Spark,
        "ibis": Ibis,
    }
    if library not in makers or type(frame).__name__ == "Series":
        got = f"{type(frame).__module__}.{type(frame).__qualname__}"
        raise TypeError(check.message(owner, "frame", FRAME, got))
    return makers[library](frame)


def wrap(owner: str, frame: Any) -> Any:
    """The frame as narwhals has it, lazy."""
    library = type(frame).__module__.partition(".")[0]
    return narwhals(owner, _EXTRAS.get(library, "warehouse")).from_native(frame).lazy()


def narwhals(owner: str, extra: str = "warehouse") -> Any:
    """The module narwhals; the error says how to install it."""
    try:
        import narwhals
    except ImportError:
        sentence = f"frames of other engines need narwhals. pip install 'fedprior[{extra}]'"
        raise ValueError(f"{owner}: {sentence}") from None
    return narwhals


class ByKey:
    """One row in `every` in the order of the keys: as representative as a random sample."""

    def thin(self, frame: Any, keys: Sequence[str], every: int) -> Any:
        import narwhals as nw

        place = "fedprior_place"
        ordered = frame.with_row_index(place, order_by=list(keys))
        return ordered.filter(nw.col(place) % every == 0).drop(place)


@dataclass(frozen=True, eq=False)
class Polars(ByKey):
    """Lazy Polars frames; what is computed once is kept in memory."""

    frame: Any

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        return {column.name: _plain(column.to_numpy()) for column in frame.to_native().collect()}

    def upload(self, columns: Mapping[str, np.ndarray]) -> Any:
        import polars

        return _wrapped(polars.LazyFrame(dict(columns)))

    def write(self, frame: Any, table: str | None = None, *, replace: bool = False) -> Any:
        _no_table(table)
        return _wrapped(frame.to_native().collect().lazy())


@dataclass(frozen=True, eq=False)
class DuckDB(ByKey):
    """Relations of the caller's own connection, which only a relation's `query` reaches."""

    frame: Any

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        found = frame.to_native().fetchnumpy()
        return {name: _plain(values) for name, values in found.items()}

    def upload(self, columns: Mapping[str, np.ndarray]) -> Any:
        arrays = {name: np.ascontiguousarray(values) for name, values in columns.items()}
        return self._keep(self.frame, "FROM fedprior_lookup_columns", arrays)

    def write(self, frame: Any, table: str | None = None, *, replace: bool = False) -> Any:
        native = frame.to_native()
        if table is None:
            return self._keep(native, f"FROM {_GIVEN}")
        if replace:
            self._check_answers(native, table)
        made = f"CREATE {'OR REPLACE ' * replace}TABLE {identifier(table)}"
        _query(native, f"{made} AS FROM {_GIVEN}")
        return self._selected(native, f"FROM {identifier(table)}")

    @staticmethod
    def _check_answers(native: Any, table: str) -> None:
        """A relation does not tell which tables it reads; none of them looks like its answers."""
        try:
            columns = native.query(new_name(), f"FROM {identifier(table)}").columns
        except Exception:  # there is no such table
            return
        check.require(columns == native.columns, "DuckDB", "table", ANSWERS, table)

    def _keep(self, native: Any, select: str, columns: Any = None) -> Any:
        name = new_name()
        _query(native, f"CREATE TEMP TABLE {name} AS {select}", columns)
        return self._selected(native, f"FROM {name}")

    @staticmethod
    def _selected(native: Any, select: str) -> Any:
        return _wrapped(native.query(new_name(), select))


@dataclass(frozen=True, eq=False)
class Spark:
    """PySpark frames, of 4.0 and later."""

    frame: Any

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        return _arrow_arrays(frame.to_native().toArrow())

    def thin(self, frame: Any, keys: Sequence[str], every: int) -> Any:
        """By a hash of the keys: an order of all rows would move them to one machine."""
        from pyspark.sql import functions

        native = frame.to_native()
        code = functions.xxhash64(*(functions.col(key) for key in keys))
        return _wrapped(native.filter(functions.pmod(code, functions.lit(every)) == 0))

    def upload(self, columns: Mapping[str, np.ndarray]) -> Any:
        import pyarrow

        session = self.frame.sparkSession
        return _wrapped(session.createDataFrame(pyarrow.table(dict(columns))))

    def write(self, frame: Any, table: str | None = None, *, replace: bool = False) -> Any:
        native = frame.to_native()
        if table is None:
            # A cached frame may be computed again, and float sums in another order.
            return _wrapped(native.localCheckpoint())
        session = self.frame.sparkSession
        if replace and session.catalog.tableExists(table):
            columns = session.table(table).columns
            check.require(columns == native.columns, "Spark", "table", ANSWERS, table)
        native.write.mode("overwrite" if replace else "errorifexists").saveAsTable(table)
        return _wrapped(session.table(table))


@dataclass(frozen=True, eq=False)
class Ibis(ByKey):
    """Tables of any backend that Ibis reaches; temporary tables live as long as the connection."""

    frame: Any

    @property
    def backend(self) -> Any:
        return self.frame.get_backend()

    def thin(self, frame: Any, keys: Sequence[str], every: int) -> Any:
        """By a hash of the keys, where the backend has one, which saves to sort them."""
        native = frame.to_native()
        code = sum(native[key].hash() % every for key in keys)
        some = native.filter(code % every == 0)
        try:
            some.limit(0).to_pyarrow()
        except Exception:  # no hash for keys of this type: only the backend knows
            return super().thin(frame, keys, every)
        return _wrapped(some)

    def read(self, frame: Any) -> dict[str, np.ndarray]:
        return _arrow_arrays(frame.to_native().to_pyarrow())

    def upload(self, columns: Mapping[str, np.ndarray]) -> Any:
        import pyarrow

        backend, table = self.backend, pyarrow.table(dict(columns))
        if backend.name == "postgres":
            return _wrapped(copied(backend, table))
        return _wrapped(backend.create_table(new_name(), table, temp=True))

    def write(self, frame: Any, table: str | None = None, *, replace: bool = False) -> Any:
        backend, native = self.backend, frame.to_native()
        if table is None:
            return _wrapped(kept(backend, native))
        check_name(backend, table)
        schema, _, name = table.rpartition(".")
        if backend.name not in ("postgres", "duckdb"):
            made = backend.create_table(name, native, database=schema or None, overwrite=replace)
            return _wrapped(made)
        with transaction(backend) as run:
            if replace:
                drop(backend, run, table, keeping=self.frame)
            run(f"CREATE TABLE {identifier(table)} AS {backend.compile(native)}")
        return _wrapped(backend.table(name, database=schema or None))


def _wrapped(native: Any) -> Any:
    import narwhals

    return narwhals.from_native(native)


def _query(native: Any, statement: str, fedprior_lookup_columns: Any = None) -> None:
    """Run a statement on a relation's connection; DuckDB finds the argument by its name."""
    native.query(_GIVEN, statement)


def _no_table(table: str | None) -> None:
    remedy = "to_frame() gives a lazy frame: write it with its own sink_parquet or collect."
    check.expect(table is None, "Polars", f"there is no database to write a table to. {remedy}")


def _arrow_arrays(table: Any) -> dict[str, np.ndarray]:
    columns = zip(table.column_names, table.columns, strict=True)
    return {name: _plain(column.to_numpy(zero_copy_only=False)) for name, column in columns}


def _plain(values: Any) -> np.ndarray:
    """Masked cells as NaN or None; numbers stay numbers."""
    if not isinstance(values, np.ma.MaskedArray) or not np.ma.is_masked(values):
        return np.asarray(values)
    if values.dtype == object:
        return np.asarray(values.filled(None))
    return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
