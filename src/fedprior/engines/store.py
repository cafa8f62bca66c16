"""Client memories: on the device, or as rows of a file with a journal."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core.algorithm import Memory
from fedprior.core.files import naming
from fedprior.engines.mesh import ONE, ROWS, Mesh
from fedprior.exchange.rows import RowFormat

_AT_ONCE = 1024  # rows of each shard that are brought to the host together


class Store(Protocol):
    """The memories of many clients; a client that has never taken part has none."""

    num_clients: int

    def read(self, clients: np.ndarray) -> tuple[Memory, Any]:
        """Return (memories, enrolled) of the given clients, with a leading client axis."""
        ...


class DeviceStore:
    """All memories as arrays on the device, part of the compiled loop over rounds.

    On a mesh of several shards, each has the rows of its own clients.
    """

    def __init__(
        self, memories: Memory, enrolled: Any, *, num_clients: int | None = None, mesh: Mesh = ONE
    ) -> None:
        self.memories, self.enrolled, self.mesh = memories, enrolled, mesh
        self.num_clients = len(enrolled) if num_clients is None else num_clients

    @classmethod
    def empty(cls, shape: Memory, num_clients: int, *, mesh: Mesh = ONE) -> "DeviceStore":
        """Return a store without enrolled clients; `shape` is one client's memory or its shapes."""

        def zeros() -> tuple[Memory, Any]:
            rows = mesh.num_rows(num_clients)
            memories = jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), shape)
            return memories, jnp.zeros(rows, bool)

        made = jax.jit(mesh.split(zeros, (), ROWS)) if mesh.devices else zeros
        return cls(*made(), num_clients=num_clients, mesh=mesh)

    def read(self, clients: np.ndarray) -> tuple[Memory, Any]:
        memories, enrolled = self.mesh.rows((self.memories, self.enrolled), clients)
        return memories, enrolled

    def after(self, memories: Memory, enrolled: Any) -> "DeviceStore":
        """Return the store with other memories."""
        return DeviceStore(memories, enrolled, num_clients=self.num_clients, mesh=self.mesh)

    def spread(self, mesh: Mesh) -> "DeviceStore":
        """Return a store that was read from a file, on the device or on the shards of a mesh."""
        clients = mesh.own(mesh.everyone(self.num_clients))
        rows = jax.tree.map(lambda leaf: np.asarray(leaf)[clients], (self.memories, self.enrolled))
        put = mesh.put(rows) if mesh.devices else jax.device_put(rows)
        return DeviceStore(*put, num_clients=self.num_clients, mesh=mesh)

    def whole(self) -> "DeviceStore":
        """Return the same memories without a mesh, in order of clients, on the host."""
        if not self.mesh.devices:
            return self
        rows = jax.tree.map(
            lambda leaf: np.empty((self.num_clients, *leaf.shape[1:]), leaf.dtype),
            (self.memories, self.enrolled),
        )
        mesh, number, done = self.mesh, self.num_clients, 0
        for first in range(0, mesh.num_rows(number), _AT_ONCE):
            some = np.arange(first, min(first + _AT_ONCE, mesh.num_rows(number)))
            read = mesh.whole(self.read(mesh.members(some, number)))
            places = mesh.places(some, read, number)
            for leaf, new in zip(jax.tree.leaves(rows), jax.tree.leaves(read), strict=True):
                leaf[done : done + len(places)] = new[places]
            done += len(places)
        return DeviceStore(*rows)


