"""Files that hold the old bytes or the new ones, whatever moment the machine stops at."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SEAL = "# sha256 "  # begins the last line of a sealed text; a comment in TOML


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError that is raised inside names `path`: `No space left on device` alone does not."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to a temporary file beside `path`, sync it, and rename it to `path`."""
    path = Path(path)
    with naming(path), _aside(path) as aside:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    sync_folder(path.parent)


@contextlib.contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """A name for the next content of `path`, of this process and thread; removed in the end."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield aside
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def remove_temporary(folder: Path) -> None:
    """Remove what processes that were killed left behind; only for the folder's owner."""
    for path in Path(folder).rglob("*.[0-9]*-[0-9]*.tmp"):
        path.unlink(missing_ok=True)


def seal(text: str) -> str:
    """`text` with a last line that holds its checksum."""
    text = text if text.endswith("\n") else f"{text}\n"
    return f"{text}{_SEAL}{_sha256(text)}\n"


def read_sealed(path: Path) -> str:
    """The text that `seal` was given; refused by name where the file has changed since."""
    try:
        lines = Path(path).read_bytes().decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        lines = []
    text = "".join(lines[:-1])
    if not lines or lines[-1] != f"{_SEAL}{_sha256(text)}\n":
        raise ValueError(_changed(path))
    return text


def write_json(path: Path, document: dict[str, Any], *, indent: int | None = None) -> None:
    """`document` with its checksum under the key sha256; whole or not at all."""
    sealed = {**document, "sha256": _sha256(_canonical(document))}
    write_atomically(path, (json.dumps(sealed, indent=indent) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The document that `write_json` was given; refused by name where it has changed since."""
    try:
        document = json.loads(Path(path).read_bytes())
        claimed = document.pop("sha256")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(_changed(path)) from None
    if claimed != _sha256(_canonical(document)):
        raise ValueError(_changed(path))
    return document


def _canonical(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _changed(path: Path) -> str:
    return f"{path} is damaged or was edited: its checksum does not match."


def may_be_folder(path: Path) -> bool:
    """Whether it is one, or could be made."""
    above = (path, *path.absolute().parents)
    return next(each for each in above if each.exists() or each.is_symlink()).is_dir()


def make_folder(folder: Path) -> None:
    """The folder exists, with those above it, and is on disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with naming(folder):
        folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """The names in `folder` are on disk, as the files' own content is after fsync."""
    if os.name == "nt":  # where a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
