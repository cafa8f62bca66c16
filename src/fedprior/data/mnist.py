"""MNIST over clients: three random classes each, or the digits of three writers each."""

from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.data import download as downloads
from fedprior.data import partition
from fedprior.data.federation import Federation, Split
from fedprior.data.idx import read_idx

_CLASSES = tuple("0123456789")
_IMAGES = ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte")
_LABELS = ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte")
_WRITERS = "mnist_writers.npz"
_WRITERS_ORIGINAL = "qmnist-train-labels-idx2-int"
_WRITER_COLUMN = 2  # of QMNIST's eight label columns: class, series, writer, ...


def mnist(
    folder: str | Path,
    *,
    num_clients: int = 50,
    classes_per_client: int = 3,
    train_samples: int = 1200,
    valid_samples: int = 200,
    test_samples: int = 200,
    seed: int = 0,
) -> Federation:
    """Client i draws its classes, then images of them: pixels of shape (28, 28, 1), uint8.

    Training and validation images come from the training file, test images from the test file. Two
    clients may share an image, but nobody trains on an image that anybody is validated on: as much
    of every class is set aside for validation as `valid_samples` is of both. Every client holds
    copies: the defaults take 47 MB for training.
    """
    check.count("mnist", train_samples=train_samples)
    check.count("mnist", least=0, valid_samples=valid_samples)
    seed = check.seed("mnist", seed)
    train_x, train_y = _read_pair("mnist", Path(folder), 0)
    test_x, test_y = _read_pair("mnist", Path(folder), 1)
    share = valid_samples / (train_samples + valid_samples)
    fit, aside = partition.set_aside(train_y, share=share, seed=seed)
    rows, classes = partition.by_classes(
        train_y[fit],
        num_clients=num_clients,
        classes_per_client=classes_per_client,
        samples_per_client=train_samples,
        seed=seed,
    )
    test_rows = partition.of_classes(
        test_y, classes=classes, samples_per_client=test_samples, seed=seed
    )
    valid_rows = [np.empty(0, int)] * num_clients
    if valid_samples:
        valid_rows = partition.of_classes(
            train_y[aside], classes=classes, samples_per_client=valid_samples, seed=seed
        )
    return Federation(
        train=Split.gather(train_x, train_y, [fit[own] for own in rows]),
        valid=Split.gather(train_x, train_y, [aside[own] for own in valid_rows]),
        test=Split.gather(test_x, test_y, test_rows),
        clients=np.arange(num_clients).astype(str),
        classes=_CLASSES,
        name="mnist",
    )


def mnist_writers(
    folder: str | Path,
    writers: str | Path,
    *,
    num_clients: int = 66,
    writers_per_client: int = 3,
    valid_share: float = 0.1,
    test_share: float = 0.1,
    seed: int = 0,
) -> Federation:
    """Client i owns every training-file digit of its writers, in shares 0.8, 0.1 and 0.1.

    Stands in for the digits of FEMNIST. The training file has 539 writers of 19 to 131 digits
    (median 116), none of whom wrote in the test file, so a client's test digits are the rest of
    its writers' own. Three writers make about 340 digits: 180 to 310 for training (median 272)
    and 22 to 38 for testing, close to the paper's 203 to 336 and 25 to 40. No digit has two
    clients. The training images are read from `folder`, the writers' ids from `writers`.
    """
    owner = "mnist_writers"
    check.count(owner, num_clients=num_clients, writers_per_client=writers_per_client)
    partition.check_shares(owner, valid_share, test_share)
    seed = check.seed(owner, seed)
    x, y = _read_pair(owner, Path(folder), 0)
    ids = _read_writers(Path(writers), len(y))
    groups = partition.grouped_natural(
        ids,
        ids_per_client=writers_per_client,
        num_ids=num_clients * writers_per_client,
        seed=seed,
    )
    parts = partition.split(groups, valid_share, test_share, seed=seed)
    names = ["+".join(map(str, dict.fromkeys(ids[rows].tolist()))) for rows in groups]
    fields = {"clients": np.array(names), "classes": _CLASSES, "name": "mnist-writers"}
    return Federation.gather(x, y, parts, **fields)


def mnist_dirichlet(
    folder: str | Path,
    *,
    num_clients: int = 20,
    concentration: float = 0.1,
    min_samples: int = 40,
    valid_share: float = 0.1,
    test_share: float = 0.25,
    seed: int = 0,
) -> Federation:
    """All 70,000 images, class c dealt in shares ~ Dirichlet(concentration), each to one client.

    A client's images are split at random; those of the test file are images like the others.
    """
    owner = "mnist_dirichlet"
    partition.check_shares(owner, valid_share, test_share)
    seed = check.seed(owner, seed)
    pairs = [_read_pair(owner, Path(folder), part) for part in (0, 1)]
    x, y = (np.concatenate([pair[k] for pair in pairs]) for k in (0, 1))
    groups = partition.dirichlet(
        y,
        num_clients=num_clients,
        concentration=concentration,
        seed=seed,
        min_samples=min_samples,
    )
    parts = partition.split(groups, valid_share, test_share, seed=seed)
    names = np.arange(num_clients).astype(str)
    return Federation.gather(x, y, parts, clients=names, classes=_CLASSES, name="mnist-dirichlet")


def download(folder: str | Path) -> None:
    """Fetch MNIST's four files into `folder`, each checked against its published MD5.

    The only function here that goes to the network; no loader calls it.
    """
    downloads.fetch(downloads.MNIST, folder)


def download_writers(folder: str | Path) -> None:
    """Fetch QMNIST's training labels, which name the writer of every MNIST training digit."""
    downloads.fetch(downloads.WRITERS, folder)


def _read_pair(owner: str, folder: Path, part: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28, 1) and labels (n,) of the training (0) or the test file (1)."""
    remedy = f"Fetch them with fedprior.data.mnist.download({str(folder)!r}), or pass --data DIR."
    images = _find(owner, folder, _IMAGES[part], remedy)
    labels = _find(owner, folder, _LABELS[part], remedy)
    x = read_idx(images, dtype="uint8", shape=(None, 28, 28))
    y = read_idx(labels, dtype="uint8", shape=(len(x),)).astype(np.int32)
    if len(y) and y.max() > 9:
        raise ValueError(check.message(owner, f"labels in {labels}", "in 0..9", int(y.max())))
    return x[..., None], y


def _read_writers(folder: Path, num_rows: int) -> np.ndarray:
    """The writer's id of every training digit: from the small archive, else from QMNIST itself."""
    archive = folder / _WRITERS
    if archive.is_file():
        with np.load(archive, allow_pickle=False) as arrays:
            ids = arrays["train_writer"]
        rule = f"one id for each of the {num_rows} training images"
        check.require(ids.shape == (num_rows,), "mnist_writers", str(archive), rule, ids.shape)
        return ids
    remedy = (
        f"Fetch it with fedprior.data.mnist.download_writers({str(folder)!r}), or pass --data DIR."
    )
    path = _find("mnist_writers", folder, _WRITERS_ORIGINAL, remedy)
    return read_idx(path, dtype="int32", shape=(num_rows, 8))[:, _WRITER_COLUMN]


def _find(owner: str, folder: Path, name: str, remedy: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise ValueError(f"{owner}: {folder} contains neither {name}.gz nor {name}. {remedy}")
