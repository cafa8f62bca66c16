"""Standard input as a table: `-` in place of a path.

A table is read more than once (its header, its cells, its rows again after a fault), and a pipe can
be read once. So it is copied to a temporary file first, which may be larger than memory and is
removed when the process ends, by an error or Ctrl-C as well.
"""

import atexit
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

NAME = "standard input"
_PATH = "-"
_BLOCK = 1 << 20  # bytes
_SUFFIXES = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}  # by how files begin


def is_standard_input(path: str | Path | None) -> bool:
    """Whether the path is `-`; a file of that name is `./-`."""
    return path is not None and str(path) == _PATH


def shown(path: str | Path) -> str:
    """What messages call the file."""
    return NAME if is_standard_input(path) else str(path)


def resolved(path: str | Path) -> str:
    """The path from the root of the disk; `-` stays as it is."""
    return _PATH if is_standard_input(path) else str(Path(path).resolve())


def copied() -> str:
    """The temporary file with what standard input holds: .csv, .csv.gz or .parquet.

    One copy per process, however often the table is read.
    """
    return _copy(sys.stdin)


@lru_cache(maxsize=1)
def _copy(stream: Any) -> str:
    rule, remedy = "a pipe or a file", "Pipe a table into it: zcat visits.csv.gz | fedprior ..."
    if stream is None or stream.closed or stream.isatty():
        got = "nothing" if stream is None or stream.closed else "a terminal"
        raise ValueError(f"{NAME}: it must be {rule}, got {got}. {remedy}")
    folder = Path(tempfile.mkdtemp(prefix="fedprior-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return str(_write(getattr(stream, "buffer", stream), folder))
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise ValueError(
                f"{NAME}: it must fit into {folder.parent}, got: {reason}. Set TMPDIR to a folder "
                "with more space."
            ) from None
        raise


def _write(stream: Any, folder: Path) -> Path:
    begin = stream.read(_BLOCK)
    if not begin:
        raise ValueError(f"{NAME}: it is empty.")
    found = (suffix for mark, suffix in _SUFFIXES.items() if begin.startswith(mark))
    path = folder / f"table{next(found, '.csv')}"
    with path.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(stream, file, _BLOCK)
    return path
