"""How a ledger recognizes a run: where it began, what it computes, on which data."""

import hashlib
import secrets
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.core.files import make_folder, read_sealed, seal, write_atomically
from fedprior.data.federation import Split
from fedprior.exchange.agreement import Agreement

_ROWS = 2**13  # of a table that is read at once; it may be larger than memory


def token(path: Path, *, resume: bool) -> str:
    """A random name of the run that was begun beside `path`; on disk when this returns.

    Kept on resume and drawn anew otherwise: with another folder, or without the file, it is another
    run.
    """
    if resume and path.is_file() and path.stat().st_size:
        return read_sealed(path).strip()
    fresh = secrets.token_hex(16)
    make_folder(path.parent)
    write_atomically(path, seal(fresh).encode())
    return fresh


def program(agreement: Agreement) -> str:
    """A digest of what the algorithm computes in a round, its rates included, and by what."""
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
    """A digest of rows and of whose they are."""
    digest = hashlib.sha256()
    for split in splits:
        for array in (split.start, split.size, split.x, split.y):
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            for first in range(0, len(array), _ROWS):
                digest.update(np.ascontiguousarray(array[first : first + _ROWS]).tobytes())
    return digest.hexdigest()
