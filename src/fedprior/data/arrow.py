"""Tables and columns of any library as NumPy arrays, by the Arrow PyCapsule interface.

Whoever exports `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, DuckDB, nanoarrow, Ibis, cuDF,
...) is read without that library's help, and without pyarrow. The structures are those of Arrow's
C data interface, whose layout is part of its promise.
"""

import ctypes
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedprior.data.arrow_cells import cells


class Schema(ctypes.Structure):
    """ArrowSchema: the type and name of a column."""


class Array(ctypes.Structure):
    """ArrowArray: the buffers of a column."""


class Stream(ctypes.Structure):
    """ArrowArrayStream: a schema, then arrays until one is released."""


_ADDRESS = ctypes.c_void_p
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", _ADDRESS),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))),
    ("private_data", _ADDRESS),
]
Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset")),
    *((name, ctypes.c_int64) for name in ("n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(_ADDRESS)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))),
    ("private_data", _ADDRESS),
]
Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))),
    ("private_data", _ADDRESS),
]


class Frame(Mapping[str, np.ndarray]):
    """The columns of a table by name, each decoded when it is first asked for.

    A column without missing cells is an array, one with them a masked array.
    """

    def __init__(self, schema: Schema, chunks: list[Array], kept: Any) -> None:
        names = [schema.children[k].contents.name or b"" for k in range(schema.n_children)]
        self.names = [name.decode() for name in names]
        self._schema, self._chunks, self._kept = schema, chunks, kept
        self._decoded: dict[str, np.ndarray] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return sum(chunk.length for chunk in self._chunks), len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._decoded:
            place = self.names.index(name) if name in self.names else -1
            if place < 0:
                raise KeyError(name)
            schema = self._schema.children[place].contents
            parts = [cells(schema, c.children[place].contents, c) for c in self._chunks]
            self._decoded[name] = _joined(f"column {name!r}", schema, parts)
        return self._decoded[name]


def has_arrow(values: Any) -> bool:
    """Whether the object exports its data by the Arrow PyCapsule interface."""
    exports = hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")
    return exports and not isinstance(values, type)


def read_arrow(values: Any) -> Frame | np.ndarray:
    """A table as a Frame; a column as an array, masked where cells are missing."""
    if hasattr(values, "__arrow_c_stream__"):
        schema, chunks, kept = _from_stream(values.__arrow_c_stream__())
    else:
        pair = values.__arrow_c_array__()
        schema = _pointed(pair[0], b"arrow_schema", Schema)
        chunks, kept = [_pointed(pair[1], b"arrow_array", Array)], pair
    if schema.format == b"+s":
        return Frame(schema, chunks, kept)
    found = _joined("column", schema, [cells(schema, chunk) for chunk in chunks])
    del kept
    return found


class _Kept:
    """What the arrays of a stream live on; released when nobody reads them any more."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule
        self.owned: list[Schema | Array] = []
        weakref.finalize(self, _release, self.owned, capsule)


def _release(owned: list[Schema | Array], _: Any) -> None:
    for each in owned:
        if each.release:
            each.release(ctypes.byref(each))


def _from_stream(capsule: Any) -> tuple[Schema, list[Array], _Kept]:
    stream, kept = _pointed(capsule, b"arrow_array_stream", Stream), _Kept(capsule)
    schema = Schema()
    _succeed(stream, stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)))
    kept.owned.append(schema)
    chunks: list[Array] = []
    while True:
        chunk = Array()
        _succeed(stream, stream.get_next(ctypes.byref(stream), ctypes.byref(chunk)))
        if not chunk.release:
            return schema, chunks, kept
        kept.owned.append(chunk)
        chunks.append(chunk)


def _succeed(stream: Stream, code: int) -> None:
    if code:
        reason = stream.get_last_error(ctypes.byref(stream)) or b""
        said = reason.decode(errors="replace").splitlines()
        raise ValueError(f"table: its Arrow stream ended with an error: {' '.join(said) or code}.")


def _pointed(capsule: Any, name: bytes, kind: Any) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = _ADDRESS, [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(get(capsule, name))


def _joined(
    title: str, schema: Schema, parts: list[tuple[np.ndarray, np.ndarray] | None]
) -> np.ndarray:
    """The chunks of one column as one array."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        kind = schema.format.decode()
        got = "lists or structs" if kind.startswith("+") else f"cells of the Arrow type {kind}"
        raise TypeError(
            f"table: {title} must be of numbers, text, dates or truth values, got {got}. Convert "
            "it, or leave it out."
        )
    if not found:
        return np.empty(0, np.float64)
    data = np.concatenate([part[0] for part in found])
    missing = np.concatenate([part[1] for part in found])
    return np.ma.MaskedArray(data, missing) if missing.any() else data
