"""CSV files, Parquet files, globs, standard input and arrays as one DuckDB view.

The rows of files are read a block at a time: a file may be larger than memory, and DuckDB writes
what it cannot keep to a folder of its own that goes with the connection.
"""

import codecs
import csv
import glob
import gzip
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedprior.core import check
from fedprior.data import standard_input

TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")

_DELIMITERS = (",", ";", "\t", "|")
_NUMERIC = re.compile("U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*")
_WHOLE = re.compile("U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER")
_WORDS = re.compile('VARCHAR|ENUM.*|"NULL"')
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, UnicodeError, csv.Error)
_MARKS = {  # byte order marks, the longer ones first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Scan(NamedTuple):
    """A connection whose view `source` holds the rows; the type of each column by its name."""

    connection: Any
    types: dict[str, str]
    path: str  # as messages have it
    spill: str  # the folder for what does not fit into memory
    parquet: str | None = None  # the files as an SQL list, where they are Parquet
    typed: bool = True  # False for a CSV file, all of whose cells are text
    semicolons: bool = False  # between the cells of a CSV file: a comma is then a decimal one

    def run(self, query: str) -> list[tuple[Any, ...]]:
        """All rows that the query gives."""
        rows: list[tuple[Any, ...]] = self.connection.execute(query).fetchall()
        return rows

    def num_rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""
        if self.parquet is None:
            return None
        query = f"SELECT sum(num_rows) FROM parquet_file_metadata({self.parquet})"
        return int(self.run(query)[0][0])

    def is_binary(self, column: str) -> bool:
        """Whether every cell is known to be 0 or 1 before any is read: by type, or by footer."""
        kind = self.types[column]
        if self.parquet is None or not _WHOLE.fullmatch(kind):
            return kind == "BOOLEAN"
        low, high = (f"TRY_CAST(stats_{end}_value AS DOUBLE)" for end in ("min", "max"))
        return bool(
            self.run(
                f"SELECT min({low}) >= 0 AND max({high}) <= 1 AND "
                f"count(*) = count({low} + {high}) FROM parquet_metadata({self.parquet}) "
                f"WHERE path_in_schema = {literal(column)}"
            )[0][0]
        )

    def close(self) -> None:
        self.connection.close()
        shutil.rmtree(self.spill, ignore_errors=True)

    @staticmethod
    def is_number(kind: str) -> bool:
        """Whether a DuckDB type is one of numbers."""
        return _NUMERIC.fullmatch(kind) is not None

    def is_text(self, column: str) -> bool:
        return _WORDS.fullmatch(self.types[column]) is not None

    def text(self, column: str) -> str:
        """SQL of a column of text as VARCHAR."""
        plain = self.types[column] == "VARCHAR"
        return quoted(column) if plain else f"CAST({quoted(column)} AS VARCHAR)"


def scan(
    source: Any,
    *,
    columns: Iterable[str] | None = None,
    optional: Iterable[str] = (),
    memory_limit: str | None = None,
) -> Scan:
    """The rows of a file, a glob, `-`, or of arrays by name, with the wanted columns checked.

    Columns that are wanted (all of them by default) or `optional` must not share their name.
    `memory_limit` is DuckDB's ("2GB"); by default it is four fifths of the machine's memory.
    """
    import duckdb

    in_memory = isinstance(source, Mapping)
    path = "table" if in_memory else standard_input.shown(source)
    files = [] if in_memory else find_files(str(source))
    wanted = None if columns is None else list(columns)
    spill = tempfile.mkdtemp(prefix="fedprior-")
    config: dict[str, Any] = {"temp_directory": spill}
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    listed = _listed(files) if files and _is_parquet(files[0]) else None
    opened = Scan(duckdb.connect(config=config), {}, path, spill, listed)
    try:
        opened.run("SET enable_progress_bar = false")  # it would go to stdout
        if in_memory:
            opened.connection.register("source", source)
        else:
            reader = f"read_parquet({listed})"
            if listed is None:
                reader, delimiter = _csv(path, files, wanted, list(optional), spill)
                opened = opened._replace(typed=False, semicolons=delimiter == ";")
            opened.run(f"CREATE TEMP VIEW source AS SELECT * FROM {reader}")
        opened.types.update({row[0]: row[1] for row in opened.run("DESCRIBE source")})
        need(opened.types, wanted or (), owner=path)
    except BaseException as error:
        opened.close()
        if isinstance(error, duckdb.Error):
            raise unreadable(path, error) from None
        raise
    return opened


def unreadable(path: str, error: Exception) -> ValueError:
    """DuckDB's error in one line: its first paragraph, without the hints for its own users."""
    copy = rf"""["']?{re.escape(tempfile.gettempdir())}/fedprior-[^\s"',:)]*["']?"""
    reason = re.sub(copy, path, reason_of(error))  # the user knows nothing of copies
    rule = "a readable table"
    if "OutOfMemory" in type(error).__name__:
        rule = "a table whose groups fit into memory and temporary disk space"
    remedy = " Save it as UTF-8." if "nicode" in reason or "utf-8" in reason else ""
    return ValueError(f"{path}: file must be {rule}, got: {reason}{remedy}")


def reason_of(error: Exception) -> str:
    """DuckDB's first paragraph, without its hints."""
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
    if standard_input.is_standard_input(path):
        return [standard_input.copied()]
    if Path(path).is_dir():
        raise ValueError(
            f"{path}: this is a folder, not a file. For all tables in it, quote '{path}/*.csv'."
        )
    names = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
    files = [name for name in names if Path(name).is_file()]
    if not files:
        raise ValueError(f"{path}: there is no such file, and no file matches it as a glob.")
    for name in files:
        if not name.lower().endswith(PARQUET_SUFFIXES + TEXT_SUFFIXES):
            known = ", ".join(TEXT_SUFFIXES + PARQUET_SUFFIXES)
            raise ValueError(f"{name}: file must end in one of {known}, got {Path(name).suffix!r}.")
        if _is_parquet(name) != _is_parquet(files[0]):
            raise ValueError(f"{path}: files must be all CSV or all Parquet, got both.")
    if not any(Path(name).stat().st_size for name in files):
        raise ValueError(f"{path}: the file is empty.")
    return files


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(PARQUET_SUFFIXES)


def _listed(files: list[str]) -> str:
    # DuckDB would read [, * and ? as a pattern.
    return "[" + ", ".join(literal(glob.escape(name)) for name in files) + "]"


def _csv(
    path: str, files: list[str], wanted: list[str] | None, optional: list[str], spill: str
) -> tuple[str, str]:
    """SQL that reads all columns as text, by their header, and the delimiter.

    Nothing else is left to guess: DuckDB's own detection looks at the first rows only, drops rows
    that do not fit its guess, and fails on a first quote far down.
    """
    filled = [name for name in files if Path(name).stat().st_size]
    owners = [path] if len(filled) == 1 else filled  # in messages
    texts = [_as_utf8(*pair, spill) for pair in zip(owners, filled, strict=True)]
    delimiter, header = _header(owners[0], texts[0], wanted or [])
    for name in header if wanted is None else [*wanted, *optional]:
        if name and header.count(name) > 1:
            raise ValueError(
                f"{path}: column {name!r} appears {header.count(name)} times in the header. "
                "Rename or remove the others."
            )
    for owner, text in zip(owners[1:], texts[1:], strict=True):
        own = _fields(owner, text, delimiter)
        rule = f"the same columns as {owners[0]}"
        check.require(own == header, owner, "header", rule, ",".join(own[:12]))
    # DuckDB takes X and x for one name; the first of them keeps it.
    low = [name.lower() for name in header]
    unique = [
        name if name and low.index(name.lower()) == place else f"{name}#{place + 1}"
        for place, name in enumerate(header)
    ]
    need(unique, wanted or (), owner=path)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in unique)
    reader = (
        f"read_csv({_listed(texts)}, auto_detect=false, header=true, delim={literal(delimiter)}, "
        f"""quote='"', escape='"'{_line_end(texts[0], header)}, columns={{{columns}}})"""
    )
    return reader, delimiter


