"""Checkpoints: pytrees of arrays as safetensors; written aside, synced and renamed."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from fedprior.core import tree
from fedprior.core.algorithm import PyTree
from fedprior.core.files import write_atomically

FORMAT = 1


def fingerprint(identity: Any) -> str:
    """A short name of everything that decides a run's bits (JSON values)."""
    canonical = json.dumps(identity, sort_keys=True, default=_name)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def save_checkpoint(path: Path, arrays: PyTree, *, identity: str, **facts: Any) -> None:
    """`arrays` by name, with `facts` (JSON values) beside them."""
    named = {name: np.asarray(leaf, order="C") for name, leaf in tree.names(arrays).items()}
    header = {"format": FORMAT, "identity": identity, **facts}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(named, metadata={"fedprior": json.dumps(header)}))


def read_header(path: Path, *, identity: str | None = None) -> dict[str, Any]:
    """The facts of a checkpoint, after its format, wholeness and configuration are checked."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {})["fedprior"])
        number = header["format"]
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError, OSError) as error:
        raise ValueError(
            f"checkpoint: {path.name} must be a whole fedprior checkpoint, got {_reason(error)}. "
            "It is damaged or cut short; start the run anew."
        ) from error
    if number > FORMAT:
        raise ValueError(
            f"checkpoint: format must be at most {FORMAT}, got {number}. "
            "A newer fedprior wrote it; upgrade to resume."
        )
    if identity is not None and header["identity"] != identity:
        raise ValueError(
            f"checkpoint: configuration must be the one the run began with ({header['identity']}), "
            f"got {identity}. Resume without changes, or start a new run."
        )
    return header


def load_arrays(path: Path, like: PyTree) -> PyTree:
    """The tree with the structure of `like` from a checkpoint's named arrays."""
    found = load_file(str(path))
    wanted = tree.names(like)
    for name, leaf in wanted.items():
        if name not in found or found[name].shape != tuple(leaf.shape):
            got = found[name].shape if name in found else "nothing"
            raise ValueError(
                f"checkpoint: {name} must have shape {tuple(leaf.shape)}, got {got}. "
                "It belongs to another model or federation."
            )
    return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name in wanted])


def _name(value: Any) -> str:
    """An object's own words, without the place in memory that the next process has not."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SafetensorError | OSError) else "no fedprior header"
