"""CSV files, Parquet files and globs as one DuckDB view that is read a block at a time.

Nothing here holds the rows: a file may be larger than memory, and what DuckDB cannot keep it writes
to a folder of its own that goes with the connection.
"""

import csv
import glob
import gzip
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fedprior.core import check
from fedprior.data.columns import PARQUET_SUFFIXES, TEXT_SUFFIXES, need

_DELIMITERS = (",", ";", "\t", "|")
_NUMERIC = re.compile("BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*")
_WHOLE = re.compile("U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER")
_WORDS = re.compile("VARCHAR|ENUM.*")


class Scan(NamedTuple):
    """A connection whose view `source` holds the rows; the type of each column by its name."""

    connection: Any
    types: dict[str, str]
    path: str  # as the user wrote it
    spill: str  # the folder for what does not fit into memory
    parquet: str | None = None  # the files as an SQL list, where they are Parquet

    def footer(self, query: str) -> Any:
        """One row about the Parquet files, from their footers alone; None for CSV."""
        if self.parquet is None:
            return None
        return self.connection.execute(query.format(files=self.parquet)).fetchone()

    def num_rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""
        found = self.footer("SELECT sum(num_rows) FROM parquet_file_metadata({files})")
        return None if found is None else int(found[0])

    def is_binary(self, column: str) -> bool:
        """Whether every cell is known to be 0 or 1 before any is read: by type, or by footer."""
        kind = self.types[column]
        if kind == "BOOLEAN" or not _WHOLE.fullmatch(kind):
            return kind == "BOOLEAN"
        low, high = (f"TRY_CAST(stats_{end}_value AS DOUBLE)" for end in ("min", "max"))
        found = self.footer(
            f"SELECT min({low}) >= 0 AND max({high}) <= 1 AND count(*) = count({low} + {high}) "
            f"FROM parquet_metadata({{files}}) WHERE path_in_schema = {literal(column)}"
        )
        return found is not None and bool(found[0])

    def close(self) -> None:
        self.connection.close()
        shutil.rmtree(self.spill, ignore_errors=True)

    def is_text(self, column: str) -> bool:
        return _WORDS.fullmatch(self.types[column]) is not None

    def number(self, column: str) -> str:
        """The column as DOUBLE; a cell of text that is no number becomes NULL."""
        kind = self.types[column]
        if self.is_text(column):
            return f"TRY_CAST({quoted(column)} AS DOUBLE)"
        if not _NUMERIC.fullmatch(kind):
            rule = "a column of numbers"
            check.require(False, self.path, f"column {column!r}", rule, kind.lower())
        return f"CAST({quoted(column)} AS DOUBLE)"


def scan(path: str, *, columns: Iterable[str], memory_limit: str | None = None) -> Scan:
    """The rows of a file or glob, with the wanted columns checked to be there.

    `memory_limit` is DuckDB's ("2GB"); by default it is four fifths of the machine's memory.
    """
    import duckdb

    files = find_files(path)
    is_parquet = _is_parquet(files[0])
    wanted = list(columns)
    reader = f"read_parquet({_listed(files)})" if is_parquet else _csv(path, files, wanted)
    spill = tempfile.mkdtemp(prefix="fedprior-")
    config: dict[str, Any] = {"temp_directory": spill}
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    listed = _listed(files) if is_parquet else None
    found = Scan(duckdb.connect(config=config), {}, path, spill, listed)
    try:
        found.connection.execute("SET enable_progress_bar = false")  # it would go to stdout
        found.connection.execute(f"CREATE TEMP VIEW source AS SELECT * FROM {reader}")
        described = found.connection.execute("DESCRIBE source").fetchall()
        found.types.update({row[0]: row[1] for row in described})
        need(found.types, wanted, owner=path)
    except BaseException as error:
        found.close()
        if isinstance(error, duckdb.Error):
            raise unreadable(path, error) from None
        raise
    return found


