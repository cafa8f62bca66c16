"""A persistent cache of compiled programs, so that a second run starts immediately."""

import os
from pathlib import Path
from typing import Any


def enable() -> None:
    """Cache compiled programs in the user's cache folder, unless JAX already has a cache folder.

    `FEDPRIOR_CACHE` names another folder; an empty value turns the cache off.
    """
    from jax import config
    from platformdirs import user_cache_dir

    folder = os.environ.get("FEDPRIOR_CACHE", user_cache_dir("fedprior"))
    if not folder or getattr(config, "jax_compilation_cache_dir", None):
        return
    programs = Path(folder) / "programs"
    try:
        programs.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home folder: compile every time
        return
    update: Any = config.update
    update("jax_compilation_cache_dir", str(programs))
    update("jax_persistent_cache_min_compile_time_secs", 0.3)
