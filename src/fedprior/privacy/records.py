"""The lines of a ledger, each with its number, its hash and the hash of the previous line.

With a key, hashes are HMACs: whoever does not hold the key can neither add nor change a line.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprior.core import formats
from fedprior.core.check import PrivacyError
from fedprior.privacy import fields
from fedprior.privacy.events import Event

FORMAT = formats.NUMBERS["ledger"]
NOTHING = "0" * 64  # the hash before the first line
Record = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """The length of a ledger and the hash of its last line, as recorded in checkpoints."""

    lines: int
    hash: str


def head(records: list[Record]) -> Head:
    """Return the current head of a ledger that has begun."""
    return Head(len(records), records[-1]["hash"])


def verify(records: list[Record], head: Head, path: Path, whose: str = "the checkpoint") -> None:
    """Raise PrivacyError unless the lines begin with those that `whose` head recorded."""
    known = records[: head.lines]
    if not known or len(known) < head.lines or known[-1]["hash"] != head.hash:
        raise PrivacyError(
            f"ledger: {path} has {len(records)} lines that do not begin with the {head.lines} "
            f"lines recorded in {whose}. It was truncated or replaced; the run cannot continue "
            "under its guarantee."
        )


def reservations(records: list[Record]) -> Iterator[Record]:
    """Return the lines that reserved rounds."""
    return (record for record in records if record["kind"] == "reserve")


def begun(records: list[Record], source: str) -> int | None:
    """Return the first round that `source` has not begun since its latest charge.

    None if it has begun no round since then, and -1 if it has never been charged.
    """
    latest: int | None = -1
    for record in records:
        if record["kind"] in ("reserve", "begin") and record["source"] == source:
            latest = record["round"] if record["kind"] == "begin" else None
    return latest


def spent_rounds(records: list[Record]) -> list[tuple[Event, int]]:
    """Return the event of each reservation and how many times it is composed."""
    return [(Event.from_json(r["event"]), r["count"]) for r in reservations(records)]


def merged(spent: list[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """Merge equal events: composing 240 rounds once is cheaper than composing 240 chunks."""
    rounds: dict[Event, int] = {}
    for event, count in spent:
        rounds[event] = rounds.get(event, 0) + count
    return list(rounds.items())


def line(fields: Record, records: list[Record], key: bytes | None) -> Record:
    """Return the next line: `fields` with number, the previous hash and its own hash."""
    previous = records[-1]["hash"] if records else NOTHING
    record = {"number": len(records), **fields, "previous": previous}
    return {**record, "hash": digest(record, key)}


def encoded(record: Record) -> bytes:
    """Return a line as it is written, in ASCII."""
    return json.dumps(record, allow_nan=False).encode()


def split(content: bytes) -> tuple[list[bytes], bytes]:
    """Split into complete lines and the start of an incomplete one.

    A line that lacks only its newline is complete: in case of doubt, its rounds count as spent.
    """
    *lines, rest = content.split(b"\n")
    try:
        json.JSONDecoder().raw_decode(rest.decode("latin-1"))  # written as ASCII
    except (ValueError, RecursionError):  # a proper prefix of a line never parses
        return lines, rest
    return [*lines, rest], b""  # `parse` refuses anything after a complete record on the same line


def parse(
    lines: list[bytes], path: Path, *, key: bytes | None = None, after: list[Record] | None = None
) -> list[Record]:
    """Return the verified lines, preceded by those that they come `after`.

    The number, hash and fields of each are verified.
    """
    records = list(after or [])
    for text in lines:
        record = _decoded(text, path, len(records))
        if not records:
            _check_opening(record, path, key)
        previous = records[-1]["hash"] if records else NOTHING
        claimed = record.pop("hash", None)
        good = (
            record.get("number") == len(records)
            and record.get("previous") == previous
            and isinstance(claimed, str)
            and hmac.compare_digest(claimed.encode(), digest(record, key).encode())
        )
        if not good:
            raise _damaged(path, len(records))
        record["hash"] = claimed
        reason = fields.fault(record, records)
        if reason:
            raise PrivacyError(
                f"ledger: line {len(records) + 1} of {path} must be one that fedprior writes: "
                f"{reason}. The ledger was forged or damaged; nothing more can be spent on it."
            )
        records.append(record)
    return records


def digest(record: Record, key: bytes | None = None) -> str:
    """Return the hash of a line that does not yet have one: SHA-256, or HMAC with a key."""
    canonical = json.dumps(record, sort_keys=True).encode()
    if key is None:
        return hashlib.sha256(canonical).hexdigest()
    return hmac.new(key, canonical, hashlib.sha256).hexdigest()


def key_name(key: bytes | None) -> str | None:
    """Return the name by which a ledger recognizes its key; the key does not follow from it."""
    return None if key is None else digest({"name": "fedprior ledger key"}, key)[:16]


def _decoded(text: bytes, path: Path, number: int) -> Record:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise _damaged(path, number)
    return record


def _check_opening(record: Record, path: Path, key: bytes | None) -> None:
    """Raise if the first line is of another format or key, before its hash is looked at."""
    version = record.get("format")
    if record.get("kind") == "open":
        formats.check("ledger", version, source=path, wanted=FORMAT, error=PrivacyError)
    wanted, got = record.get("key"), key_name(key)
    if wanted != got:
        reason = "was made with another key"
        if not wanted:
            reason = "was made without a key. Omit --key, unless a ledger with a key was replaced"
        if got is None:
            reason = "was made with a key, and is opened only with it (--key FILE)"
        raise PrivacyError(f"ledger: {path} {reason}.")


def _damaged(path: Path, number: int) -> PrivacyError:
    return PrivacyError(
        f"ledger: line {number + 1} of {path} does not match its hash. The ledger was "
        "edited or damaged; nothing more can be spent on it."
    )
