"""A word that changes when a run's files do, so that a page of it knows when it is out of date."""

import hashlib
from pathlib import Path

from fedprior.core import lock

_FILES = (
    *("config.toml", "progress.jsonl", "metrics.jsonl", "summary.json", "evaluation.json"),
    *("clients.parquet", "roster.json", "agreement.json"),
)
_PATTERNS = ("checkpoint/*/seed-*/*.safetensors", "privacy/*/ledger.jsonl")


def version_of(path: Path) -> str:
    """A hash of the sizes and times of what a run's page reads, and of whether the run goes on."""
    found = [path / name for name in _FILES]
    for pattern in _PATTERNS:
        found += sorted(path.glob(pattern))
    state = [f"running {lock.holder(path)}"]
    for file in found:
        try:
            facts = file.stat()
        except OSError:  # it is not there, or is being replaced
            continue
        state.append(f"{file.relative_to(path)} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(state).encode()).hexdigest()[:16]
