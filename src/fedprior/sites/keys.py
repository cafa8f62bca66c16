"""Keys of nodes and signatures of their answers: ECDSA, in OpenSSH's files, as Flower reads them.

One key serves twice: the SuperLink knows a node by it, and the server knows whose answer it reads.
"""

import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedprior.core.files import replacing, write_atomically

_HASH = ec.ECDSA(hashes.SHA256())
_HOST = "127.0.0.1"


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone may read, from its first moment on."""
    with replacing(path) as aside, open(aside, "xb", opener=_private_file) as file:
        file.write(content)


def _private_file(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


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
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError, AttributeError):
        return False
    return True


def make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """(ca.crt, server.pem, server.key) for a SuperLink on this machine, valid for 30 days."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def certificate(subject: str, own: Any, extension: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named(issuer))
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(extension, critical=False)
        )
        signed = built.sign(authority, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    issuer = "fedprior rehearsal"
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(_HOST))]
    files = folder / "ca.crt", folder / "server.pem", folder / "server.key"
    root = certificate(issuer, authority, x509.BasicConstraints(ca=True, path_length=0))
    write_atomically(files[0], root)
    write_atomically(files[1], certificate(_HOST, server, x509.SubjectAlternativeName(names)))
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_secret(files[2], server.private_bytes(*encodings, serialization.NoEncryption()))
    return files


def _private(path: Path) -> Any:
    return serialization.load_ssh_private_key(path.read_bytes(), password=None)


def _public_text(key: Any) -> str:
    encodings = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return str(key.public_key().public_bytes(*encodings).decode())
