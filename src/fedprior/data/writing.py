"""Tables on disk, as CSV or Parquet: whole or not at all."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.files import make_folder, replacing
from fedprior.data.cells import not_nan
from fedprior.data.scan import literal, quoted, reason_of

_FORMATS = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet"}


def write_table(columns: Mapping[str, np.ndarray], path: Path, *, owner: str) -> None:
    """Columns by name as a file; NaN is an empty cell (NULL)."""
    import duckdb

    with duckdb.connect() as connection:
        arrays = {name: np.ascontiguousarray(values) for name, values in columns.items()}
        connection.register("result", arrays)
        copy_to(connection, f"SELECT {filled(columns)} FROM result", path, owner=owner)


def copy_to(connection: Any, query: str, path: Path, *, owner: str) -> None:
    """The rows of a query as a file, CSV or Parquet by its ending."""
    with writing(path, "--out", owner=owner):
        make_folder(path.parent)
        with replacing(path) as aside:
            connection.execute(f"COPY ({query}) TO {literal(str(aside))} ({_FORMATS[path.suffix]})")


def filled(columns: Mapping[str, np.ndarray]) -> str:
    """SQL of columns by name, NaN as NULL."""
    return ", ".join(
        f"{not_nan(quoted(name))} AS {quoted(name)}" if values.dtype.kind == "f" else quoted(name)
        for name, values in columns.items()
    )


@contextmanager
def writing(path: Path, option: str, *, owner: str) -> Iterator[None]:
    """A failure to write, of the system or of DuckDB, names the option that named the file."""
    try:
        yield
    except Exception as error:
        duckdb = sys.modules.get("duckdb")  # what is not loaded has not failed
        if not isinstance(error, OSError) and not (duckdb and isinstance(error, duckdb.Error)):
            raise
        reason = (isinstance(error, OSError) and error.strerror) or reason_of(error)
        rule = "a file that can be written"
        raise ValueError(f"{owner}: {option} must be {rule}, got {path} ({reason}).") from None
