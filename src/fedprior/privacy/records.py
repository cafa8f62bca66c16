"""The lines of a ledger: each with its number, its hash and that of the line before it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedprior.core.check import PrivacyError
from fedprior.privacy.events import Event

FORMAT = 3
NOTHING = "0" * 64  # the hash before the first line


def reservations(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The lines that allowed rounds to run."""
    return (record for record in records if record["kind"] == "reserve")


def spent_rounds(records: list[dict[str, Any]]) -> list[tuple[Event, int]]:
    """What was reserved, line by line: an event and how many rounds of it."""
    return [(Event.from_json(r["event"]), int(r["rounds"])) for r in reservations(records)]


def merged(spent: list[tuple[Event, int]]) -> list[tuple[Event, int]]:
    """Equal events put together: composing 240 rounds once is cheaper than 240 chunks."""
    rounds: dict[Event, int] = {}
    for event, count in spent:
        rounds[event] = rounds.get(event, 0) + count
    return list(rounds.items())


def split(content: bytes) -> tuple[bytes, bytes]:
    """The whole lines without the last one's end, and the rest of a line that was torn.

    A line that lacks nothing but its end is whole: where in doubt, it is spent.
    """
    whole, _, rest = content.rpartition(b"\n")
    try:
        json.JSONDecoder().raw_decode(rest.decode("latin-1"))  # written as ASCII
    except ValueError:  # no beginning of a line parses, but for the whole of it
        return whole, rest
    return content, b""  # whatever follows a whole line on it, `parse` refuses


def parse(content: bytes, path: Path) -> list[dict[str, Any]]:
    """Every line, after its number, its hash and that of the line before it are checked."""
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
                f"ledger: line {number + 1} of {path} must be as it was written, got another. "
                "The ledger was edited or damaged; nothing more may be spent on it."
            )
        previous = claimed
        records.append({**record, "hash": claimed})
    if records and records[0].get("format") != FORMAT:
        version = records[0].get("format")
        raise PrivacyError(
            f"ledger: format of {path} must be {FORMAT}, got {version!r}. Another version of "
            "fedprior wrote it: continue with that version, or start a new run; what the old run "
            "spent still counts."
        )
    return records


def digest(record: dict[str, Any]) -> str:
    """The hash of a line without its hash."""
    canonical = json.dumps(record, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()
