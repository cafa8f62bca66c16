"""XLA flags for tests, which compile much and compute little."""

import importlib.util
import mmap
from pathlib import Path

# Together they make compilation four times as fast (docs/decisions/0027-tests-compile-little.md).
_FLAGS = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",
}


def flags():
    """Those that the installed XLA has: it ends the process at one that it does not have.

    The name of a flag is a string of its own there; one that was removed may live on in a list.
    """
    (folder,) = importlib.util.find_spec("jaxlib").submodule_search_locations
    library = max(Path(folder).iterdir(), key=lambda file: file.stat().st_size)
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        known = [flag for flag in _FLAGS if text.find(b"\0" + flag.encode() + b"\0") >= 0]
    return " ".join(f"--{flag}={_FLAGS[flag]}" for flag in known)
