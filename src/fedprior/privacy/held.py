"""A file that one process alone appends to, and that is on disk after every line."""

import os
from pathlib import Path
from typing import IO

from fedprior.core import lock
from fedprior.core.check import PrivacyError
from fedprior.core.files import naming


class HeldFile:
    """Whole lines, locked while open; nothing is added to a file that anybody else has touched.

    A lock goes with the open file, not with its name or with the process: a file that was moved
    away still has it, and a forked process has it as well. So before every line the process must be
    the one that opened the file, and the file must have its name and the length it was left at.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._owner = path, os.getpid()
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - held while the run lasts
        try:
            _lock(self._file, path)
            self._length = os.fstat(self._file.fileno()).st_size
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Let another process have it."""
        self._file.close()

    def read(self) -> bytes:
        """All of it."""
        self._file.seek(0)
        return self._file.read()

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes."""
        self._check()
        self._file.truncate(length)
        self._length = length

    def append(self, line: bytes) -> None:
        """The line, on disk when this returns."""
        self._check()
        with naming(self.path):
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._length += len(line) + 1

    def _check(self) -> None:
        own = os.fstat(self._file.fileno())
        try:
            named = os.path.samestat(own, os.stat(self.path))
        except FileNotFoundError:
            named = False
        if os.getpid() != self._owner:
            raise PrivacyError(
                f"ledger: {self.path} must be used by the process that opened it, got a fork of "
                "it. Open the ledger there, one process after the other."
            )
        if not named or own.st_size != self._length:
            raise PrivacyError(
                f"ledger: {self.path} must stay as this process left it, got "
                f"{'another length' if named else 'another file or none'}. It was removed, "
                "replaced or written by others; nothing more is spent on it."
            )


def _lock(file: IO[bytes], path: Path) -> None:
    """Nobody else, until the file is closed (by the system, if the process dies)."""
    if not lock.take(file):
        raise PrivacyError(
            f"ledger: {path} must be free, got one that another process holds. Wait for it to end."
        )
