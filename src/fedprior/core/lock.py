"""A lock that one process holds at a time, and that the operating system releases on its death."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedprior.core.files import make_folder, naming, remove_temporary

NAME = ".lock"  # in a folder that is owned


def take(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed; False where somebody else has it."""
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
def owned(folder: Path) -> Iterator[None]:
    """Own a folder, which is made if need be; a second owner is refused by name meanwhile.

    Temporary files that killed processes left in it are removed.
    """
    make_folder(Path(folder))
    with held(Path(folder) / NAME, folder):
        remove_temporary(Path(folder))
        yield


@contextlib.contextmanager
def held(path: Path, what: object) -> Iterator[None]:
    """Hold the lock file `path` that stands for `what`, which is refused by name if it is in use.

    The lock file names the process and is removed in the end. Whoever finds one that a killed
    process left behind takes it over.
    """
    with contextlib.ExitStack() as stack:
        with naming(path):
            file = stack.enter_context(_opened(path))
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
def _opened(path: Path) -> Iterator[IO[bytes] | None]:
    """The lock file, locked, or None where another process has it."""
    while True:
        with path.open("a+b") as file:
            if not take(file):
                yield None
                return
            # Its former holder may have removed it between opening and locking: try again.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield file
                return


def _holder(path: Path) -> str:
    try:
        return f"process {int(path.read_bytes())}"
    except (OSError, ValueError):
        return "another process"
