"""Columns of a small CSV file, plain or gzipped, as arrays."""

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedprior.core import check


def read_columns(owner: str, path: Path, columns: Mapping[str, type]) -> dict[str, np.ndarray]:
    """The named columns of `path`, of type str, int or float each; the first bad cell is named."""
    remedy = "Pass --data DIR, the folder that holds it (or that holds its folder)."
    check.require(path.is_file(), owner, "data", f"a folder with {path.name}", str(path), remedy)
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            header, *rest = list(csv.reader(file)) or [[]]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(check.message(owner, str(path), "a CSV file", reason)) from error
    lines = [(number, line) for number, line in enumerate(rest, start=2) if line]
    check.require(len(lines) > 0, owner, str(path), "a file with rows", len(lines))
    for column in columns:
        names = ", ".join(header)
        remedy = check.nearest(column, header)
        check.require(column in header, owner, path.name, f"a file with {column}", names, remedy)
    return {
        column: _parse(owner, path, column, kind, header.index(column), lines)
        for column, kind in columns.items()
    }


def _parse(
    owner: str,
    path: Path,
    column: str,
    kind: type,
    place: int,
    lines: list[tuple[int, list[str]]],
) -> np.ndarray:
    values = []
    for number, line in lines:
        cell = line[place] if place < len(line) else ""
        try:
            values.append(kind(cell))
        except ValueError as error:
            rule = "a whole number" if kind is int else "a number"
            remedy = f"See line {number} of {path}."
            raise ValueError(check.message(owner, column, rule, cell, remedy)) from error
    return np.array(values)
