"""Federations drawn from the model itself, in memory or in memory-mapped files."""

from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check, random
from fedprior.data.federation import Federation, Split

_PARTS = ("train", "valid", "test")
_CHUNK = 4_000_000  # numbers in one block of inputs: 16 MB; part of the law, as draws are by block
_TINY = np.finfo(np.float32).tiny  # a float32 exponential is 0 once in some 2**24 draws
_SIGNAL = 2.0  # standard deviation of the population's logits: neither a coin flip nor certain


def classification(
    *,
    num_clients: int = 100,
    samples_per_client: int | tuple[int, int] = (20, 50),
    num_features: int = 20,
    num_classes: int = 5,
    spread: float = 0.3,
    valid_samples: int = 10,
    test_samples: int = 20,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Federation:
    """theta_i ~ N(mu, spread**2 I), x ~ N(0, I), y ~ Categorical(softmax(x theta_i)).

    mu has entries N(0, 4 / num_features), so that the population's logits have standard deviation
    2. `samples_per_client` counts training samples; a pair (low, high) draws a size for each
    client, both ends included. With `folder`, x and y of each part are written there as .npy files,
    a block of clients at a time, and opened read-only as memory maps.
    """
    owner = "classification"
    check.count(owner, num_clients=num_clients, num_features=num_features)
    check.count(owner, least=2, num_classes=num_classes)
    check.count(owner, least=0, valid_samples=valid_samples, test_samples=test_samples)
    check.nonnegative(owner, spread=spread)
    seed = check.seed(owner, seed)
    draws = random.stream(seed, "partition")
    train_size = _sizes(owner, samples_per_client, num_clients, draws)
    mean = draws.standard_normal((num_features, num_classes)) * (_SIGNAL / np.sqrt(num_features))
    sizes = [train_size] + [
        np.full(num_clients, count, np.int32) for count in (valid_samples, test_samples)
    ]
    parts = [
        _room(part, size, num_features, folder) for part, size in zip(_PARTS, sizes, strict=True)
    ]
    _fill(parts, mean.astype(np.float32), float(spread), seed)
    train, valid, test = (
        _reopened(split, part, folder) for split, part in zip(parts, _PARTS, strict=True)
    )
    return Federation(
        train=train,
        valid=valid,
        test=test,
        clients=np.arange(num_clients).astype(str),
        classes=tuple(str(code) for code in range(num_classes)),
        name="synthetic",
    )


def _sizes(
    owner: str, samples: int | tuple[int, int], num_clients: int, draws: np.random.Generator
) -> np.ndarray:
    """Training size of each client."""
    low, high = samples if isinstance(samples, tuple | list) else (samples, samples)
    check.count(owner, samples_per_client=low)
    check.count(owner, samples_per_client=high)
    check.require(low <= high, owner, "samples_per_client", "(low, high), low first", samples)
    size = draws.integers(low, high, num_clients, np.int32, endpoint=True)
    rule = "below 2**31"
    check.require(int(size.sum()) < 2**31, owner, "number of samples", rule, int(size.sum()))
    return size


def _room(part: str, size: np.ndarray, num_features: int, folder: str | Path | None) -> Split:
    """Arrays to be filled, in memory or on disk."""
    start = (np.cumsum(size, dtype=np.int64) - size).astype(np.int32)
    rows = int(size.sum())
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "x": ((rows, num_features), np.float32),
        "y": ((rows,), np.int32),
    }
    if folder is None or rows == 0:  # an empty file cannot be mapped
        arrays = {name: np.empty(shape, dtype) for name, (shape, dtype) in shapes.items()}
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
        arrays = {
            name: np.lib.format.open_memmap(
                _file(folder, part, name), mode="w+", dtype=dtype, shape=shape
            )
            for name, (shape, dtype) in shapes.items()
        }
    return Split(arrays["x"], arrays["y"], start, size)


def _fill(parts: list[Split], mean: np.ndarray, spread: float, seed: int) -> None:
    """Draw the clients block by block; block b has the stream (seed, "partition", 1, b).

    Each client gets the rows of the largest one, and the surplus is thrown away: one batched
    product for a block instead of one product a client.
    """
    num_features, num_classes = mean.shape
    largest = [part.largest if len(part.y) else 0 for part in parts]
    block = max(1, _CHUNK // (num_features * max(sum(largest), num_classes)))
    for number, first in enumerate(range(0, parts[0].num_clients, block)):
        draws = random.stream(seed, "partition", 1, number)
        count = min(block, parts[0].num_clients - first)
        theta = mean + spread * draws.standard_normal((count, *mean.shape), dtype=np.float32)
        x = draws.standard_normal((count, sum(largest), num_features), dtype=np.float32)
        logits = x @ theta
        waits = draws.standard_exponential(logits.shape, dtype=np.float32)
        noise = -np.log(np.maximum(waits, _TINY))
        y = (logits + noise).argmax(axis=-1).astype(np.int32)  # Gumbel-max: exact draws of softmax
        column = 0
        for part, length in zip(parts, largest, strict=True):
            own = slice(column, column + length)
            column += length
            size = part.size[first : first + count]
            used = np.arange(length) < size[:, None]
            rows = slice(int(part.start[first]), int(part.start[first]) + int(size.sum()))
            part.x[rows], part.y[rows] = x[:, own][used], y[:, own][used]


def _reopened(split: Split, part: str, folder: str | Path | None) -> Split:
    """The split itself, or its files opened read-only."""
    if not isinstance(split.x, np.memmap) or folder is None:
        return split
    split.x.flush()
    if isinstance(split.y, np.memmap):
        split.y.flush()
    x, y = (np.load(_file(folder, part, name), mmap_mode="r") for name in ("x", "y"))
    return Split(x, y, split.start, split.size)


def _file(folder: str | Path, part: str, name: str) -> Path:
    return Path(folder) / f"{part}_{name}.npy"
