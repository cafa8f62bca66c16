"""A folder of .npz files, one per client: the file's stem is the client's name."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.data.federation import (
    COLLECTED,
    Federation,
    Split,
    encode_labels,
    network_input,
    stored_input,
)
from fedprior.data.partition import check_shares, split_rows
from fedprior.data.quantity import check_quantity
from fedprior.data.reader import names

_PARTS = ("train", "valid", "test")
_WHOLE = ("x", "y")
_SPLIT = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class _Client:
    """One client's arrays: x and y of the three parts."""

    path: Path
    x: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]


def from_folder(
    path: str | Path,
    *,
    regression: bool | None = None,
    classes: Sequence[str] | None = None,
    valid_share: float = 0.15,
    test_share: float = 0.25,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """Client i = the i-th .npz file by name, holding x, y (split at random by the shares), or
    x_train, y_train, x_test, y_test and perhaps x_valid, y_valid (taken as they are).

    Labels with fractions are a quantity (regression) unless `regression` says otherwise. Classes
    are the sorted labels of all clients, or those given: then any other label is refused. Images of
    shape (rows, height, width, channels) and type uint8 are pixels, which networks read as x / 255.
    Object arrays are refused: nothing is unpickled.
    """
    owner = "from_folder"
    check_shares(owner, valid_share, test_share)
    seed = check.seed(owner, seed)
    folder = Path(path)
    files = sorted(folder.glob("*.npz"))
    if not files:
        reason = "contains no .npz files" if folder.is_dir() else "is not a folder"
        raise ValueError(f"{owner}: {folder} {reason}; one .npz file per client is needed.")
    clients = [
        _read(file, shares=(valid_share, test_share), seed=seed, client=number)
        for number, file in enumerate(files)
    ]
    _check_alike(clients)
    known = _known(clients, regression, classes)
    if known is None:
        check_quantity(owner, "y", np.concatenate([y for client in clients for y in client.y]))
    train, valid, test = (_pool(clients, part, known) for part in range(3))
    return Federation(
        train=train,
        valid=valid,
        test=test,
        clients=np.array([file.stem for file in files]),
        classes=known,
        fitted=() if regression or classes is not None else (COLLECTED,),
        name=folder.name if name is None else name,
    )


def read_new(
    path: str | Path, *, shape: tuple[int, ...], classes: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, client names) of new rows, one .npz file per client with x and perhaps y.

    A client without y has code -1 in every row, or NaN where `classes` is None (regression).
    """
    files = sorted(Path(path).glob("*.npz"))
    if not files:
        raise ValueError(
            f"{path} is a folder without .npz files, one per client. For tables in it, quote a "
            f"glob: '{path}/*.csv'."
        )
    xs, ys, clients = [], [], []
    for file in files:
        arrays = _arrays(file)
        x = arrays.get("x")
        if x is None or x.shape[1:] != shape or not np.isfinite(x).all():
            got = "no array x" if x is None else f"shape {x.shape}"
            raise ValueError(f"{file} must contain finite inputs x of shape {shape}, got {got}.")
        y = arrays.get("y")
        if y is None:
            y = np.full(len(x), np.nan if classes is None else -1)
        else:
            _check_pair(file, "x", x, y)
            y = y if classes is None else encode_labels(_words(y), classes)[0]
        xs.append(network_input(stored_input(x)))
        ys.append(y.astype(np.float32 if classes is None else np.int32))
        clients.append(np.full(len(x), file.stem, object))
    return np.concatenate(xs), np.concatenate(ys), np.concatenate(clients)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; nothing is unpickled."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"from_folder: {path} must be an .npz file of plain arrays, got: {reason}"
        ) from None


def _pool(clients: list[_Client], part: int, classes: tuple[str, ...] | None) -> Split:
    """One part of all clients; labels coded."""
    inputs = [stored_input(client.x[part]) for client in clients]
    if len({each.dtype for each in inputs}) > 1:  # pixels of some clients are numbers already
        inputs = [network_input(each) for each in inputs]
    x = np.concatenate(inputs)
    y = np.concatenate([client.y[part] for client in clients])
    if classes is None:
        codes = y.astype(np.float32)
    else:
        codes = encode_labels(_words(y), classes)[0] if len(y) else np.empty(0, np.int32)
    size = np.array([len(client.y[part]) for client in clients], np.int32)
    start = (np.cumsum(size, dtype=np.int64) - size).astype(np.int32)
    return Split(x, codes, start, size)


def _read(path: Path, *, shares: tuple[float, float], seed: int, client: int) -> _Client:
    """The arrays of one file, in three parts."""
    arrays = _arrays(path)
    if all(name in arrays for name in _SPLIT):
        x_valid = arrays.get("x_valid", arrays["x_train"][:0])
        y_valid = arrays.get("y_valid", arrays["y_train"][:0])
        x = (arrays["x_train"], x_valid, arrays["x_test"])
        y = (arrays["y_train"], y_valid, arrays["y_test"])
    elif all(name in arrays for name in _WHOLE):
        whole = arrays["x"], arrays["y"]
        _check_pair(path, "x", *whole)
        rows = split_rows(np.arange(len(whole[1])), *shares, seed=seed, client=client)
        x, y = (tuple(array[own] for own in rows) for array in whole)
    else:
        raise ValueError(
            f"from_folder: {path} must hold x and y, or x_train, y_train, x_test and y_test, "
            f"got {', '.join(sorted(arrays)) or 'nothing'}."
        )
    for part, inputs, labels in zip(_PARTS, x, y, strict=True):
        _check_pair(path, f"x_{part}", inputs, labels)
    if len(y[0]) == 0:
        raise ValueError(f"from_folder: {path} has no training rows.")
    return _Client(path, x, y)


def _check_pair(path: Path, name: str, x: np.ndarray, y: np.ndarray) -> None:
    if x.dtype.kind not in "iufb":
        raise ValueError(f"from_folder: {name} of {path} must be numeric, got {x.dtype}.")
    if not np.isfinite(x).all():
        raise ValueError(f"from_folder: {name} of {path} must be finite, got NaN or infinity.")
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise ValueError(
            f"from_folder: {name} of {path} must have shape (rows, ...) and its labels (rows,), "
            f"got {x.shape} and {y.shape}."
        )


def _check_alike(clients: list[_Client]) -> None:
    """One input shape for all parts of all clients, and labels of one kind."""
    first = clients[0]
    wanted, text = first.x[0].shape[1:], first.y[0].dtype.kind in "US"
    for client in clients:
        for part, x, y in zip(_PARTS, client.x, client.y, strict=True):
            if x.shape[1:] != wanted:
                raise ValueError(
                    f"from_folder: inputs must have one shape, got {x.shape[1:]} in {part} of "
                    f"{client.path} and {wanted} in {first.path}."
                )
            if (y.dtype.kind in "US") != text and len(y):
                raise ValueError(
                    f"from_folder: labels must be all text or all numbers, got {y.dtype} in "
                    f"{client.path} and {first.y[0].dtype} in {first.path}."
                )


def _known(
    clients: list[_Client], regression: bool | None, classes: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The classes that were given, else those of all labels; None for a quantity."""
    owner = "from_folder"
    if classes is not None:
        remedy = "A quantity has no classes."
        check.require(not regression, owner, "classes", "None for regression", classes, remedy)
        words = [] if isinstance(classes, str) else [str(word) for word in classes]
        several = len(set(words)) == len(words) >= 2
        check.require(several, owner, "classes", "a list of at least 2 names", classes)
        return tuple(words)
    labels = np.concatenate([part for client in clients for part in client.y])
    fractions = labels.dtype.kind == "f" and bool((labels != np.rint(labels)).any())
    is_quantity = fractions if regression is None else regression
    if is_quantity and labels.dtype.kind not in "iuf":
        rule = "numeric for regression"
        raise ValueError(check.message(owner, "labels", rule, str(labels.dtype)))
    return None if is_quantity else _classes(labels)


def _classes(labels: np.ndarray) -> tuple[str, ...]:
    """Sorted labels: numbers by size, words by alphabet."""
    return encode_labels(_words(labels), _words(np.unique(labels)).tolist())[1]


def _words(labels: np.ndarray) -> np.ndarray:
    """Labels as text, alike whether one client stored 3 and another 3.0."""
    return names(np.ma.MaskedArray(labels, np.zeros(len(labels), bool)))
