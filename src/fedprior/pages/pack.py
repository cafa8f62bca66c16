"""Rows as bytes in a page: whole numbers of small steps, differences, gzip, base64.

A chart cannot show more than four digits of the spread of its values. So numbers are kept as whole
numbers of a step of that size, less those of a close column, and are laid out byte by byte (all
low bytes, then all high ones): 100,000 groups with intervals take about a megabyte.
"""

import base64
import gzip
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedprior.pages.page import PageColumn, Rows

MOST_ROWS = 120_000  # of one table; with more, a page of 2 MB does not hold them
_KEPT = 4  # digits of the spread of a column
_WIDTHS = ((1, np.int8), (2, np.int16), (4, np.int32))
_LARGEST = 2**31 - 2
_FAR = 15  # powers of ten that a step may be away from 1


def pack(tables: list[Rows]) -> tuple[list[dict[str, Any]], str]:
    """What each table holds and where, and the bytes of all of them as base64."""
    parts: list[bytes] = []
    described = [_table(_thinned(rows), parts) for rows in tables]
    return described, base64.b64encode(gzip.compress(b"".join(parts), 9, mtime=0)).decode()


def _thinned(rows: Rows) -> Rows:
    """Every second row, or third, ..., and a noun that says so, where there are too many."""
    step = -(-len(rows) // MOST_ROWS)
    if step <= 1:
        return rows
    columns = {
        key: replace(column, values=column.values[::step]) for key, column in rows.columns.items()
    }
    noun = f"{rows.noun} (1 in {step} of {len(rows):,})"
    return replace(rows, columns=columns, noun=noun)


def _table(rows: Rows, parts: list[bytes]) -> dict[str, Any]:
    columns: dict[str, dict[str, Any]] = {}
    steps: dict[str, np.ndarray] = {}
    for key in sorted(rows.columns, key=lambda key: bool(rows.columns[key].near)):
        column = rows.columns[key]
        found = _text(column) if column.style == "text" else _numbers(column, steps, columns, key)
        raw = found.pop("bytes")
        found |= {"label": column.label, "style": column.style, "shown": column.digits}
        found |= {"start": sum(map(len, parts)), "length": len(raw)}
        columns[key] = found
        parts.append(raw)
    ordered = {key: columns[key] for key in rows.columns}
    return {"size": len(rows), "name": rows.name, "noun": rows.noun, "columns": ordered}


def _text(column: PageColumn) -> dict[str, Any]:
    words = [str(each) for each in column.values]
    text = json.dumps(words, ensure_ascii=False, separators=(",", ":"))
    return {"bytes": text.encode(errors="replace")}  # half a character of UTF-16 has no bytes


def decimals(values: np.ndarray) -> int:
    """Decimals that keep four digits of the spread of the values; negative for large ones.

    >>> decimals(np.array([0.21, 0.34])), decimals(np.array([1.0, 25000.0]))
    (5, 0)
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return 0
    spread = float(known.max() - known.min()) or abs(float(known[0]))
    # Beyond outliers: the middle of the values has to be told apart.
    low, high = np.quantile(known, [0.1, 0.9])
    spread = max(float(high - low), spread / 1000)
    if not (math.isfinite(spread) and spread > 0):
        return 0
    return _KEPT - math.floor(math.log10(spread)) - 1


def _numbers(
    column: PageColumn, steps: dict[str, np.ndarray], columns: dict[str, dict[str, Any]], key: str
) -> dict[str, Any]:
    """Whole numbers of steps of 10^-digits; the lowest value of the type stands for NaN."""
    values = np.asarray(column.values, float)
    near = column.near if column.near in steps else ""
    digits = columns[near]["digits"] if near else column.digits
    if digits is None:
        digits = 0 if column.style == "whole" else decimals(values)
    known = np.isfinite(values)
    if abs(digits) > _FAR:
        return _as_they_are(values, digits)
    scaled = np.round(np.where(known, values, 0.0) * 10.0**digits)
    if near:
        scaled = scaled - steps[near]
    if np.abs(scaled).max(initial=0) > _LARGEST:  # too far apart for whole steps
        return _as_they_are(values, digits)
    steps.setdefault(key, scaled + (steps[near] if near else 0))
    largest = np.abs(scaled).max(initial=0)
    width, kind = next(each for each in _WIDTHS if largest < 2 ** (8 * each[0] - 1) - 1)
    whole = np.where(known, scaled, -(2 ** (8 * width - 1))).astype(kind)
    planes = whole.astype(f"<i{width}").view(np.uint8).reshape(-1, width).T
    return {"bytes": planes.tobytes(), "width": width, "near": near, "digits": digits}


def _as_they_are(values: np.ndarray, digits: int) -> dict[str, Any]:
    return {"bytes": values.astype("<f8").tobytes(), "width": 8, "near": "", "digits": digits}
