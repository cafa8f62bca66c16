"""Files that hold the old bytes or the new ones, whatever moment the machine stops at."""

import os
import threading
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Written aside, under a name of this process and thread, synced, renamed."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def may_be_folder(path: Path) -> bool:
    """Whether it is one, or could be made."""
    above = (path, *path.absolute().parents)
    return next(each for each in above if each.exists() or each.is_symlink()).is_dir()


def make_folder(folder: Path) -> None:
    """The folder exists, with those above it, and is on disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
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
