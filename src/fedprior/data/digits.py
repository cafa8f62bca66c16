"""Embedded data: scikit-learn's 1,797 digits (8 x 8), dealt to clients that write in own styles."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedprior.core import check, random
from fedprior.data import partition
from fedprior.data.federation import Federation

_FILE = "datasets/data/digits.csv.gz"
_SIDE = 8
_SAMPLES = 60  # images a client at most, so that training sets stay small with few clients
_TRAIN = (10, 20)  # training images a client, both ends included: clients differ in size
_VALID = 8
_LEAST = _TRAIN[1] + _VALID + 4  # images a client needs for three useful parts


def digits(*, num_clients: int = 30, classes_per_client: int = 5, seed: int = 0) -> Federation:
    """Client i: a few classes, and x = style_i(image), with no image shared between clients.

    A style is a gamma, a shift by at most 0.6 pixels, a slant and a stroke weight. Each client has
    10 to 20 training images, 8 for validation and the rest (about 30) for testing; x is float32
    in [0, 1] of shape (8, 8, 1).
    """
    owner = "digits"
    seed = check.seed(owner, seed)
    sets = partition.balanced_classes(
        10, num_clients=num_clients, classes_per_client=classes_per_client, seed=seed
    )
    images, labels = _embedded()
    groups = _deal(labels, sets, seed)
    fewest = min(map(len, groups))
    check.require(
        fewest >= _LEAST,
        owner,
        "num_clients",
        f"small enough for {_LEAST} of the 1,797 images each",
        num_clients,
        f"The smallest client would have {fewest}.",
    )
    x = np.empty((*images.shape, 1), np.float32)
    parts = []
    for client, rows in enumerate(groups):
        x[rows, ..., 0] = _styled(images[rows], random.stream(seed, "style", client))
        draws = random.stream(seed, "split", client)
        first = int(draws.integers(_TRAIN[0], _TRAIN[1], endpoint=True))
        parts.append(tuple(np.split(rows, [first, first + _VALID])))
    return Federation.gather(
        x,
        labels,
        parts,
        clients=np.arange(num_clients).astype(str),
        classes=tuple("0123456789"),
        name="digits",
    )


def _embedded() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8) in [0, 1] and their labels, from scikit-learn's file.

    It is read directly where it is found: importing scikit-learn takes a second.
    """
    package = find_spec("sklearn")
    file = Path(package.origin).parent / _FILE if package and package.origin else None
    if file is not None and file.is_file():
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
        pixels, labels = rows[:, :-1], rows[:, -1]
    else:
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
    images = pixels.reshape(-1, _SIDE, _SIDE).astype(np.float32) / 16
    return images, labels.astype(np.int32)


def _deal(labels: np.ndarray, sets: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Each class's images in equal shares to the clients that hold it, in random order."""
    holders = np.bincount(np.concatenate(sets), minlength=10)
    share = min(np.bincount(labels) // np.maximum(holders, 1))
    share = min(int(share), _SAMPLES // len(sets[0]))
    decks = [
        random.stream(seed, "partition", 1, label).permutation(np.flatnonzero(labels == label))
        for label in range(10)
    ]
    dealt = np.zeros(10, int)
    groups = []
    for client, own in enumerate(sets):
        hand = [decks[label][dealt[label] : dealt[label] + share] for label in own]
        dealt[own] += share
        groups.append(random.stream(seed, "partition", 2, client).permutation(np.concatenate(hand)))
    return groups


def _styled(images: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """Images (n, 8, 8) as one hand would write them: gamma, stroke weight, shift and slant."""
    gamma = np.exp(draws.uniform(-0.7, 0.7))
    thickness = draws.uniform(0.0, 0.5)  # share of the stroke lent to the pixel on its right
    right, down = draws.uniform(-0.6, 0.6, size=2)
    slant = draws.uniform(-0.2, 0.2)  # pixels a row
    place = np.arange(_SIDE)
    offset = right + slant * (place - (_SIDE - 1) / 2)
    across = np.stack([_shift(step) for step in offset])  # (row, to, from)
    thick = np.maximum(images, thickness * np.pad(images, ((0, 0), (0, 0), (1, 0)))[..., :-1])
    moved = np.einsum("rtf,nrf->nrt", across, thick)
    moved = np.einsum("tf,nfc->ntc", _shift(down), moved)
    return np.clip(moved, 0, 1).astype(np.float32) ** np.float32(gamma)


def _shift(step: float) -> np.ndarray:
    """Matrix (to, from) that moves a row of pixels by `step`, by linear interpolation."""
    place = np.arange(_SIDE)
    return np.maximum(0, 1 - np.abs(place[:, None] - step - place[None, :]))
