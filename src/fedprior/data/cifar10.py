"""CIFAR-10 over clients of equal size: three classes each, or Dirichlet shares of all classes."""

import tarfile
from pathlib import Path

import numpy as np

from fedprior.core import check
from fedprior.data import download as downloads
from fedprior.data import partition
from fedprior.data.federation import Federation

_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)
_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_ARCHIVE = "cifar-10-binary.tar.gz"
_SHAPE = (3, 32, 32)  # of the pixels in a record: red, green and blue planes
_RECORD = 1 + 3 * 32 * 32  # a label and the pixels


def cifar10(
    folder: str | Path,
    *,
    num_clients: int = 100,
    classes_per_client: int = 3,
    valid_share: float = 1 / 12,
    test_share: float = 1 / 6,
    seed: int = 0,
) -> Federation:
    """All 60,000 images, each dealt to one of the clients that hold its class.

    Client i holds `classes_per_client` random classes; every class is held equally often, and its
    images are shared evenly among those who hold it. The defaults give a client 450 images for
    training, 50 for validation and 100 for testing: images of the test file are images like the
    others. Pixels have the shape (32, 32, 3) and type uint8, 184 MB in all.
    """
    x, y = _read(Path(folder))
    classes = partition.balanced_classes(
        len(_CLASSES), num_clients=num_clients, classes_per_client=classes_per_client, seed=seed
    )
    groups = partition.deal_classes(y, classes=classes, seed=seed)
    return _split("cifar10", x, y, groups, valid_share, test_share, seed)


def cifar10_dirichlet(
    folder: str | Path,
    *,
    num_clients: int = 100,
    concentration: float = 0.1,
    valid_share: float = 1 / 12,
    test_share: float = 1 / 6,
    seed: int = 0,
) -> Federation:
    """All 60,000 images, dealt to clients of equal size whose class shares are Dirichlet draws.

    Client i draws its classes in shares ~ Dirichlet(concentration, ...) for as long as a class has
    images left. Sizes and parts are those of `cifar10`.
    """
    x, y = _read(Path(folder))
    groups = partition.dirichlet_clients(
        y, num_clients=num_clients, concentration=concentration, seed=seed
    )
    return _split("cifar10-dirichlet", x, y, groups, valid_share, test_share, seed)


def download(folder: str | Path) -> None:
    """Fetch CIFAR-10's archive of binary files into `folder`, checked against its published MD5.

    The only function here that goes to the network; no loader calls it.
    """
    downloads.fetch(downloads.CIFAR10, folder)


def _split(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    groups: partition.Rows,
    valid_share: float,
    test_share: float,
    seed: int,
) -> Federation:
    partition.check_shares(name, valid_share, test_share)
    parts = partition.split(groups, valid_share, test_share, seed=seed)
    clients = np.arange(len(groups)).astype(str)
    return Federation.gather(x, y, parts, clients=clients, classes=_CLASSES, name=name)


def _read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 32, 32, 3) and labels (n,) of the six files, the training files first."""
    records = np.concatenate([_records(name, content) for name, content in _contents(folder)])
    x = records[:, 1:].reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), records[:, 0].astype(np.int32)


def _contents(folder: Path) -> list[tuple[str, bytes]]:
    """Name and content of each file: from the folder, else from the archive in it."""
    for place in (folder, folder / "cifar-10-batches-bin"):
        paths = [place / name for name in _FILES]
        if all(path.is_file() for path in paths):
            return [(str(path), path.read_bytes()) for path in paths]
    archive = folder / _ARCHIVE
    if not archive.is_file():
        raise ValueError(
            f"cifar10: {folder} contains neither {_FILES[0]} to {_FILES[-1]} (six files) nor "
            f"{_ARCHIVE}. Fetch it with fedprior.data.cifar10.download({str(folder)!r}), or pass "
            "--data DIR."
        )
    try:
        with tarfile.open(archive) as members:
            found = {Path(member.name).name: member for member in members if member.isfile()}
            files = [members.extractfile(found[name]) for name in _FILES]
            return [
                (f"{archive}:{name}", b"" if file is None else file.read())
                for name, file in zip(_FILES, files, strict=True)
            ]
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        reason = " ".join(str(error).split())
        rule = f"the archive of CIFAR-10's binary files ({', '.join(_FILES)})"
        raise ValueError(check.message("cifar10", str(archive), rule, reason)) from None


def _records(name: str, content: bytes) -> np.ndarray:
    """The records of one file, (n, 3073)."""
    whole = len(content) > 0 and len(content) % _RECORD == 0
    rule = f"whole records of {_RECORD} bytes"
    check.require(whole, "cifar10", name, rule, f"{len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    largest = int(records[:, 0].max())
    check.require(largest < len(_CLASSES), "cifar10", f"labels in {name}", "in 0..9", largest)
    return records
