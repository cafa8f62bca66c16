"""Client data: every client's samples in one pool of rows, a client being a run of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprior.core import check, tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.data.partition import check_shares, natural, split
from fedprior.data.quantity import check_quantity

if TYPE_CHECKING:
    from fedprior.data.encoder import Encoder

COLLECTED = "the classes (name all possible ones: classes=[...])"  # as `fitted` has it
_CHECK_ROWS = 65_536  # rows read at a time when a pool is checked; bounds memory for mapped files
_PIXEL = np.float32(1 / 255)


def network_input(x: Array) -> Array:
    """What a network is given for stored inputs: bytes are pixels, x / 255 in float32.

    Images are kept as bytes, on the device too, and become numbers in [0, 1] where they are read: a
    quarter of the memory. Inputs of any other type are what they are.
    """
    return x.astype(np.float32) * _PIXEL if x.dtype == np.uint8 else x


def stored_input(x: np.ndarray) -> np.ndarray:
    """Inputs as a pool keeps them: bytes for images (rows, height, width, channels), else float32.

    Only images that come as bytes are kept as bytes.
    """
    is_image = x.dtype == np.uint8 and x.ndim == 4
    return x if is_image else x.astype(np.float32, copy=False)


class ClientData(NamedTuple):
    """One client's samples: the rows `start` to `start + size - 1` of the pool (x, y).

    A batch of clients has leading axes on `start` and `size`, and on (x, y) where each client
    brings padded rows of its own instead of sharing the pool. `rows` is 0, 1, ... up to a bound on
    every client's size and gives the padded shape. It is None where no such bound is public: what
    is computed then must not depend on how large other clients are.
    """

    x: Array
    y: Array
    start: Array
    size: Array
    rows: Array | None

    @property
    def most(self) -> int:
        """The bound on every client's number of samples; PrivacyError where none is public."""
        if self.rows is None:
            raise check.PrivacyError(
                "most_samples must be given under a private channel where all samples of a client "
                "are read at once, got None: the largest client's size would show in everybody's "
                "upload. Set most_samples of the federation (data.most_samples in a "
                "configuration) to a public bound on the training samples of one client, or use "
                "batches of a fixed size."
            )
        return int(self.rows.shape[0])

    def take(self, index: Array) -> tuple[Array, Array]:
        """(x, y) at the client's own positions `index`, each below `size`, as networks read x."""
        return network_input(self.x[self.start + index]), self.y[self.start + index]

    def all(self) -> tuple[Array, Array, Array]:
        """(x, y, mask), padded to `most` rows; a padded row repeats the last one."""
        _ = self.most
        return self.at(self.rows)

    def at(self, rows: Array) -> tuple[Array, Array, Array]:
        """(x, y, mask) at the positions `rows`; the last row stands where there are no more."""
        xp = self.size.__array_namespace__()
        x, y = self.take(xp.minimum(rows, xp.maximum(self.size - 1, 0)))
        return x, y, rows < self.size

    def sum_in_turn(self, block: Callable[..., PyTree], length: int = 128) -> PyTree:
        """Sum of block(x, y, mask) over the client's samples, `length` at a time in their order.

        There are as many turns as the client's own samples need, all of one width: how large other
        clients are changes no bit of it, and no bound on the number of samples is needed.
        """
        import jax
        import jax.numpy as jnp

        def add(number: Array, total: PyTree) -> PyTree:
            own = block(*self.at(number * length + jnp.arange(length)))
            return tree.combine(jnp.add, total, own)

        shape = jax.eval_shape(lambda: block(*self.at(jnp.arange(length))))
        zero = tree.combine(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        return jax.lax.fori_loop(0, -(-self.size // length), add, zero)


# What `jax.vmap` maps over for a cohort that shares the pool, and for one of padded rows.
POOLED_AXES = ClientData(x=None, y=None, start=0, size=0, rows=None)
PADDED_AXES = ClientData(x=0, y=0, start=0, size=0, rows=None)


@dataclass(frozen=True)
class Split:
    """Rows of all clients: client i owns `start[i]` to `start[i] + size[i] - 1`.

    `x` and `y` may be memory-mapped files. Inputs of type uint8 are pixels (`network_input`).
    """

    x: np.ndarray
    y: np.ndarray
    start: np.ndarray
    size: np.ndarray

    @property
    def num_clients(self) -> int:
        return len(self.size)

    @cached_property
    def largest(self) -> int:
        """Size of the largest client, at least 1."""
        return max(1, int(self.size.max(initial=0)))

    @cached_property
    def _rows(self) -> np.ndarray:
        return np.arange(self.largest, dtype=np.int32)

    @cached_property
    def _places(self) -> np.ndarray:
        return np.arange(self.largest, dtype=np.intp)  # what `take` wants: spares it a cast

    def pooled(self, clients: Any = slice(None)) -> ClientData:
        """The given clients, sharing the pool: no row is copied."""
        start, size = self.start[clients], self.size[clients]
        return ClientData(self.x, self.y, start, size, self._rows)

    def padded(self, clients: np.ndarray) -> ClientData:
        """The given clients, each with rows of its own, padded to the largest client's size.

        A padded row repeats the client's last one; a client without rows has zeros.
        """
        size = self.size[clients]
        own = np.minimum(self._places, np.maximum(size - 1, 0)[:, None])
        places = own + self.start[clients].astype(np.intp)[:, None]
        zero = np.zeros(len(size), np.int32)
        x, y = _take(self.x, places, size), _take(self.y, places, size)
        return ClientData(x, y, zero, size, self._rows)

    def client(self, client: int) -> ClientData:
        """One client's rows and nobody else's."""
        first, length = int(self.start[client]), int(self.size[client])
        rows = slice(first, first + length)
        zero = np.zeros((), np.int32)
        return ClientData(self.x[rows], self.y[rows], zero, self.size[client], self._rows)

    @classmethod
    def gather(cls, x: np.ndarray, y: np.ndarray, rows: Sequence[np.ndarray]) -> "Split":
        """Client i gets the rows `rows[i]` of (x, y), copied into one pool."""
        size = np.array([len(own) for own in rows], np.int32)
        start = (np.cumsum(size, dtype=np.int64) - size).astype(np.int32)
        order = np.concatenate([np.asarray(own, np.int64) for own in rows])
        return cls(x[order], y[order], start, size)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Clients with training, validation and test samples.

    Training reads `train`, choices read `valid`, and `test` is read once, at the end.
    `classes` are the labels in the order of their codes in y, or None for a real-valued target.
    `most_samples` is a public bound on the training samples of one client, which private runs of
    some methods need; a client with more of them is refused.

    One that was read from a table carries its `encoder`; `counts` and `remarks` say what was read.
    `fitted` names what was learned from the clients' own rows in reading them, such as the classes,
    with a remedy: no noise covers it, and private runs refuse such a federation.
    """

    train: Split
    valid: Split
    test: Split
    clients: np.ndarray  # (num_clients,) names
    classes: tuple[str, ...] | None
    name: str = "federation"
    most_samples: int | None = None
    encoder: "Encoder | None" = None
    fitted: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = "Federation"
        for part in ("train", "valid", "test"):
            split: Split = getattr(self, part)
            if split.num_clients != len(self.clients):
                raise ValueError(
                    f"{owner}: {part} must hold {len(self.clients)} clients, "
                    f"got {split.num_clients}."
                )
            _check_rows(f"{owner}.{part}", split, self.classes, finite=part != "test")
        if self.most_samples is not None:
            check.count(owner, most_samples=self.most_samples)
            rule = f"at least the size of the largest client ({self.train.largest})"
            fits = self.train.largest <= self.most_samples
            remedy = "Raise it, or keep no more than that many training samples of a client."
            check.require(fits, owner, "most_samples", rule, self.most_samples, remedy)
        empty = np.flatnonzero(self.train.size == 0)
        if len(empty):
            raise ValueError(
                f"{owner}: client {self.clients[empty[0]]!s} has no training samples "
                f"({len(empty)} such clients). Exclude clients without training samples."
            )

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def num_classes(self) -> int | None:
        return None if self.classes is None else len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.x.shape[1:])

    @classmethod
    def from_arrays(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        clients: np.ndarray,
        *,
        classes: Sequence[str] | None = None,
        regression: bool = False,
        valid_share: float = 0.15,
        test_share: float = 0.25,
        seed: int = 0,
        name: str = "arrays",
    ) -> "Federation":
        """Rows (x, y) grouped by the ids in `clients`, each client's rows split at random.

        Labels are coded in sorted order unless `classes` gives the order. Every client keeps at
        least one training row; a client of one row has neither validation nor test rows.
        """
        x, y, clients = np.asarray(x), np.asarray(y), np.asarray(clients)
        owner = "Federation.from_arrays"
        check_shares(owner, valid_share, test_share)
        lengths = (len(x), len(y), len(clients))
        same = len(set(lengths)) == 1 and lengths[0] > 0
        check.require(same, owner, "x, y and clients", "of one length above 0", lengths)
        inputs = stored_input(x)
        whole = np.isfinite(inputs.reshape(len(x), -1)).all(axis=1)
        if not whole.all():
            rule, row = "finite", int(np.argmin(whole))
            remedy = f"Fill or drop row {row} first."
            raise ValueError(check.message(owner, "x", rule, "NaN or infinity", remedy))
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            remedy = "Drop rows without a label first."
            raise ValueError(check.message(owner, "y", "finite", "NaN or infinity", remedy))
        if regression:
            check_quantity(owner, "y", y)
        codes, known = (y.astype(np.float32), None) if regression else encode_labels(y, classes)
        parts = split(natural(clients), valid_share, test_share, seed=seed)
        fields = {"clients": np.unique(clients).astype(str), "classes": known, "name": name}
        fitted = () if regression or classes is not None else (COLLECTED,)
        return cls.gather(inputs, codes, parts, **fields, fitted=fitted)

    def part(self, numbers: Sequence[int]) -> "Federation":
        """The clients with the given numbers, in that order."""
        chosen = np.asarray(numbers)

        def rows(split: Split) -> Split:
            own = [np.arange(split.size[k]) + split.start[k] for k in chosen]
            return Split.gather(split.x, split.y, own)

        train, valid, test = (rows(each) for each in (self.train, self.valid, self.test))
        return replace(self, train=train, valid=valid, test=test, clients=self.clients[chosen])

    @classmethod
    def gather(
        cls, x: np.ndarray, y: np.ndarray, parts: Sequence[tuple[np.ndarray, ...]], **fields: Any
    ) -> "Federation":
        """Client i gets the rows `parts[i]` of (x, y): those of training, validation and test."""
        train, valid, test = (Split.gather(x, y, [part[k] for part in parts]) for k in range(3))
        return cls(train=train, valid=valid, test=test, **fields)


def encode_labels(
    y: np.ndarray, classes: Sequence[str] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as codes 0 .. num_classes - 1 and the labels in that order."""
    present = np.unique(y)
    known = tuple(str(label) for label in (present if classes is None else classes))
    position = {label: code for code, label in enumerate(known)}
    strange = [str(label) for label in present if str(label) not in position]
    if strange:
        raise ValueError(
            check.message("labels", "each label", f"one of {', '.join(known)}", strange[0])
        )
    check.require(len(known) >= 2, "labels", "number of classes", "at least 2", len(known))
    lookup = np.array([position[str(label)] for label in present], np.int32)
    return lookup[np.searchsorted(present, y)], known


def _take(pool: np.ndarray, places: np.ndarray, size: np.ndarray) -> np.ndarray:
    """pool[places], zero where `size` is 0.

    On the hot path of the disk engine: `take` with clipping copies in one pass and checks no
    bounds, twice as fast as a loop over clients. An empty client's place may lie past the end.
    """
    if len(pool) == 0:
        return np.zeros((*places.shape, *pool.shape[1:]), pool.dtype)
    rows = np.asarray(pool).take(places, axis=0, mode="clip")
    if not size.all():
        rows[size == 0] = 0
    return rows


def _check_rows(owner: str, split: Split, classes: tuple[str, ...] | None, *, finite: bool) -> None:
    """Finite inputs and targets (test inputs are looked at when they are scored), known codes."""
    finite = finite and split.x.dtype.kind == "f"
    check.require(
        len(split.x) == len(split.y),
        owner,
        "x and y",
        "of one length",
        (len(split.x), len(split.y)),
    )
    for first in range(0, len(split.x), _CHECK_ROWS):
        rows = slice(first, first + _CHECK_ROWS)
        if finite and not np.isfinite(split.x[rows]).all():
            row = first + int(np.argwhere(~np.isfinite(split.x[rows]))[0, 0])
            client = int(np.searchsorted(split.start, row, side="right")) - 1
            raise ValueError(
                f"{owner}: features must be finite, got NaN or infinity in row "
                f"{row - split.start[client]} of client number {client}. "
                f"Fill or drop such rows first."
            )
        y = split.y[rows]
        if classes is None:
            check.require(bool(np.isfinite(y).all()), owner, "targets", "finite", "NaN or infinity")
        elif len(y) and (y.min() < 0 or y.max() >= len(classes)):
            bad = int(y.min() if y.min() < 0 else y.max())
            rule = f"a class code in 0..{len(classes) - 1}"
            raise ValueError(check.message(owner, "each label", rule, bad))
