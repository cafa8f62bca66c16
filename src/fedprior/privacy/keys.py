"""Files with the key of a ledger: 64 hexadecimal digits, readable by their owner only."""

import os
import re
import secrets
from pathlib import Path

from fedprior.core import check
from fedprior.core.files import make_folder, naming, sync_folder


def read(path: Path) -> bytes:
    """Return the key in a file; the key itself is never part of a message."""
    path = Path(path)
    check.expect(path.exists(), "ledger", f"the key file {path} does not exist.")
    check.expect(not path.is_dir(), "ledger", f"the key file {path} is a folder.")
    text = path.read_bytes().strip()
    if re.fullmatch(rb"[0-9a-f]{64}", text) is None:
        raise ValueError(
            f"ledger: the key file {path} must contain 64 hexadecimal digits, as written by "
            "fedprior privacy ledger init --key."
        )
    return bytes.fromhex(text.decode())


def read_or_make(path: Path) -> bytes:
    """Return the key in a file, which is made if it does not exist."""
    path = Path(path)
    if not path.exists():
        make_folder(path.parent)
        with naming(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_hex(32).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        sync_folder(path.parent)
    return read(path)