class DiskStore:
    """Memories as rows of one sparse file; a row exists once its client has taken part.

    Rows that changed since the last checkpoint are in an append-only journal; the row file is
    modified only after a checkpoint has recorded the journal and its length. A run can therefore be
    killed at any time: the row file and the recorded journal are the last checkpoint (`restore`).
    """

    def __init__(self, folder: Path | None, shape: Memory, num_clients: int) -> None:
        # Without a folder, the store uses a temporary one, which is removed with the store.
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fedprior-")
        self.folder = Path(folder or self._temporary.name)  # type: ignore[union-attr]
        self.num_clients = num_clients
        self.folder.mkdir(parents=True, exist_ok=True)
        self._format = RowFormat(shape)
        self._row = self._format.size
        self._path = self.folder / "rows.bin"
        with naming(self._path):
            self._rows = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self._rows, num_clients * self._row)  # sparse: occupies no space yet
        self._places: dict[int, int] = {}  # client -> position of its latest row in the journal
        self._generation, self._length = 0, 0
        self._journal = -1

    @classmethod
    def create(cls, folder: Path | None, shape: Memory, num_clients: int) -> "DiskStore":
        """Create an empty store; an existing one in `folder` is deleted."""
        if folder:
            for name in ("rows.bin", *_journals(folder)):
                (folder / name).unlink(missing_ok=True)
        store = cls(folder, shape, num_clients)
        store._begin(0)
        return store

    @classmethod
    def restore(
        cls, folder: Path, shape: Memory, num_clients: int, *, generation: int, length: int
    ) -> "DiskStore":
        """Restore the store at the checkpoint that recorded (generation, length)."""
        rows, wanted = folder / "rows.bin", num_clients * RowFormat(shape).size
        size = rows.stat().st_size if rows.exists() else 0
        if size != wanted:
            raise ValueError(
                f"{rows} must hold {wanted} bytes, got {size}. "
                "It was truncated or belongs to another run; start a new run."
            )
        store = cls(folder, shape, num_clients)
        named = folder / _journal_name(generation)
        if named.exists():
            if named.stat().st_size < length:
                raise ValueError(
                    f"{named} must hold {length} bytes, got {named.stat().st_size}. "
                    "It was truncated; start a new run."
                )
            store._apply(named, length)
        elif length and not os.fstat(store._rows).st_blocks:
            raise ValueError(
                f"{rows} must contain the clients' memories, got an empty file. Start a new run."
            )
        for name in _journals(store.folder):
            (folder / name).unlink()
        store._begin(generation + 1)
        return store

    def read(self, clients: np.ndarray) -> tuple[Memory, np.ndarray]:
        buffer = np.empty((len(clients), self._row), np.uint8)
        for place, client in enumerate(clients.tolist()):
            journal = self._places.get(client)
            if journal is None:
                os.preadv(self._rows, [buffer[place].data], client * self._row)
            else:
                os.preadv(self._journal, [buffer[place].data], journal)
        return self._format.decode(clients, buffer, self._path)

    def write(self, clients: np.ndarray, memories: Memory) -> None:
        """Write new memories of the given clients to the journal."""
        buffer = np.empty((len(clients), 8 + self._row), np.uint8)
        buffer[:, :8] = np.asarray(clients, "<i8").reshape(-1, 1).view(np.uint8)
        buffer[:, 8:] = self._format.encode(np.asarray(clients), memories)
        with naming(self._journal_path):
            _write(self._journal, buffer)
        for place, client in enumerate(clients.tolist()):
            self._places[client] = self._length + place * buffer.shape[1] + 8
        self._length += buffer.size

    def seal(self) -> dict[str, int]:
        """Sync the journal, and return what a checkpoint must record to be restored."""
        with naming(self._journal_path):
            os.fsync(self._journal)
        return {"generation": self._generation, "length": self._length}

    def settle(self) -> None:
        """After a checkpoint is saved, copy the journal into the row file and start a new one."""
        settled = self._journal_path
        self._apply(settled, self._length)
        os.close(self._journal)
        self._begin(self._generation + 1)
        settled.unlink()

    def __del__(self) -> None:
        for descriptor in (getattr(self, "_rows", -1), getattr(self, "_journal", -1)):
            if descriptor >= 0:
                os.close(descriptor)
        if getattr(self, "_temporary", None):
            self._temporary.cleanup()  # type: ignore[union-attr]

    def _begin(self, generation: int) -> None:
        self._generation, self._length, self._places = generation, 0, {}
        self._journal_path = self.folder / _journal_name(generation)
        with naming(self._journal_path):
            self._journal = os.open(self._journal_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)

    def _apply(self, journal: Path, length: int) -> None:
        """Copy the first `length` bytes of a journal into the row file, after checking them."""
        with journal.open("rb") as file, naming(self._path):
            while file.tell() < length:
                client = int.from_bytes(file.read(8), "little")
                row = np.frombuffer(file.read(self._row), np.uint8)
                if client >= self.num_clients or row[0] != 1:
                    raise ValueError(f"{journal} is damaged: a row is missing.")
                self._format.check(client, row, journal)
                os.pwrite(self._rows, row.data, client * self._row)
            os.fsync(self._rows)


class OnShards:
    """The rows of a process's clients, as parts of arrays on all shards."""

    def __init__(self, rows: DiskStore, mesh: Mesh) -> None:
        self.rows, self.mesh, self.num_clients = rows, mesh, rows.num_clients

    def read(self, clients: np.ndarray) -> tuple[Memory, Any]:
        memories, enrolled = self.mesh.put(self.rows.read(self.mesh.own(clients)))
        return memories, enrolled


class Together:
    """The rows of all clients, each in the store of its process."""

    def __init__(self, stores: Sequence[DiskStore], mesh: Mesh) -> None:
        self.stores, self.mesh, self.num_clients = stores, mesh, stores[0].num_clients

    def read(self, clients: np.ndarray) -> tuple[Memory, Any]:
        homes = self.mesh.processes_of(clients)
        order = np.argsort(homes, kind="stable")
        parts = [store.read(clients[homes == number]) for number, store in enumerate(self.stores)]

        def joined(*rows: np.ndarray) -> np.ndarray:
            return np.concatenate(rows)[np.argsort(order)]

        memories, enrolled = jax.tree.map(joined, *parts)
        return memories, enrolled


def _journal_name(generation: int) -> str:
    return f"journal-{generation}.bin"


def _journals(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("journal-*.bin")]


def _write(descriptor: int, buffer: np.ndarray) -> None:
    view = buffer.data.cast("B")
    while view:
        view = view[os.write(descriptor, view) :]
