"""The channel without any protection."""

from dataclasses import dataclass

from fedprior.core.algorithm import Array, Key
from fedprior.core.protocols import Channel


@dataclass(frozen=True)
class Identity(Channel):
    """Sends each message unchanged.

    Protects: nothing. Trusts: the party that computes the sum, with every message.
    """

    def encode(self, message: Array, key: Key) -> Array:
        return message
