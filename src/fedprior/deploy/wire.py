"""Messages as Flower carries them: one array of bytes, a signature beside it.

The bytes are those of `exchange.trees`: a header that is checked before anything is read, raw
arrays, a checksum. Nothing is unpickled, and no reader of Flower's own touches the content.
"""

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedprior.core import formats
from fedprior.core.algorithm import PyTree
from fedprior.exchange import trees

_KIND, FORMAT = "exchange", formats.NUMBERS["exchange"]
_TYPE = "train"  # Flower's name for what a ClientApp is asked; `do` in the facts says what it is
_HEADER = 2**20  # bytes of a header and facts, beside the arrays


class BadMessage(ValueError):
    """A message that is not one of ours, or larger than it can be."""


def content(arrays: PyTree, facts: dict[str, Any]) -> bytes:
    """Arrays and facts (JSON values) as bytes."""
    return trees.pack(arrays, kind=_KIND, format=FORMAT, **facts)


def request(node: int, payload: bytes, *, seconds: float) -> Message:
    """A message to a node, which is worth nothing after `seconds`."""
    records = _records(payload, b"")
    return Message(records, dst_node_id=node, message_type=_TYPE, ttl=seconds)


def reply(message: Message, payload: bytes, signature: bytes) -> Message:
    """The answer to a message."""
    return Message(_records(payload, signature), reply_to=message)


def read(message: Message, *, most: int) -> tuple[trees.Packed, bytes, bytes]:
    """(content, its bytes, signature) of a message whose arrays have at most `most` bytes."""
    try:
        array = message.content.array_records["content"]["bytes"]
        signature = message.content.config_records["signature"]["bytes"]
        payload = array.data
    except (KeyError, AttributeError, TypeError, ValueError):
        raise BadMessage("the message has no content of fedprior.") from None
    if not isinstance(payload, bytes) or not isinstance(signature, bytes):
        raise BadMessage("the message has no content of fedprior.")
    if len(payload) > most + _HEADER:
        raise BadMessage(f"the message has {len(payload)} bytes, more than {most + _HEADER}.")
    try:
        packed = trees.unpack(payload, source="the message", kind=_KIND, format=FORMAT)
    except ValueError as error:
        raise BadMessage(str(error)) from None
    return packed, payload, signature


def _records(payload: bytes, signature: bytes) -> RecordDict:
    array = Array(dtype="uint8", shape=(len(payload),), stype="fedprior", data=payload)
    signed = ConfigRecord({"bytes": signature})
    return RecordDict({"content": ArrayRecord({"bytes": array}), "signature": signed})
