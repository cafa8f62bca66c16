"""A file to which only one process appends, synced to disk after every line."""

import os
from pathlib import Path
from typing import IO

from fedprior.core import lock
from fedprior.core.check import PrivacyError
from fedprior.core.files import naming


class HeldFile:
    """Appends whole lines to a locked file, and refuses if any other process has modified it.

    The lock belongs to the open file, not to its name or to the process: it survives a rename, and
    a forked process shares it. Therefore, before every line, the process must be the one that
    opened the file, and the file must still have its name and its last known length.
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
        """Close the file and release the lock."""
        self._file.close()

    def read(self) -> bytes:
        """Return the whole content."""
        self._file.seek(0)
        return self._file.read()

    def cut(self, length: int) -> None:
        """Truncate the file to `length` bytes."""
        self._check()
        self._file.truncate(length)
        self._length = length

    def append(self, line: bytes) -> None:
        """Append a line and sync it to disk."""
        self._check()
        with naming(self.path):
            self._file.write(line + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._length += len(line) + 1

    def _check(self) -> None:
        status = os.fstat(self._file.fileno())
        try:
            in_place = os.path.samestat(status, os.stat(self.path))
        except FileNotFoundError:
            in_place = False
        if os.getpid() != self._owner:
            raise PrivacyError(
                f"ledger: {self.path} was opened by another process (a parent of this one). Open "
                "it in the process that uses it, one process at a time."
            )
        if not in_place:
            raise PrivacyError(
                f"ledger: {self.path} was moved, removed or replaced while it was open; nothing "
                "more can be spent on it."
            )
        if status.st_size != self._length:
            raise PrivacyError(
                f"ledger: {self.path} was modified by another process while it was open; nothing "
                "more can be spent on it."
            )


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock the file until it is closed (by the operating system, if the process dies)."""
    if not lock.take(file):
        raise PrivacyError(f"ledger: {path} is in use by another process. Wait for it to end.")
