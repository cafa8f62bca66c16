"""The lines of a ledger, each with its number, its hash and the hash of the previous line."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedprior.core.check import PrivacyError
from fedprior.privacy.events import Event

FORMAT = 4
NOTHING = "0" * 64  # the hash before the first line


def reservations(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the lines that reserved rounds."""
    return (record for record in records if record["kind"] == "reserve")


def spent_rounds(records: list[dict[str, Any]]) -> list[tuple[Event, int]]:
    """Return the event of each reservation and how many times it is composed."""
    return [(Event.from_json(r["event"]), int(r["count"])) for r in reservations(records)]


def merged(spent: list[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """Merge equal events: composing 240 rounds once is cheaper than composing 240 chunks."""
    rounds: dict[Event, int] = {}
    for event, count in spent:
        rounds[event] = rounds.get(event, 0) + count
    return list(rounds.items())


def split(content: bytes) -> tuple[bytes, bytes]:
    """Split into complete lines, without the final newline, and the start of an incomplete line.

    A line that lacks only its newline is complete: in case of doubt, its rounds count as spent.
    """
    whole, _, rest = content.rpartition(b"\n")
    try:
        json.JSONDecoder().raw_decode(rest.decode("latin-1"))  # written as ASCII
    except ValueError:  # a proper prefix of a line never parses
        return whole, rest
    return content, b""  # `parse` refuses anything after a complete record on the same line


def parse(content: bytes, path: Path) -> list[dict[str, Any]]:
    """Return all lines after verifying their numbers and the chain of hashes."""
    records: list[dict[str, Any]] = []
    previous = NOTHING
    for number, line in enumerate(content.split(b"\n") if content else []):
        try:
            record = json.loads(line)
            claimed = record.pop("hash")
            good = (
                record["number"] == number
                and record["previous"] == previous
                and claimed == digest(record)
                and (record["kind"] == "open") == (number == 0)
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            good = False
        if not good:
            raise PrivacyError(
                f"ledger: line {number + 1} of {path} does not match its hash. The ledger was "
                "edited or damaged; nothing more can be spent on it."
            )
        previous = claimed
        records.append({**record, "hash": claimed})
    if records and records[0].get("format") != FORMAT:
        version = records[0].get("format")
        raise PrivacyError(
            f"ledger: format of {path} must be {FORMAT}, got {version!r}. It was written by "
            "another version of fedprior. Continue with that version, or start a new run; what "
            "was spent still counts."
        )
    return records


def digest(record: dict[str, Any]) -> str:
    """Return the hash of a line that does not yet have one."""
    canonical = json.dumps(record, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()
