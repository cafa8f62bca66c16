"""Checkpoints: trees of arrays beside facts, under the name of what decides a run's bits."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from fedprior.core import formats
from fedprior.core.algorithm import PyTree
from fedprior.exchange import trees

_KIND, FORMAT = "checkpoint", formats.NUMBERS["checkpoint"]


def fingerprint(identity: Any) -> str:
    """A short name of everything that decides a run's bits (JSON values)."""
    canonical = json.dumps(identity, sort_keys=True, default=_name)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def save_checkpoint(path: Path, arrays: PyTree, *, identity: str, **facts: Any) -> None:
    """Write `arrays` with `facts` (JSON values) beside them; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    trees.write(path, arrays, kind=_KIND, format=FORMAT, identity=identity, **facts)


def read_checkpoint(path: Path, *, identity: str | None = None) -> trees.Packed:
    """The facts and arrays of a checkpoint, after its checksum and identity have been checked."""
    packed = trees.read(path, kind=_KIND, format=FORMAT)
    if identity is not None:
        check_identity(path, packed, identity)
    return packed


def check_identity(path: Path, packed: trees.Packed, identity: str) -> None:
    """Raise unless the checkpoint is of what `identity` names."""
    begun = packed.facts["identity"]
    if begun != identity:
        raise ValueError(
            f"{path}: configuration must be the one the run began with ({begun}), got {identity}. "
            "Resume without changes, or start a new run."
        )


def _name(value: Any) -> str:
    """An object's repr without its address, which differs in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
