"""The page of groups within groups, or of groups that cross: each level by itself."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedprior.estimation.page.about import figure
from fedprior.estimation.page.answer import Summarized, cell, known
from fedprior.estimation.page.groups import caterpillar, cloud, listing
from fedprior.estimation.page.meta import coefficient_grid
from fedprior.estimation.page.rows import rows_of
from fedprior.pages.page import Block, Cell, Fact, Number, Section, SmallTable

_SCALES = {"rates": ", in log odds", "events": ", in logarithms"}
_ALL = "all"


def components(answer: Summarized) -> list[tuple[str, int | None, float, float, float]]:
    """(name, groups, sd, its error, share of the variance) of each level, and of the noise."""
    found = answer.summary
    parts: list[tuple[str, int | None, float, float]] = [
        (part["name"], part["groups"], known(part["sd"]), known(part["sd_error"]))
        for part in found["levels"]
    ]
    if found.get("noise"):
        noise = found["noise"]
        parts.append(("noise of a row", None, known(noise["sd"]), known(noise["error"])))
    total = sum(each[2] ** 2 for each in parts)
    return [(*each, each[2] ** 2 / total if total > 0 else float("nan")) for each in parts]


def lead(answer: Summarized) -> str:
    """Where the differences are, as a sentence."""
    parts = [part for part in components(answer) if part[1] is not None]
    name, number, deviation, _, share = max(parts, key=lambda part: part[2])
    if not deviation > 0:
        return "The groups do not differ by more than chance, at any level."
    return (
        f"Groups differ most by {name}: the {number:,} of them explain {100 * share:.0f}% of the "
        f"variance{_of(answer)}."
    )


def _of(answer: Summarized) -> str:
    """What the variance is of: counts have no noise of a row beside the levels."""
    return "" if answer.summary.get("noise") else " between groups"


def facts(answer: Summarized) -> list[Fact]:
    """The value of the whole."""
    whole = answer.summary.get("whole")
    if not whole:
        return []
    value, low, high = (known(whole[name]) for name in ("personal", "lower", "upper"))
    ends = " to ".join(answer.written(each, 1 if answer.style == "percent" else 3)
                       for each in (low, high))  # fmt: skip
    note = f"{answer.percent} interval {ends}"
    return [Fact("The whole", answer.cell(value, 1 if answer.style == "percent" else 3), note)]


def sections(answer: Summarized) -> list[Section]:
    """Where differences are, then each level from coarse to fine."""
    found = [Section("Where the differences are", (_deviations(answer),))]
    if answer.summary.get("fixed"):
        grid = coefficient_grid("Coefficients that all groups share", answer.summary["fixed"],
                                answer.level)  # fmt: skip
        found.append(Section("Coefficients", (grid,)))
    return found + _level_sections(answer)


def _deviations(answer: Summarized) -> SmallTable:
    scale = _SCALES.get(answer.kind, "")
    cells: list[tuple[Cell, ...]] = [
        (
            name,
            None if number is None else Number(number, "whole"),
            figure(deviation),
            figure(error),
            cell(share, "percent", 1),
        )
        for name, number, deviation, error, share in components(answer)
    ]
    share = f"share of variance{_of(answer)}"
    head = ("level", "groups", f"standard deviation{scale}", "standard error", share)
    return SmallTable(title="Variance components", head=head, cells=tuple(cells))


def _level_sections(answer: Summarized) -> list[Section]:
    table = answer.table
    assert table is not None
    level, *keys = list(table)[: int(answer.summary.get("labels") or 1)]
    which = np.asarray(table[level], object)
    sections = []
    for name in dict.fromkeys(which.tolist()):
        if name == _ALL:
            continue
        some = np.flatnonzero(which == name)
        part = replace(answer, table={key: np.asarray(table[key])[some] for key in table})
        sections.append(_level_section(part, str(name), keys))
    return sections


def _level_section(part: Summarized, level: str, keys: list[str]) -> Section:
    columns: list[Any] = [np.asarray(part.table[key], object) for key in keys]  # type: ignore[index]
    names = [
        " / ".join(str(cell) for cell in row if cell is not None)
        for row in zip(*columns, strict=True)
    ]
    rows = rows_of(part, names, label=level, noun=f"groups of {level}", ranked=False)
    blocks: list[Block] = [caterpillar(part, rows)]
    if len(names) > 2:
        blocks.append(replace(cloud(part, rows), margin=None))  # that is of the finest groups
    blocks.append(listing(rows))
    return Section(f"{level}: {len(names):,} groups", tuple(blocks))
