"""Sections of one level of groups: intervals, raw against personal, changes, ranks, sizes."""

import math

import numpy as np

from fedprior.estimation.page.answer import Summarized, cell, digits_of, percent
from fedprior.estimation.page.rows import density
from fedprior.estimation.result import median
from fedprior.pages.page import (
    Block,
    Cell,
    Intervals,
    Listing,
    Number,
    Rows,
    Scatter,
    Section,
    SmallTable,
)

_CHANGED = 10  # groups in the table of the largest changes
_CLOSE = 1.0  # percentage points between the gain of all and that of its parts together
_LINEAR = ("gaussian", "beta", "gamma")  # populations whose personal error is weight x raw error


def sections(answer: Summarized, rows: Rows) -> list[Section]:
    """All that concerns single groups, in the order of a page."""
    found = [
        Section("Every group", (caterpillar(answer, rows), cloud(answer, rows))),
        Section("Largest changes", (changes(answer, rows),), text=_CHANGES),
    ]
    if "rank" in rows.columns:
        found.append(Section("Ranks", (_ranks(rows),), text=_order(rows)))
    if (sizes := by_size(answer)) is not None:
        text = _HELPS + _ERRORS * (_GAIN in sizes.head)
        found.append(Section("For whom sharing helps", (sizes,), text=text))
    found.append(Section("All groups", (listing(rows),)))
    return found


_CHANGES = (
    "Groups with few data change most if their own value is far from the others. The weight is "
    "how much of the personal estimate is the group's own value; the rest is the population's."
)
_HELPS = "A group with few data has more to gain from the others than a group with many."
_GAIN = "lower error than raw"
_ERRORS = " Errors are expected squared errors of estimates, relative to those of raw values."


def caterpillar(answer: Summarized, rows: Rows) -> Intervals:
    """Every row with its interval, raw values hollow, the population's mean as a line."""
    return Intervals(
        title="Personal estimates with their intervals",
        rows=rows,
        value="personal",
        lower="lower",
        upper="upper",
        other="raw",
        line=answer.mean if math.isfinite(answer.mean) else None,
        text="In order of the personal estimate. "
        f"Bars are {answer.percent} intervals, raw values hollow.",
    )


def cloud(answer: Summarized, rows: Rows) -> Scatter:
    """Raw against personal, shaded by weight, with the population beside it."""
    return Scatter(
        title="Raw and personal estimates",
        rows=rows,
        x="raw",
        y="personal",
        shade="weight" if _varies(rows) else "",
        diagonal=True,
        line=answer.mean if math.isfinite(answer.mean) else None,
        margin=density(answer),
        text="A group on the diagonal keeps its raw value; those off it moved toward the others.",
    )


def _varies(rows: Rows) -> bool:
    """Whether groups differ in their weight."""
    if "weight" not in rows.columns:
        return False
    weight = np.asarray(rows.columns["weight"].values, np.float64)
    return bool(np.nanmax(weight) - np.nanmin(weight) > 0.005)


def changes(answer: Summarized, rows: Rows) -> SmallTable:
    """The groups that moved most from their raw values."""
    raw, personal, size = (answer.column(name) for name in ("raw", "personal", answer.size_name))
    moved = np.abs(personal - raw)
    moved = np.where(np.isfinite(moved), moved, -1.0)
    order = np.argsort(-moved, kind="stable")[:_CHANGED]
    digits = digits_of(answer, answer.column("lower"), answer.column("upper"))
    names, weight = rows.columns["name"].values, answer.column("weight")
    cells = tuple(
        (
            str(names[place]),
            Number(float(size[place]), rows.columns["n"].style),
            answer.cell(raw[place], digits),
            answer.cell(personal[place], digits),
            answer.change(personal[place] - raw[place], digits),
            cell(weight[place], "percent", 0),
        )
        for place in order
        if moved[place] >= 0
    )
    head = (answer.group_label, answer.size_label, "raw", "personal", answer.change_label, "weight")
    return SmallTable(title=f"The {len(cells)} groups that changed most", head=head, cells=cells)


