"""Masks that cancel in a sum: a server learns the sum of its members' units, not a single vector.

After Bonawitz et al. (2017), with long-term keys. Each member uploads its units plus a mask of its
own, plus or minus a mask shared with each other member, and Shamir shares of the secrets behind
them, sealed for every member. The server names the members whose uploads arrived (`alive`), who
reveal their shares of the alive members' own masks and of the masks between alive and gone members.
Nobody reveals a whole secret: a server that lies about `alive` could then open any upload.

With n members, threshold t, and c members who collude with the server, this **protects** a member
- from a server that follows the protocol, if c < t: they learn the sum over the alive members who
  do not collude (t - c or more), and nothing from the late upload of a gone member;
- from a server that names different `alive` to different members, if 2 t > n + c: it opens one sum
  only, but chooses whose: with c = 0, of at least n (2 - n / t) members (n / 2 for t = 2 n / 3).
It **trusts** whoever distributes public keys (who replaces them opens every upload, as do t members
who collude); members to compute correctly, and to keep their keys secret for good; and the caller
to upload and reveal once in a context (two uploads expose the difference of their units) and, after
revealing, not to upload the same units in another (sums that differ by one member expose it).
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import accumulate

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedprior.core import check

Blobs = Mapping[int, bytes]  # by member
_OWNER = "secure sum"
_EXP = np.fromiter(accumulate(range(1, 256), lambda x, _: x << 1 ^ 0x11D * (x >> 7)), np.uint8)
_LOG = np.array([0, *np.argsort(_EXP)])  # to base 2 in GF(256) modulo 0x11D; 0 stands for log 0


class TooFewReveals(ValueError):
    """Fewer members than the threshold have revealed their shares: the sum stays masked."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt of a round; every secret depends on its members, context and threshold."""

    members: Blobs  # public keys
    context: bytes  # not used before by any of the members
    threshold: int

    def __post_init__(self) -> None:
        fits = 2 <= self.threshold <= len(self.members) <= 255  # a sum of one hides nothing
        check.expect(fits, _OWNER, "threshold must be from 2 to the number of members (<= 255).")
        for number, public in self.members.items():
            fits = 0 <= number < 2**63 and len(public) == 32
            check.expect(fits, _OWNER, f"member {number} must have a public key of 32 bytes.")

    def mask(self, units: np.ndarray, *, key: bytes, own: int) -> tuple[np.ndarray, Blobs]:
        """Return masked units (uint64) and 32 n + 16 sealed bytes for each member, `own` too."""
        check.expect(units.dtype == np.int64 and units.ndim == 1, _OWNER, "units must be int64.")
        keys, masked, sealed = self._keys(key, own), units.astype(np.uint64), {}
        secrets = b"".join(secret for secret, _, _ in keys.values())
        drawn = _stream(keys[own][2], (self.threshold - 1) * len(secrets) // 8)  # it seals nothing
        rows = np.frombuffer(secrets + drawn.tobytes(), np.uint8).reshape(self.threshold, -1)
        powers = np.outer(_LOG[1 : 1 + len(keys)], range(self.threshold))
        shares = _product(_EXP[powers % 255], rows)
        for share, (number, (secret, up, down)) in zip(shares, keys.items(), strict=True):
            stream = _stream(secret, units.size)
            masked = masked + stream if own <= number else masked - stream
            cipher = aead.ChaCha20Poly1305(up if own <= number else down)  # once, so nonce 0
            sealed[number] = cipher.encrypt(bytes(12), share.tobytes(), self._bind(own, number))
        return masked, sealed

    def reveal(self, *, key: bytes, own: int, alive: Collection[int], sealed: Blobs) -> bytes:
        """Return the shares of member `own` that unmask the sum of the alive members' uploads.

        `sealed` comes from the alive members, `own` too. For each, in order: a share of its secret
        and of its secrets with the gone members; then a SHA-256 of these, the attempt, `own` and
        `alive`: 32 (1 + num_alive (1 + num_gone)) bytes.
        """
        here, gone = self._split(alive)
        check.expect(own in here, _OWNER, f"member {own} is not alive and reveals nothing.")
        keys, body = self._keys(key, own), b""
        for number in here:
            cipher, shares = aead.ChaCha20Poly1305(keys[number][1 if number <= own else 2]), b""
            with suppress(InvalidTag):
                shares = cipher.decrypt(bytes(12), sealed.get(number, b""), self._bind(number, own))
            check.expect(len(shares) == 32 * len(keys), _OWNER, f"blob of member {number} is bad.")
            ends = [32 * self._points[other] for other in (number, *gone)]
            body += b"".join(shares[end - 32 : end] for end in ends)
        return body + sha256(self._bind(own, *here) + body).digest()

    def recover(self, total: np.ndarray, *, alive: Collection[int], reveals: Blobs) -> np.ndarray:
        """Return the int64 sum of the alive members' units from the uint64 sum of their uploads."""
        check.expect(total.dtype == np.uint64 and total.ndim == 1, _OWNER, "total must be uint64.")
        here, gone = self._split(alive)
        for number, blob in reveals.items():
            fits = number in here and len(blob) == 32 * (1 + len(here) * (1 + len(gone)))
            fits = fits and blob[-32:] == sha256(self._bind(number, *here) + blob[:-32]).digest()
            check.expect(fits, _OWNER, f"the reveal of member {number} is damaged or misplaced.")
        if len(reveals) < self.threshold:
            raise TooFewReveals(f"{_OWNER}: {len(reveals)} reveals, {self.threshold} needed.")
        used = sorted(reveals)[: self.threshold]
        rows = np.stack([np.frombuffer(reveals[number][:-32], np.uint8) for number in used])
        points = np.array([self._points[number] for number in used])
        logs = _LOG[points].sum() - _LOG[points] - _LOG[points[:, None] ^ points].sum(axis=1)
        secrets = iter(_product(_EXP[logs % 255][None], rows).reshape(-1, 32))  # Lagrange, at zero
        for one in here:
            for other in (one, *gone):
                stream = _stream(next(secrets).tobytes(), total.size)
                total = total - stream if one <= other else total + stream
        return total.view(np.int64)

    @cached_property
    def _points(self) -> dict[int, int]:  # of GF(256), by member
        return {number: rank for rank, number in enumerate(sorted(self.members), start=1)}

    def _bind(self, *numbers: int) -> bytes:
        head = np.array([self.threshold, len(self.members), *self._points], ">u8").tobytes()
        publics = b"".join(self.members[number] for number in self._points)
        digest = sha256(b"fedprior masks 1" + head + publics + self.context).digest()
        return digest + np.array(numbers, ">u8").tobytes()

    def _split(self, alive: Collection[int]) -> tuple[list[int], list[int]]:
        here = [number for number in self._points if number in alive]
        rule = f"alive must name at least {self.threshold} members, each once."
        check.expect(len(here) == len(alive) >= self.threshold, _OWNER, rule)
        return here, [number for number in self._points if number not in alive]

    def _keys(self, key: bytes, own: int) -> dict[int, tuple[bytes, bytes, bytes]]:
        """By member: the secret of the mask, and the keys that seal up and down by number."""
        check.expect(self.members.get(own) == public_key(key), _OWNER, f"member {own}: wrong key.")
        keys, private = {}, X25519PrivateKey.from_private_bytes(key)
        for number in self._points:
            public = X25519PublicKey.from_public_bytes(self.members[number])
            try:
                shared = key if number == own else private.exchange(public)
            except ValueError as error:  # a key of small order: all its secrets would be zero
                raise ValueError(f"{_OWNER}: the key of member {number} is unsafe.") from error
            derived = HKDF(SHA256(), 96, None, self._bind(*sorted((own, number)))).derive(shared)
            keys[number] = derived[:32], derived[32:64], derived[64:]
        return keys


def new_key() -> bytes:
    """Return a new private key (32 bytes) from the operating system's randomness."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(key: bytes) -> bytes:
    """Return the public key (32 bytes) of a private key."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def _stream(secret: bytes, length: int) -> np.ndarray:
    cipher = Cipher(algorithms.ChaCha20(secret, bytes(16)), mode=None).encryptor()  # one use
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8")


def _product(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Matrix product in GF(256) whose memory access depends on `matrix`, which is public, only."""
    product = np.zeros((len(matrix), rows.shape[1]), np.uint8)
    for bit in range(8):
        for index, chosen in enumerate((matrix >> bit & 1).astype(bool)):
            product[index] ^= np.bitwise_xor.reduce(rows[chosen], axis=0)
        rows = (rows << 1) ^ (rows >> 7) * np.uint8(0x1D)  # times two
    return product
