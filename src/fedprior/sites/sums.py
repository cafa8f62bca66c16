"""The server's side of a secure sum: masked uploads in, the sum of the clients alive out."""

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.masks import Attempt, TooFewReveals


class Sum:
    """One attempt of one round; fewer clients than the noise was planned for end it."""

    def __init__(
        self, agreement: Agreement, token: str, round: int, members: Mapping[int, bytes]
    ) -> None:
        channel = agreement.channel
        assert isinstance(channel, DistributedGaussian)
        self.length, self.nonce = agreement.length, secrets.token_hex(16)
        context = f"{token} {round} {self.nonce}".encode()
        self.attempt = Attempt(members=members, context=context, threshold=channel.fewest)
        self.total = np.zeros(self.length, np.uint64)
        self.sealed: dict[int, dict[int, bytes]] = {}  # from a client, for another
        self.reveals: dict[int, bytes] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """What a client has to know of the attempt."""
        members = {str(number): key.hex() for number, key in self.attempt.members.items()}
        return {"attempt": self.nonce, "members": members}

    @property
    def alive(self) -> list[int]:
        return sorted(self.sealed)

    @property
    def enough(self) -> bool:
        """Whether as many have sent masked uploads as the noise was planned for."""
        return len(self.sealed) >= self.attempt.threshold

    def add(self, client: int, arrays: Mapping[str, np.ndarray]) -> str | None:
        """Add a masked upload; returns what is wrong with it, if anything is.

        It looks like noise, and nothing else can be checked.
        """
        upload = arrays.get("upload")
        if upload is None or upload.dtype != np.uint64 or upload.shape != (self.length,):
            return "RefusedUpload: a masked upload must be uint64 of the agreed length."
        sealed = {number: arrays.get(f"sealed/{number}") for number in self.attempt.members}
        if any(blob is None or blob.dtype != np.uint8 for blob in sealed.values()):
            return "RefusedUpload: a masked upload must come with shares for every client."
        self.total = self.total + upload
        self.sealed[client] = {n: blob.tobytes() for n, blob in sealed.items() if blob is not None}
        return None

    def for_client(self, number: int) -> dict[str, np.ndarray]:
        """What the clients alive have sealed for one of them."""
        return {
            str(sender): np.frombuffer(blobs[number], np.uint8)
            for sender, blobs in self.sealed.items()
        }

    def reveal(self, client: int, arrays: Mapping[str, np.ndarray]) -> str | None:
        """Take what a client reveals; returns what is wrong with it, if anything is."""
        blob = arrays.get("revealed")
        if client not in self.sealed or blob is None or blob.dtype != np.uint8:
            return "RefusedReveal"
        self.reveals[client] = blob.tobytes()
        return None

    def recover(self) -> np.ndarray | None:
        """The sum in units; None where too few have revealed what takes off the masks."""
        good = {}
        for client, blob in self.reveals.items():  # one damaged reveal does not spoil the others
            try:
                self.attempt.recover(self.total[:0], alive=self.alive, reveals={client: blob})
            except TooFewReveals:
                good[client] = blob
            except ValueError:
                continue
        try:
            return self.attempt.recover(self.total, alive=self.alive, reveals=good)
        except TooFewReveals:
            return None
