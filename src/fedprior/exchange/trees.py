"""Trees of arrays <-> bytes: the safetensors layout with a SHA-256 checksum over every byte.

    8 bytes   length of the header, little-endian
    header    JSON: {"__metadata__": {"sha256": HEX, "fedprior": FACTS}, NAME: {dtype, shape, ...}}
    payload   the arrays, C order, little-endian, without gaps

The checksum is that of the whole content with zeros in its own place. Any reader of safetensors
opens such a file; nothing is ever unpickled.
"""

import hashlib
import json
import math
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import formats, tree
from fedprior.core.algorithm import PyTree
from fedprior.core.files import write_atomically

_BEGIN = b'{"__metadata__": {"sha256": "'
_PLACE = slice(8 + len(_BEGIN), 8 + len(_BEGIN) + 64)  # of the checksum in the content
_LONGEST_HEADER = 2**27  # bytes; about a million arrays
_CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}
_NAMES = {code: name for name, code in _CODES.items()}


@dataclass(frozen=True)
class Packed:
    """Arrays by name and facts (JSON values), as they were packed; `source` is for messages."""

    source: str
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def tree(self, like: PyTree) -> PyTree:
        """The arrays in the structure of `like`, whose names, shapes and dtypes must be theirs."""
        import jax

        wanted = tree.names(like)
        for name in sorted(wanted.keys() | self.arrays.keys()):
            expected, got = _described(wanted.get(name)), _described(self.arrays.get(name))
            if expected != got:
                raise ValueError(
                    f"{self.source}: {name} must be {expected}, got {got}. "
                    "It belongs to another model or federation."
                )
        return jax.tree.unflatten(jax.tree.structure(like), [self.arrays[name] for name in wanted])


def pack(arrays: PyTree, *, kind: str, format: int, **facts: Any) -> bytes:
    """`arrays` by name and `facts` (JSON values), as content of the given kind and format."""
    # Wide items first, as safetensors orders them: every array is aligned to its items.
    named = {name: np.asarray(leaf, order="C") for name, leaf in tree.names(arrays).items()}
    order = sorted(named, key=lambda name: (-named[name].dtype.itemsize, name))
    noted = json.dumps({"kind": kind, "format": format, **facts})
    header: dict[str, Any] = {"__metadata__": {"sha256": "0" * 64, "fedprior": noted}}
    end = 0
    for name in order:
        first, end = end, end + named[name].nbytes
        shape, code = list(named[name].shape), _CODES[named[name].dtype.name]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = bytearray(len(text).to_bytes(8, "little") + text)
    payload = [_little(named[name]).tobytes() for name in order]
    head[_PLACE] = _checksum(head, *payload).encode()
    return b"".join([head, *payload])


def unpack(content: bytes, *, source: str, kind: str, format: int) -> Packed:
    """What `pack` made `content` from; refused by the name `source` where a byte has changed."""
    length = int.from_bytes(content[:8], "little")
    fits = length <= min(_LONGEST_HEADER, len(content) - 8)
    if not fits or content[8 : _PLACE.start] != _BEGIN:
        raise ValueError(f"{source} is damaged, cut short or not a file written by fedprior.")
    if content[_PLACE] != _checksum(content).encode():
        raise ValueError(f"{source} is damaged or cut short: its checksum does not match.")
    try:
        entries = json.loads(content[8 : 8 + length])
        facts = json.loads(entries.pop("__metadata__")["fedprior"])
        found_kind, number = facts.pop("kind"), int(facts.pop("format"))
        arrays = _arrays(memoryview(content)[8 + length :], entries)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        # Whoever made the checksum made this, too: it is not damaged but malformed.
        raise ValueError(f"{source} is malformed: its header does not describe it.") from None
    if found_kind != kind:
        raise ValueError(f"{source} is not a {kind} file.")
    formats.check(kind, number, source=source, wanted=format)
    return Packed(source, facts, arrays)


def write(path: Path, arrays: PyTree, *, kind: str, format: int, **facts: Any) -> None:
    """A file with what `pack` makes of the arguments; whole or not at all."""
    write_atomically(path, pack(arrays, kind=kind, format=format, **facts))


def read(path: Path, *, kind: str, format: int) -> Packed:
    """What `write` wrote; a file that has changed since then is refused by name."""
    return unpack(Path(path).read_bytes(), source=str(path), kind=kind, format=format)


def _checksum(head: bytes | bytearray, *payload: bytes) -> str:
    view = memoryview(head)
    digest = hashlib.sha256(view[: _PLACE.start])
    digest.update(b"0" * 64)
    digest.update(view[_PLACE.stop :])
    for part in payload:
        digest.update(part)
    return digest.hexdigest()


def _arrays(payload: memoryview, entries: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays that fill the payload one after another, without copying it."""
    arrays, end = {}, 0
    for name, entry in entries.items():
        kind, shape = _dtype(entry["dtype"]), [operator.index(size) for size in entry["shape"]]
        first, last = entry["data_offsets"]
        if first != end or min(shape, default=0) < 0:
            raise ValueError(name)
        count, end = math.prod(shape), last
        if last - first != count * kind.itemsize or last > len(payload):
            raise ValueError(name)
        flat = np.frombuffer(payload[first:last], kind)
        arrays[name] = flat.astype(kind.newbyteorder("="), copy=False).reshape(shape)
    if end != len(payload):
        raise ValueError("payload")
    return arrays


def _dtype(code: str) -> np.dtype:
    name = _NAMES[code]
    if name == "bfloat16":
        import ml_dtypes  # comes with JAX

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


def _little(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _described(leaf: Any) -> str:
    return "absent" if leaf is None else f"{np.dtype(leaf.dtype).name} of shape {tuple(leaf.shape)}"
