"""The buffers of one Arrow array as a NumPy array and the mask of its missing cells."""

import ctypes
import datetime
import decimal
from itertools import pairwise
from typing import Any

import numpy as np

_NUMBERS = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}
_NUMBERS |= {"e": "f2", "f": "f4", "g": "f8"}
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_DAY = 86_400_000  # milliseconds
_INLINE = 12  # bytes of a string view that stand in the view itself

Cells = tuple[np.ndarray, np.ndarray]


def cells(schema: Any, array: Any, parent: Any = None) -> Cells | None:
    """Values and missing cells of an array, of the rows of the struct `parent` where it is a child.

    None for types that are no number, text, date or truth value. The values are copies.
    """
    start = array.offset + (0 if parent is None else parent.offset)
    length = array.length if parent is None else parent.length
    kind = schema.format.decode()
    if kind == "n":
        return np.full(length, np.nan), np.ones(length, bool)
    missing = ~_bits(array, 0, start, length) if array.null_count else np.zeros(length, bool)
    if parent is not None and parent.null_count and parent.n_buffers:
        missing |= ~_bits(parent, 0, parent.offset, length)
    if schema.dictionary:
        found = cells(schema.dictionary.contents, array.dictionary.contents)
        return None if found is None else _looked_up(found, kind, array, start, missing)
    values = _values(kind, array, start, length, missing)
    return None if values is None else (values, missing)


def _values(
    kind: str, array: Any, start: int, length: int, missing: np.ndarray
) -> np.ndarray | None:
    if kind in _NUMBERS:
        return _buffer(array, 1, _NUMBERS[kind], start, length).copy()
    if kind == "b":
        return _bits(array, 1, start, length)
    if kind in ("u", "U", "z", "Z"):
        return _strings(kind, array, start, length)
    if kind in ("vu", "vz"):
        return _views(kind, array, start, length, missing)
    if kind.startswith("d:"):
        return _decimals(kind, array, start, length, missing)
    return _times(kind, array, start, length)


def _looked_up(found: Cells, kind: str, array: Any, start: int, missing: np.ndarray) -> Cells:
    words, gone = found
    place = _buffer(array, 1, _NUMBERS[kind], start, len(missing)).astype(np.int64)
    place[missing] = 0
    if not len(words):
        return np.full(len(missing), np.nan), np.ones(len(missing), bool)
    return words[place], missing | gone[place]


def _times(kind: str, array: Any, start: int, length: int) -> np.ndarray | None:
    """Dates and times of a day; timestamps with a zone are in UTC."""
    if kind == "tdD":
        return _buffer(array, 1, "i4", start, length).astype("M8[D]")
    if kind == "tdm":
        return (_buffer(array, 1, "i8", start, length) // _DAY).astype("M8[D]")
    if kind[:2] == "ts":
        return _buffer(array, 1, "i8", start, length).astype(f"M8[{_UNITS[kind[2]]}]")
    if kind[:2] == "tD":
        return _buffer(array, 1, "i8", start, length).astype(f"m8[{_UNITS[kind[2]]}]")
    if kind[:2] == "tt":
        size = "i4" if kind[2] in "sm" else "i8"
        units = _buffer(array, 1, size, start, length).astype(f"m8[{_UNITS[kind[2]]}]")
        since = units.astype("m8[us]").tolist()
        return _objects([(datetime.datetime.min + each).time() for each in since])
    return None


def _decimals(kind: str, array: Any, start: int, length: int, missing: np.ndarray) -> np.ndarray:
    """The nearest floats: decimal numbers of `scale` digits behind the point."""
    _, scale, *rest = (int(each) for each in kind[2:].split(","))
    width = (rest[0] if rest else 128) // 8
    raw = _buffer(array, 1, "u1", start * width, length * width).tobytes()
    context = decimal.Context(prec=decimal.MAX_PREC, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    found = np.full(length, np.nan)
    for row in np.flatnonzero(~missing).tolist():
        whole = int.from_bytes(raw[row * width : (row + 1) * width], "little", signed=True)
        found[row] = float(decimal.Decimal(whole).scaleb(-scale, context))
    return found


def _strings(kind: str, array: Any, start: int, length: int) -> np.ndarray:
    ends = _buffer(array, 1, "i4" if kind in "uz" else "i8", start, length + 1).tolist()
    if not ends:
        return _objects([])
    first, last = ends[0], ends[-1]
    raw = ctypes.string_at(array.buffers[2] + first, last - first) if last > first else b""
    pairs = pairwise(ends)
    if kind in "zZ":
        return _objects([raw[a - first : b - first] for a, b in pairs])
    text = raw.decode()
    if len(text) == len(raw):  # ASCII: places in the text are places in the bytes
        return _objects([text[a - first : b - first] for a, b in pairs])
    return _objects([raw[a - first : b - first].decode() for a, b in pairs])


def _views(kind: str, array: Any, start: int, length: int, missing: np.ndarray) -> np.ndarray:
    """Strings whose first bytes stand in a view: length, then the bytes or where they are."""
    parts = _buffer(array, 1, "i4", 4 * start, 4 * length).reshape(length, 4)
    raw, lengths = parts.tobytes(), np.where(missing, 0, parts[:, 0])
    place, offset = parts[:, 2].tolist(), parts[:, 3].tolist()
    found = []
    for row, size in enumerate(lengths.tolist()):
        if size <= _INLINE:
            found.append(raw[16 * row + 4 : 16 * row + 4 + size])
        else:
            found.append(ctypes.string_at(array.buffers[2 + place[row]] + offset[row], size))
    return _objects([each.decode() for each in found] if kind == "vu" else found)


def _objects(found: list[Any]) -> np.ndarray:
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _buffer(array: Any, number: int, kind: str, start: int, length: int) -> np.ndarray:
    """A view on `length` numbers of a buffer, from the place `start`."""
    size = np.dtype(kind).itemsize
    address = array.buffers[number]
    if not length or not address:
        return np.zeros(length, kind)
    memory = (ctypes.c_char * (length * size)).from_address(address + start * size)
    return np.frombuffer(memoryview(memory), kind)


def _bits(array: Any, number: int, start: int, length: int) -> np.ndarray:
    """Truth values, eight in a byte; all true where there is no buffer."""
    if not array.buffers[number]:
        return np.ones(length, bool)
    first = start // 8
    packed = _buffer(array, number, "u1", first, (start + length + 7) // 8 - first)
    return np.unpackbits(packed, bitorder="little")[start - 8 * first :][:length].astype(bool)
