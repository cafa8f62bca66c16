"""Room in the device's memory: how much there is, how much a program needs, and smaller pieces.

"Memory" means what a client keeps between rounds everywhere else in the package.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedprior.core.algorithm import PyTree
from fedprior.engines.mesh import ONE, Mesh
from fedprior.exchange.agreement import Rules

# Of the device's memory: the rest is left to fragmentation, to constants and to the runtime.
_SHARE = 0.85
_UNKNOWN = 2**33  # bytes of a device that does not tell how many it has
# A container's limit and what it uses of it, in both versions of cgroups.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_arrays: Any = jax.live_arrays  # without types in JAX
_wait: Any = jax.block_until_ready
_release: Any = jax.clear_caches
_turn = threading.Condition()
# Compiled programs that are kept. On a CPU the programs of a run take hundreds of memory mappings
# (AdaMAP: 960, for a small network), of which Linux gives a process 65,530.
_KEPT = 64
_known: dict[Any, int] = {}  # what programs need, by their arguments' shapes
_held: list[int] = []  # bytes of the programs that other threads are running


OUT = (MemoryError, RuntimeError, ValueError)  # as which NumPy and JAX raise that memory ran out


class TooLarge(MemoryError):
    """A program that needs more memory than there is; `ratio` is the share of it that would fit."""

    def __init__(self, needed: int, there: int) -> None:
        self.ratio = max(there, 0) / max(needed, 1)
        super().__init__(
            f"a program needs {needed / 2**30:.2f} GiB, and there is room for "
            f"{max(there, 0) / 2**30:.2f} GiB. Use smaller batches, cohorts or models, or a device "
            "with more memory."
        )


def there() -> int:
    """Bytes that programs of this process can use, besides the arrays that it holds already."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return int(_SHARE * _host())
    limit = (device.memory_stats() or {}).get("bytes_limit", _UNKNOWN)
    arrays = sum(
        math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize
        for array in _arrays()
        if not array.is_deleted() and device in array.sharding.device_set
    )
    return int(_SHARE * limit) - arrays


def _host() -> int:
    """Free bytes of the machine, of the container, or of what the process may have (ulimit -v)."""
    sizes = []
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        sizes.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):  # not Linux: the memory that it has, free or not
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit, used in _LIMITS:
        try:
            sizes.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    with suppress(ImportError, OSError):  # not Unix; not Linux
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            sizes.append(most - pages * resource.getpagesize())
    return min(sizes, default=_UNKNOWN)


def needed(program: Any, *given: Any, **static: Any) -> int:
    """Bytes that a jitted `program` takes while it runs, by the compiler's own analysis.

    Arguments are counted by `there`. The compiled program is kept by JAX: a call that follows does
    not compile again. After many programs, JAX is made to release those that it keeps.
    """
    leaves, structure = jax.tree.flatten(given)
    shapes = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    question = (program, structure, shapes, tuple(sorted(static.items())))
    size = _known.get(question)
    if size is None:
        if len(_known) >= _KEPT:
            _known.clear()
            _release()
        found = program.lower(*given, **static).compile().memory_analysis()
        made = found.temp_size_in_bytes + found.output_size_in_bytes if found else 0
        size = int(made - found.alias_size_in_bytes) if found else 0
        _known[question] = size
    return size


@contextmanager
def holding(size: int, mesh: Mesh = ONE) -> Iterator[None]:
    """Wait until `size` bytes are there that no other thread is using; raise if they never are.

    Several processes go by the one that has least, so that all of them run the same programs.
    """
    if mesh.processes > 1:
        least = int(mesh.all_of([there()]).min())
        if size > least:
            raise TooLarge(size, least)
        yield
        return
    with _turn:
        _turn.wait_for(lambda: not _held or size <= there() - sum(_held))
        if not _held and size > there():
            raise TooLarge(size, there())
        _held.append(size)
    try:
        yield
    finally:
        with _turn:
            _held.remove(size)
            _turn.notify_all()


def call(
    program: Any, *given: Any, meanwhile: Callable[[], Any] | None = None, **static: Any
) -> Any:
    """`program(*given, **static)`, computed to its end, in memory that is there.

    `meanwhile` is called while the device computes.
    """
    with holding(needed(program, *given, **static), static.get("mesh", ONE)):
        result = program(*given, **static)
        if meanwhile is not None:
            meanwhile()
        return _wait(result)


def call_rounds(
    program: Any,
    *given: Any,
    rules: Rules,
    capacity: int,
    meanwhile: Callable[[], Any] | None = None,
    mesh: Mesh = ONE,
) -> tuple[Any, Rules]:
    """`program(*given, rules=rules, mesh=mesh)` with as many clients as fit, and their rules.

    `capacity` is the most clients of a round on one shard. Arguments that the program takes over
    are lost if memory runs out while it runs: then the error is raised.
    """
    while True:
        try:
            return call(program, *given, meanwhile=meanwhile, rules=rules, mesh=mesh), rules
        except OUT as error:
            rules = replace(rules, at_once=smaller(rules.at_once or capacity, error))
            arrays = [leaf for leaf in jax.tree.leaves(given) if isinstance(leaf, jax.Array)]
            if any(array.is_deleted() for array in arrays):
                raise


def is_exhausted(error: BaseException) -> bool:
    """Whether a program was refused or ended because its memory was not there."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def smaller(number: int, error: BaseException) -> int:
    """How many of `number` things at once to try next: the share that fits, or half of them.

    Raises `error` again if it is not about memory, or if one is too large. So it does if memory ran
    out in one of several processes: the others have gone on.
    """
    planned = isinstance(error, TooLarge) or jax.process_count() == 1
    if not is_exhausted(error) or not planned or number <= 1:
        raise error
    ratio = error.ratio if isinstance(error, TooLarge) else 0.5
    return max(1, min(int(number * ratio), -(-number // 2)))


def in_chunks(
    number: int, length: int, work: Callable[[np.ndarray], PyTree]
) -> Iterator[tuple[np.ndarray, PyTree]]:
    """Yield work(clients) for clients 0, 1, ..., `number` - 1, `length` of them at a time.

    Every chunk has the same length, so that programs are compiled once: the last one is padded.
    What is yielded are the clients that count, and the work for all of the chunk. Where the memory
    for a chunk is not there, `work` is called again with fewer clients.
    """
    first, length = 0, max(1, min(number, length))
    while first < number:
        clients = np.minimum(np.arange(first, first + length), number - 1)
        try:
            done = work(clients)
        except OUT as error:
            length = smaller(length, error)
            continue
        yield clients[: number - first], done
        first += length
