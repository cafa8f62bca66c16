"""The idx format: two zero bytes, a type, a number of axes, their lengths, the entries."""

import gzip
import math
import zlib
from pathlib import Path
from typing import NoReturn

import numpy as np

_GZIP = b"\x1f\x8b"
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path, *, dtype: str, shape: tuple[int | None, ...]) -> np.ndarray:
    """The array in an idx file, gzipped or plain, of the given dtype and shape (None: any length).

    Every way in which a file can be cut or wrong is a ValueError that names the file.
    """
    path = Path(path)
    content = _content(path)
    code, num_axes = (content[2], content[3]) if len(content) >= 4 else (0, 0)
    if content[:2] != b"\0\0" or code not in _TYPES or num_axes == 0:
        _refuse(path, "an idx file", f"first bytes {content[:4].hex() or 'none'}")
    header = 4 + 4 * num_axes
    if len(content) < header:
        _refuse(path, "a whole idx file", f"{len(content)} bytes")
    found = tuple(int(length) for length in np.frombuffer(content, ">u4", num_axes, 4))
    kind = np.dtype(_TYPES[code])
    if kind.newbyteorder("=") != np.dtype(dtype):
        _refuse(path, f"of type {dtype}", kind.newbyteorder("=").name)
    if len(found) != len(shape) or any(
        want is not None and want != length for want, length in zip(shape, found, strict=True)
    ):
        wanted = " x ".join("any" if length is None else str(length) for length in shape)
        _refuse(path, f"of shape {wanted}", " x ".join(map(str, found)))
    expected = header + math.prod(found) * kind.itemsize
    if len(content) != expected:
        _refuse(path, f"a whole idx file of {expected} bytes", f"{len(content)} bytes")
    return np.frombuffer(content, kind, offset=header).reshape(found).astype(dtype, copy=False)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if content[:2] != _GZIP:
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        _refuse(path, "a whole gzip file", str(error))


def _refuse(path: Path, rule: str, found: str) -> NoReturn:
    raise ValueError(
        f"read_idx: {path} must be {rule}, got {found}. Download the file again."
    ) from None
