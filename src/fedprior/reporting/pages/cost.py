"""What a round takes: time and bytes, by method."""

from typing import Any

import numpy as np

from fedprior.pages.page import Block, Cell, Number, Section, SmallTable
from fedprior.reporting.pages.record import RunRecord


def sections(record: RunRecord) -> list[Section]:
    """Time and bytes of a round; with secure noise, what one client sends and receives alone."""
    runs: dict[str, dict[str, Any]] = {}
    for each in record.evaluation["runs"]:
        runs.setdefault(each["method"], each)
    cells = []
    for name, each in runs.items():
        if "upload_bytes" not in each:
            continue
        row: list[Cell] = [name]
        if not record.secure:
            row += [_seconds(record, name)]
        row += [_kilobytes(each["upload_bytes"]), _kilobytes(each["download_bytes"])]
        if not record.secure:
            clients = [
                line["clients"]
                for line in record.history
                if line["method"] == name and "clients" in line
            ]
            both = each["upload_bytes"] + each["download_bytes"]
            row += [_kilobytes(float(np.mean(clients)) * both) if clients else None]
        cells.append(tuple(row))
    if not cells:
        return []
    head: tuple[str, ...] = ("method", "sent by a client (kB)", "received by a client (kB)")
    text = "What a client sends and receives in a round that it takes part in."
    if not record.secure:
        head = ("method", "seconds per round", *head[1:], "all clients of a round (kB)")
        text += (
            " Seconds are the median of the time that a round took on this machine, which computes "
            "for all clients of the round; this includes evaluations between rounds, but not "
            "compilation."
        )
    grid: Block = SmallTable(title="By method", head=head, cells=tuple(cells))
    return [Section("Time and bytes per round", (grid,), text)]


def _kilobytes(number: float) -> Number:
    return Number(number / 1000, digits=1)


def _seconds(record: RunRecord, method: str) -> Number | None:
    """The median time of a round, between two lines of progress of one session."""
    times, before = [], None
    for line in record.progress:
        if line["method"] != method or "seconds" not in line:
            continue
        same = before is not None and before["seed"] == line["seed"]
        if same and before is not None:
            rounds, seconds = (line[name] - before[name] for name in ("round", "seconds"))
            if rounds > 0 and seconds > 0:  # else another session has begun
                times.append(seconds / rounds)
        before = line
    return Number(float(np.median(times)), digits=4) if times else None