def _as_utf8(owner: str, name: str, spill: str) -> str:
    """The file itself, or a copy in UTF-8 of one in UTF-16 or UTF-32."""
    try:
        with _opened(name, "rb") as file:
            start = file.read(1024)
        head = start[:4]
        encoding = next((code for mark, code in _MARKS.items() if head.startswith(mark)), None)
        if encoding is None and len(head) == 4:
            even, odd = (head[start::2] == b"\0\0" for start in (0, 1))
            encoding = "utf-16-be" if even else "utf-16-le" if odd else None
        if encoding is None:
            sentence = "the file is not text. A Parquet file must end in .parquet."
            if owner == standard_input.NAME:
                sentence = "it must be CSV (plain or gzip) or Parquet, got other bytes."
            check.expect(b"\0" not in start, owner, sentence)
            return name
        copy = tempfile.mkstemp(dir=spill, suffix=".csv")[1]
        with (
            _opened(name, "rt", encoding=encoding, newline="") as file,
            open(copy, "w", encoding="utf-8", newline="") as out,
        ):
            shutil.copyfileobj(file, out)
        return copy
    except _DAMAGED as error:
        raise ValueError(f"{owner}: file must be a readable table, got: {error}") from None


def _opened(name: str, mode: str, **options: Any) -> Any:
    return (gzip.open if name.lower().endswith(".gz") else open)(name, mode, **options)


def _header(owner: str, name: str, wanted: list[str]) -> tuple[str, list[str]]:
    """The delimiter under which the header has most of the wanted columns, and its fields."""
    headers = [(delimiter, _fields(owner, name, delimiter)) for delimiter in _DELIMITERS]
    return max(headers, key=lambda pair: (len({*wanted} & {*pair[1]}), len(pair[1])))


def _fields(owner: str, name: str, delimiter: str) -> list[str]:
    with _opened(name, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            return next(csv.reader(file, delimiter=delimiter), [])
        except _DAMAGED as error:
            raise ValueError(f"{owner}: file must be a readable table, got: {error}") from None


def _line_end(name: str, header: list[str]) -> str:
    """How lines end, in SQL, where a name of the header has several lines, as spreadsheets write.

    DuckDB takes the first line break of a file for that of all its lines.
    """
    if not any("\n" in each or "\r" in each for each in header):
        return ""
    with _opened(name, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        quotes = 0
        for line in file:
            quotes += line.count('"')
            if quotes % 2 == 0:
                break
    end = line[len(line.rstrip("\r\n")) :]
    return f", new_line={literal(end.encode('unicode_escape').decode())}" if end else ""


def need(present: Iterable[str], wanted: Iterable[str], *, owner: str) -> None:
    """Every wanted column is present; the error names the nearest."""
    present = list(present)
    for name in wanted:
        if name not in present:
            hint = check.nearest(name, present)
            shown = ", ".join(present[:12]) + (", ..." if len(present) > 12 else "")
            raise ValueError(
                f"{owner}: there is no column {name!r}, only {shown}." + (f" {hint}" * bool(hint))
            )
