"""A file of lines to which any number of processes append, one at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fedprior.core import lock
from fedprior.core.check import PrivacyError
from fedprior.core.files import naming

_PATIENCE = 300.0  # seconds; others hold the lock while they compute an epsilon


class HeldFile:
    """Appends whole lines to a file, locked for each transaction and synced after every line.

    The lock belongs to the open file, and every transaction opens it anew: threads, forks and other
    processes wait for each other, and a killed process releases it. The file must remain the same
    one: a ledger of the same name that was put in its place is refused.
    """

    def __init__(self, path: Path, *, existing: bool = False) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._inode: tuple[int, int] | None = None
        self._existing = existing

    @contextlib.contextmanager
    def locked(self) -> Iterator["HeldFile"]:
        """Hold the file for a transaction."""
        with self._opened() as file:
            if not lock.take(file, patience=_PATIENCE):
                raise PrivacyError(
                    f"ledger: {self.path} has been in use by another process for "
                    f"{_PATIENCE:g} seconds. Wait for it to end."
                )
            self._check(file)
            self._file = file
            try:
                yield self
            finally:
                self._file = None

    def read(self, start: int) -> bytes:
        """Return the content from byte `start` on."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < start:
            raise PrivacyError(
                f"ledger: {self.path} was truncated by another process while it was in use; "
                "nothing more can be spent on it."
            )
        self._file.seek(start)
        return self._file.read()

    def cut(self, length: int) -> None:
        """Truncate the file to `length` bytes."""
        assert self._file is not None
        self._file.truncate(length)

    def append(self, line: bytes) -> None:
        """Append a line and sync it to disk."""
        assert self._file is not None
        rest = memoryview(line + b"\n")
        with naming(self.path):
            while rest:  # a full disk takes a part; the next transaction cuts it off
                rest = rest[os.write(self._file.fileno(), rest) :]
        self.sync()

    def sync(self) -> None:
        """Sync the content to disk."""
        assert self._file is not None
        with naming(self.path):
            os.fsync(self._file.fileno())

    def _opened(self) -> IO[bytes]:
        """Open the file, which is created only in the first transaction."""
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)
        if self._inode is None and not self._existing:
            flags |= os.O_CREAT
        try:
            with naming(self.path):
                return os.fdopen(os.open(self.path, flags, 0o666), "r+b", buffering=0)
        except FileNotFoundError:
            raise self._gone() from None

    def _check(self, file: IO[bytes]) -> None:
        status = os.fstat(file.fileno())
        inode = (status.st_dev, status.st_ino)
        try:
            in_place = os.path.samestat(status, os.stat(self.path))
        except FileNotFoundError:
            in_place = False
        if not in_place or self._inode not in (None, inode):
            raise self._gone()
        self._inode = inode

    def _gone(self) -> PrivacyError:
        if self._inode is None:
            return PrivacyError(f"ledger: {self.path} does not exist.")
        return PrivacyError(
            f"ledger: {self.path} was moved, removed or replaced while it was in use; nothing "
            "more can be spent on it."
        )