def _ranks(rows: Rows) -> Intervals:
    return Intervals(
        title="Ranks with their intervals",
        rows=rows,
        value="rank",
        lower="rank_lower",
        upper="rank_upper",
        text="Rank 1 has the largest value. A long bar means that the rank is hardly known.",
    )


def _order(rows: Rows) -> str:
    """How well the order of the groups is known, as a sentence."""
    lower, upper = (
        np.asarray(rows.columns[name].values, np.float64) for name in ("rank_lower", "rank_upper")
    )
    first = int((lower <= 1).sum())
    typical = float(np.median(upper - lower + 1))
    could = f"{first:,} of {len(rows):,} groups" if first > 1 else "Only one group"
    return (
        f"{could} could be the one with the largest value; the rank of a typical group is known "
        f"to within {typical:,.0f} places. Do not read a list of ranks as a fact."
    )


def quarters(answer: Summarized) -> list[tuple[float, float, np.ndarray]]:
    """Least and largest size of each quarter of the groups, and who is in it; () of one size."""
    size = answer.column(answer.size_name)
    there = size > 0
    if len(np.unique(size[there])) < 4 or there.sum() < 8:
        return []
    limits = np.quantile(size[there], [0.25, 0.5, 0.75])
    place = np.searchsorted(limits, size, side="left")
    parts = [np.flatnonzero(there & (place == quarter)) for quarter in range(4)]
    return [(float(size[each].min()), float(size[each].max()), each) for each in parts if len(each)]


def gain_of(answer: Summarized, members: np.ndarray) -> float:
    """Percent by which sharing lowers the expected squared error of these groups.

    The variance of a raw value is proportional to 1 / n, the error of the personal estimate is
    its weight times that. NaN where another law, or noise that differs, makes it something else,
    or where the gain of all groups is another one, as with few of them: it allows for more.
    """
    linear = answer.population.get("kind") in _LINEAR
    if not linear or answer.summary.get("meta_analysis") or _own_noise(answer):
        return math.nan
    everybody = _gain(answer, np.flatnonzero(answer.column(answer.size_name) > 0))
    agrees = abs(everybody - answer.number("gain_over_raw")) <= _CLOSE
    return _gain(answer, members) if agrees else math.nan


def _gain(answer: Summarized, members: np.ndarray) -> float:
    each = 1 / answer.column(answer.size_name)[members]
    return 100 * (1 - float(each @ answer.column("weight")[members]) / float(each.sum()))


def _own_noise(answer: Summarized) -> bool:
    """Whether each group has a variance of its own, or a test says that it should have."""
    tested = (answer.summary.get("checks") or {}).get("noise")
    return bool(tested) or "noise_freedom" in (answer.population.get("parameters") or {})


def by_size(answer: Summarized) -> SmallTable | None:
    """What a quarter of the groups gains, from the smallest to the largest."""
    parts = quarters(answer)
    if not parts:
        return None
    weight = answer.column("weight")
    half = (answer.column("upper") - answer.column("lower")) / 2
    digits = digits_of(answer, answer.column("lower"), answer.column("upper"))
    gains = [gain_of(answer, members) for *_, members in parts]
    head = [answer.size_label, "groups", "typical weight on own data", "typical half interval"]
    head += [_GAIN] if np.isfinite(gains).all() else []
    cells = []
    for (low, high, members), gain in zip(parts, gains, strict=True):
        row: list[Cell] = [
            f"{low:,.6g} to {high:,.6g}" if low < high else f"{low:,.6g}",
            Number(len(members), "whole"),
            cell(median(weight[members]), "percent", 0),
            answer.cell(median(half[members]), digits),
            percent(gain),
        ]
        cells.append(tuple(row[: len(head)]))
    return SmallTable(title="Groups by size", head=tuple(head), cells=tuple(cells))


def listing(rows: Rows) -> Block:
    """The table of all rows."""
    shown = tuple(rows.columns)
    return Listing(title="Search and sort", rows=rows, columns=shown, order="-personal")
