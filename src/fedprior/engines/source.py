"""How a ledger recognizes a run: by its folder, its program and its data."""

import hashlib
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.core.files import make_folder, read_sealed, seal, write_atomically
from fedprior.data.federation import Split
from fedprior.exchange.agreement import Agreement

_ROWS = 2**13  # rows of a table that are read at once; it may be larger than memory


def token(path: Path, *, resume: bool) -> str:
    """Return a random token for the run, which is stored in `path`.

    The token is kept if the run is resumed, and drawn again otherwise: in another folder, or
    without the file, it is a new run.
    """
    if resume and path.is_file() and path.stat().st_size:
        return read_sealed(path).strip()
    fresh = secrets.token_hex(16)
    make_folder(path.parent)
    write_atomically(path, seal(fresh).encode())
    return fresh


def program(agreement: Agreement) -> str:
    """Return a digest of the algorithm's compiled functions, with rates, and of the backend."""
    algorithm = agreement.algorithm
    state, memory, data, key = agreement.inputs
    client = jax.ShapeDtypeStruct((), np.int32)  # type: ignore[no-untyped-call]
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (algorithm.init, (key,)),
        (algorithm.enroll, (state, client, key)),
        (algorithm.local, (state, memory, data, key)),
        (algorithm.update, (state, agreement.message)),
    ]
    digest = hashlib.sha256(f"{jax.__version__} {jax.default_backend()}".encode())
    for function, shapes in calls:
        digest.update(jax.jit(function).lower(*shapes).as_text().encode())
    return digest.hexdigest()


def content(*splits: Split) -> str:
    """Return a digest of the rows and of the clients they belong to."""
    digest = hashlib.sha256()
    for split in splits:
        for array in (split.start, split.size, split.x, split.y):
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            for first in range(0, len(array), _ROWS):
                digest.update(np.ascontiguousarray(array[first : first + _ROWS]).tobytes())
    return digest.hexdigest()