def unreadable(path: str, error: Exception) -> ValueError:
    """DuckDB's error in one line: its first paragraph, without the hints for its own users."""
    reason = _reason(error)
    rule = "a readable table"
    if "OutOfMemory" in type(error).__name__:
        rule = "a table whose groups fit into memory and temporary disk space"
    return ValueError(f"{path}: file must be {rule}, got: {reason}")


@contextmanager
def writing(path: Path, option: str, *, owner: str = "estimate") -> Iterator[None]:
    """A failure to write, of the system or of DuckDB, names the option that named the file."""
    try:
        yield
    except Exception as error:
        duckdb = sys.modules.get("duckdb")  # what is not loaded has not failed
        if not isinstance(error, OSError) and not (duckdb and isinstance(error, duckdb.Error)):
            raise
        reason = (isinstance(error, OSError) and error.strerror) or _reason(error)
        rule = "a file that can be written"
        raise ValueError(f"{owner}: {option} must be {rule}, got {path} ({reason}).") from None


def _reason(error: Exception) -> str:
    text = str(error).split("\n\n")[0].split("Possible ")[0].split("Potential ")[0]
    return " ".join(text.split())


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def find_files(path: str) -> list[str]:
    """The file, or the files of a glob in order; all of them CSV or all of them Parquet."""
    if Path(path).is_dir():
        raise ValueError(
            f"{path}: FILE must be a file or a glob, got a folder. Try '{path}/*.csv'."
        )
    names = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    files = [name for name in names if Path(name).is_file()]
    if not files:
        raise ValueError(f"{path}: FILE must be a file or a glob, got nothing there.")
    for name in files:
        if not name.lower().endswith(PARQUET_SUFFIXES + TEXT_SUFFIXES):
            known = ", ".join(TEXT_SUFFIXES + PARQUET_SUFFIXES)
            raise ValueError(f"{name}: file must end in one of {known}, got {Path(name).suffix!r}.")
        if _is_parquet(name) != _is_parquet(files[0]):
            raise ValueError(f"{path}: files must be all CSV or all Parquet, got both.")
    if not any(Path(name).stat().st_size for name in files):
        raise ValueError(f"{path}: file must have rows, got an empty file.")
    return files


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(PARQUET_SUFFIXES)


def _listed(files: list[str]) -> str:
    # DuckDB would read [, * and ? as a pattern.
    return "[" + ", ".join(literal(glob.escape(name)) for name in files) + "]"


def _csv(path: str, files: list[str], wanted: list[str]) -> str:
    """All columns as text, by their header, with nothing left to guess but the delimiter.

    DuckDB's own detection looks at the first rows only: it drops rows that do not fit its guess and
    fails on a first quote far down.
    """
    files = [name for name in files if Path(name).stat().st_size]
    delimiter, header = _header(files[0], wanted)
    need(header, wanted, owner=path)
    for name in files[1:]:
        if _fields(name, delimiter) != header:
            rule = f"the same columns as {files[0]}"
            check.require(False, name, "header", rule, ",".join(_fields(name, delimiter)[:12]))
    # DuckDB takes X and x for one name; the first of them keeps it.
    low = [name.lower() for name in header]
    unique = [
        name if name and low.index(name.lower()) == place else f"{name}#{place + 1}"
        for place, name in enumerate(header)
    ]
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in unique)
    return (
        f"read_csv({_listed(files)}, auto_detect=false, header=true, delim={literal(delimiter)}, "
        f"""quote='"', escape='"', columns={{{columns}}})"""
    )


def _header(name: str, wanted: list[str]) -> tuple[str, list[str]]:
    """The delimiter under which the header has most of the wanted columns, and its fields."""
    found = [(delimiter, _fields(name, delimiter)) for delimiter in _DELIMITERS]
    return max(found, key=lambda pair: (len({*wanted} & {*pair[1]}), len(pair[1])))


def _fields(name: str, delimiter: str) -> list[str]:
    opened: Any = gzip.open if name.lower().endswith(".gz") else open
    with opened(name, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            return next(csv.reader(file, delimiter=delimiter), [])
        except (csv.Error, OSError) as error:
            raise ValueError(f"{name}: file must be a readable table, got: {error}") from None
