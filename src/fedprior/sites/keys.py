"""Keys of nodes and signatures of their answers: ECDSA, in OpenSSH's files, as Flower reads them.

One key serves twice: the SuperLink knows a node by it, and the server knows whose answer it reads.
"""

import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedprior.core.files import write_atomically

_HASH = ec.ECDSA(hashes.SHA256())


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read."""
    write_atomically(path, content)
    os.chmod(path, 0o600)


def make_node_key(path: Path) -> str:
    """Write a new private key to `path` and its public one beside it (.pub); returns the latter."""
    key = ec.generate_private_key(ec.SECP384R1())
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    write_secret(path, key.private_bytes(*encodings, serialization.NoEncryption()))
    text = _public_text(key)
    write_atomically(path.with_suffix(".pub"), text.encode())
    return text


def public_key(path: Path) -> str:
    """The public key of the private one in `path`, as OpenSSH writes it."""
    return _public_text(_private(path))


def sign(path: Path, content: bytes) -> bytes:
    """The signature of `content` by the private key in `path`."""
    return _private(path).sign(content, _HASH)


def is_signed(public: str, content: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed `content`."""
    try:
        key: Any = serialization.load_ssh_public_key(public.encode())
        key.verify(signature, content, _HASH)
    except (InvalidSignature, ValueError, TypeError, AttributeError):
        return False
    return True


def _private(path: Path) -> Any:
    return serialization.load_ssh_private_key(path.read_bytes(), password=None)


def _public_text(key: Any) -> str:
    encodings = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return str(key.public_key().public_bytes(*encodings).decode())
