"""Rows of equal size in a file, one per client, each with a checksum of its own.

A row is a head of 32 bytes and a payload, the leaves of the client's tree in C order. Byte 0 of the
head is 1 where the row has been written and 0 where it never was (a hole of a sparse file); bytes 8
to 31 begin the SHA-256 of the row's number (8 bytes) and the payload; the others are 0.
"""

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fedprior.core import tree
from fedprior.core.algorithm import PyTree
from fedprior.core.files import replacing

_HEAD = 32
_DIGEST = slice(8, _HEAD)


class RowFormat:
    """Trees with the shapes and dtypes of `shape` <-> rows of bytes."""

    def __init__(self, shape: PyTree) -> None:
        import jax

        self._leaves, self._structure = jax.tree.flatten(shape)
        self.size = _HEAD + tree.nbytes(shape)  # bytes of a row

    def encode(self, numbers: np.ndarray, trees: PyTree) -> np.ndarray:
        """Rows (len(numbers), size) of the trees, which have a leading axis."""
        import jax

        rows = np.zeros((len(numbers), self.size), np.uint8)
        rows[:, 0] = 1
        first = _HEAD
        for leaf in jax.tree.leaves(trees):
            raw = np.ascontiguousarray(leaf).reshape(len(numbers), -1).view(np.uint8)
            rows[:, first : first + raw.shape[1]] = raw
            first += raw.shape[1]
        for number, row in zip(numbers.tolist(), rows, strict=True):
            row[_DIGEST] = _digest(number, row)
        return rows

    def decode(
        self, numbers: np.ndarray, rows: np.ndarray, source: Path
    ) -> tuple[PyTree, np.ndarray]:
        """(trees, written): the trees with a leading axis, and which rows were ever written.

        A row that has changed since is refused by the file's name and the client's number.
        """
        import jax

        for number, row in zip(numbers.tolist(), rows, strict=True):
            self.check(number, row, source)
        return jax.tree.unflatten(self._structure, self._split(rows)), rows[:, 0] == 1

    def check(self, number: int, row: np.ndarray, source: Path) -> None:
        """Raise unless the row is as it was written, or never was."""
        head = row[:_HEAD]
        if not head.any():
            return
        good = head[0] == 1 and not head[1:8].any()
        if not good or not np.array_equal(head[_DIGEST], _digest(number, row)):
            raise ValueError(
                f"{source} is damaged: the checksum of the row of client {number} does not match."
            )

    def _split(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        first = _HEAD
        for leaf in self._leaves:
            end = first + tree.nbytes(leaf)
            raw = np.ascontiguousarray(rows[:, first:end])
            yield raw.view(leaf.dtype).reshape(len(rows), *leaf.shape)
            first = end


def _digest(number: int, row: np.ndarray) -> np.ndarray:
    digest = hashlib.sha256(number.to_bytes(8, "little"))
    digest.update(row[_HEAD:].data)
    return np.frombuffer(digest.digest(), np.uint8)[: _HEAD - _DIGEST.start]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Callable[[int, PyTree], None]]:
    """Write rows 0, 1, ... to a new file: `add(count, trees)` appends `count` of them.

    The file takes its name in the end, whole or not at all.
    """
    import jax

    numbers = itertools.count()
    with replacing(path) as aside, aside.open("wb") as file:

        def add(count: int, trees: PyTree) -> None:
            trees = jax.tree.map(np.asarray, trees)
            own = np.array(list(itertools.islice(numbers, count)), np.int64)
            one = jax.tree.map(lambda leaf: leaf[0], trees)
            file.write(RowFormat(one).encode(own, trees).tobytes())

        yield add


class RowFile:
    """A finished file of rows, as `writing` leaves it; opened for reading only."""

    def __init__(self, path: Path, shape: PyTree, num_rows: int) -> None:
        self._path, self._format = path, RowFormat(shape)
        wanted, size = num_rows * self._format.size, path.stat().st_size
        if size != wanted:
            raise ValueError(f"{path} is damaged: it must hold {wanted} bytes, got {size}.")

    def read(self, numbers: np.ndarray) -> PyTree:
        """The trees in the given rows, with a leading axis."""
        rows = np.empty((len(numbers), self._format.size), np.uint8)
        with self._path.open("rb") as file:
            for number, row in zip(numbers.tolist(), rows, strict=True):
                file.seek(number * self._format.size)
                file.readinto(row.data)
        trees, written = self._format.decode(numbers, rows, self._path)
        if not written.all():
            raise ValueError(f"{self._path} is damaged: it holds no row where one must be.")
        return trees
