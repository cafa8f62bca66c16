"""Estimates of several numbers a group: shares of categories, or coordinates of a mean."""

from dataclasses import dataclass

import numpy as np

from fedprior.estimation.page.answer import Summarized, cell, decimals
from fedprior.pages.page import (
    Block,
    Intervals,
    Listing,
    Number,
    PageColumn,
    Rows,
    Section,
    SmallTable,
    Stacked,
)

_MOST = 6  # parts with a chart each
_FEW = 3  # so many where charts are tall: a line for each of so many groups
_NAMED = (20, 60)
_CELLS = 100_000  # numbers up to which more than one part is drawn
_BARS = 25  # groups with a bar of shares
_CHANGED = 10
_LISTED = ("raw", "personal")


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """One row per group and one column per part (a category, a coordinate)."""

    names: list[str]
    parts: list[str]
    n: np.ndarray
    weight: np.ndarray
    raw: np.ndarray
    personal: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def parts_of(answer: Summarized) -> Parts:
    """The table with a row for each group and category, as one with a row for each group."""
    table = answer.table
    assert table is not None
    kinds = [str(each) for each in dict.fromkeys(np.asarray(table["category"], object).tolist())]
    wide = {
        name: answer.column(name).reshape(-1, len(kinds))
        for name in ("raw", "personal", "lower", "upper")
    }
    names = [str(each) for each in np.asarray(table["group"], object)[:: len(kinds)]]
    n, weight = (answer.column(name)[:: len(kinds)] for name in (answer.size_name, "weight"))
    return Parts(names=names, parts=kinds, n=n, weight=weight, **wide)


def sections(answer: Summarized, found: Parts) -> list[Section]:
    """The population, each part by group, the largest changes, the table."""
    shown = _shown(found)
    rows = _rows(answer, found, shown)
    blocks: list[Block] = []
    if answer.kind == "shares":
        blocks = [_population(found), *_bars(found)]
    charts = tuple(_chart(answer, found, rows, place) for place in shown)
    left = len(found.parts) - len(shown)
    word = "categories" if answer.kind == "shares" else "coordinates"
    text = f"The {len(shown)} largest of {len(found.parts)} {word}." if left else ""
    every = Section("Every group", (*blocks, *charts), text=text)
    changed = Section("Largest changes", (_changes(answer, found),))
    keys = ("name", "n", "weight", *(f"{name} {place}" for place in shown for name in _LISTED))
    table = Listing(title="Search and sort", rows=rows, columns=keys, order="name")
    listed = Section("All groups", (table,))
    return [every, changed, listed]


def _shown(found: Parts) -> list[int]:
    """Places of the parts that are drawn, the largest ones, in their own order."""
    tall = _NAMED[0] < len(found.names) <= _NAMED[1]
    most = max(1, min(_FEW if tall else _MOST, _CELLS // max(len(found.names), 1)))
    size = np.nanmean(np.abs(found.personal), axis=0)
    return sorted(np.argsort(-size, kind="stable")[:most].tolist())


def _rows(answer: Summarized, found: Parts, shown: list[int]) -> Rows:
    columns = {
        "name": PageColumn(label=answer.group_label, values=found.names, style="text"),
        "n": PageColumn(label=answer.size_label, values=found.n, style="whole"),
        "weight": PageColumn(
            label="weight on own data", values=found.weight, style="percent", digits=3
        ),
    }
    for place in shown:
        part = found.parts[place]
        key = f"personal {place}"
        for name in ("personal", "raw", "lower", "upper"):
            columns[f"{name} {place}"] = PageColumn(
                label=f"{part}, {name}",
                values=getattr(found, name)[:, place],
                style=answer.style,
                near="" if name == "personal" else key,
            )
    return Rows(columns=columns)


def _population(found: Parts) -> Stacked:
    there = found.n > 0
    mean = np.nanmean(found.personal[there], axis=0)
    parts: dict[str, tuple[float, ...]]
    parts = {name: (float(share),) for name, share in zip(found.parts, mean, strict=True)}
    return Stacked(
        title="Shares on average over groups", labels=("average",), parts=parts, style="percent"
    )


def _bars(found: Parts) -> list[Block]:
    """A bar for each group, if they are few."""
    if len(found.names) > _BARS:
        return []
    parts = {
        name: tuple(found.personal[:, place].tolist()) for place, name in enumerate(found.parts)
    }
    return [
        Stacked(
            title="Personal shares of every group",
            labels=tuple(found.names),
            parts=parts,
            style="percent",
        )
    ]


def _chart(answer: Summarized, found: Parts, rows: Rows, place: int) -> Intervals:
    mean = answer.population.get("mean")
    line = float(mean[place]) if isinstance(mean, list) and len(mean) > place else None
    return Intervals(
        title=found.parts[place],
        rows=rows,
        value=f"personal {place}",
        lower=f"lower {place}",
        upper=f"upper {place}",
        other=f"raw {place}",
        line=line,
    )


def _changes(answer: Summarized, found: Parts) -> SmallTable:
    moved = np.abs(found.personal - found.raw)
    moved = np.where(np.isfinite(moved), moved, -1.0)
    order = np.argsort(-moved, axis=None, kind="stable")[:_CHANGED]
    width = float(np.nanmedian(found.upper - found.lower))
    digits = decimals(width, answer.style)
    cells = []
    for group, part in zip(*np.unravel_index(order, moved.shape), strict=True):
        raw, personal = float(found.raw[group, part]), float(found.personal[group, part])
        cells.append(
            (
                found.names[group],
                found.parts[part],
                Number(float(found.n[group]), "whole"),
                answer.cell(raw, digits),
                answer.cell(personal, digits),
                answer.change(personal - raw, digits),
                cell(float(found.weight[group]), "percent", 0),
            )
        )
    part = "category" if answer.kind == "shares" else "coordinate"
    head = (answer.group_label, part, answer.size_label, "raw", "personal", answer.change_label,
            "weight")  # fmt: skip
    return SmallTable(title=f"The {len(cells)} largest changes", head=head, cells=tuple(cells))
