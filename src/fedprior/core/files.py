"""Atomic writes: after a crash at any moment, a file holds its old bytes or its new ones."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEMPORARY = "*.[0-9]*-[0-9]*.tmp"  # names of files that are being written
_SEAL = "# sha256 "  # prefix of the last line of a sealed text; a comment in TOML


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in an OSError of writing it; `No space left on device` does not name a file."""
    try:
        yield
    except OSError as error:
        its_own = error.filename is None or str(error.filename).startswith(str(path))
        if error.errno is None or not its_own or "cannot write" in str(error.strerror):
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to a temporary file next to `path`, sync it, and rename it to `path`."""
    with replacing(path) as aside, aside.open("wb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` at exit, unless an exception is raised.

    The name is unique to this process and thread. The file is synced before it is renamed.
    """
    path = Path(path)
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with naming(path):
            yield aside
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.rename(path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_temporary(folder: Path) -> None:
    """Remove the temporary files of killed processes from `folder`; only for the folder's owner."""
    for path in Path(folder).rglob(TEMPORARY):
        path.unlink(missing_ok=True)


def seal(text: str) -> str:
    """Append a line with the checksum of `text`."""
    text = text if text.endswith("\n") else f"{text}\n"
    return f"{text}{_SEAL}{_sha256(text)}\n"


def read_sealed(path: Path) -> str:
    """Read a text written with `seal`; raises ValueError if the file has changed since."""
    try:
        lines = Path(path).read_bytes().decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        lines = []
    text = "".join(lines[:-1])
    if not lines or lines[-1] != f"{_SEAL}{_sha256(text)}\n":
        raise ValueError(_changed(path))
    return text


def write_json(path: Path, document: dict[str, Any], *, indent: int | None = None) -> None:
    """Write `document` atomically, with its checksum under the key sha256."""
    sealed = {**document, "sha256": _sha256(_canonical(document))}
    write_atomically(path, (json.dumps(sealed, indent=indent) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a document written by `write_json`; raises ValueError if the file has changed since."""
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
    """Return whether `path` is a folder or could be created as one."""
    ancestors = (path, *path.absolute().parents)
    return next(path for path in ancestors if path.exists() or path.is_symlink()).is_dir()


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents, and sync them to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with naming(folder):
        folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk; fsync on a file covers only its content."""
    if os.name == "nt":  # folders cannot be opened on Windows
        return
    with naming(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
