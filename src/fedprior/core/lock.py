"""A lock held by one process at a time, which the operating system releases if the process dies."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedprior.core.files import make_folder, naming, remove_temporary

NAME = ".lock"  # in an owned folder
_TRIES, _PAUSE = 50, 0.02  # one second for the holder to write its process id


def take(file: IO[bytes], *, patience: float = 0.0) -> bool:
    """Lock an open file until it is closed; returns False if it stays locked for too long.

    `patience` is how many seconds to wait for another holder.
    """
    end = time.monotonic() + patience
    while not _taken(file):
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True


def _taken(file: IO[bytes]) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def owned(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Own a folder, creating it if necessary; a second owner raises ValueError in the meantime.

    `patience` is how many seconds to wait for another owner.

    Temporary files that killed processes left in the folder are removed.
    """
    make_folder(Path(folder))
    with held(Path(folder) / NAME, folder, patience=patience):
        remove_temporary(Path(folder))
        yield


@contextlib.contextmanager
def held(path: Path, what: object, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` that protects `what`; raises ValueError if `what` is in use.

    The lock file contains the process id and is removed at exit. A lock file left behind by a
    killed process is taken over.
    """
    with contextlib.ExitStack() as stack:
        with naming(path):
            file = stack.enter_context(_opened(path, patience))
        if file is None:
            process = _holder(path)
            raise ValueError(f"{what} is in use by {process}. Wait for it to end, or stop it.")
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(path: Path, patience: float) -> Iterator[IO[bytes] | None]:
    """Yield the locked file, or None if another process holds the lock."""
    while True:
        with path.open("a+b") as file:
            if not take(file, patience=patience):
                yield None
                return
            # The previous holder may have removed the file between opening and locking: try again.
            if _is_at(path, file):
                yield file
                return


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """Describe the process that a lock file names, which its holder does just after locking it."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError, ValueError):
            return f"process {int(path.read_bytes())}"
        time.sleep(_PAUSE)
    return "another process"


def holder(folder: Path) -> int | None:
    """The process that owns a folder now, None if nobody does; the lock itself is not touched.

    Trying to take it, even for a moment, could refuse an owner that is about to begin.
    """
    try:
        process = int((Path(folder) / NAME).read_bytes())
    except (OSError, ValueError):
        return None
    if os.name == "nt":  # where signal 0 would end the process
        return process
    try:
        os.kill(process, 0)
    except ProcessLookupError:  # it was killed, and left the file
        return None
    except OSError:  # it is somebody else's
        return process
    return process
