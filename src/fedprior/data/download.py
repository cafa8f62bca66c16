"""Downloads with a checksum: each file arrives whole and known, or not at all."""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT = 60  # seconds without an answer before the next mirror is tried


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files by name with the MD5 of each, at base addresses tried in order."""

    name: str
    mirrors: tuple[str, ...]
    files: dict[str, str]


MNIST = Files(
    name="mnist",
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    files={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
WRITERS = Files(
    name="mnist_writers",
    mirrors=("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",),
    files={"qmnist-train-labels-idx2-int.gz": "0058f8dd561b90ffdd0f734c6a30e5e4"},
)
CIFAR10 = Files(
    name="cifar10",
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
)


def fetch(source: Files, folder: str | Path) -> None:
    """Every file of `source` in `folder`; a file that is there with the right MD5 is kept."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, digest in source.files.items():
        target = folder / name
        if not (target.is_file() and _md5(target.read_bytes()) == digest):
            _write(target, _first(source, name, digest))


def _first(source: Files, name: str, digest: str) -> bytes:
    """The file's content from the first mirror that has it whole."""
    reasons = []
    for mirror in source.mirrors:
        try:
            with urllib.request.urlopen(mirror + name, timeout=_TIMEOUT) as answer:
                content: bytes = answer.read()
        except (OSError, urllib.error.URLError) as error:
            reasons.append(f"{mirror} ({getattr(error, 'reason', error)})")
            continue
        if _md5(content) == digest:
            return content
        reasons.append(f"{mirror} (MD5 {_md5(content)}, not {digest})")
    raise ValueError(
        f"download: {name} must be on one of the mirrors, got {'; '.join(reasons)}. "
        f"Where there is no network, copy the file into a folder {source.name} and pass its parent "
        f"as --data DIR."
    )


def _write(target: Path, content: bytes) -> None:
    """Written beside the target, then renamed over it: a reader never sees half a file."""
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _md5(content: bytes) -> str:
    """MD5 as published: guards against damage in transit, not against an adversary."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
