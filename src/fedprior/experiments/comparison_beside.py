"""One comparison under several optimizers, side by side: who leads under which.

And who leads where each method has the one that suits it, by its validation scores: a common
optimizer does not help every method.

OUT holds the rows of the methods as published, OUT/equal and OUT/frequencies those of the same
methods with the same optimizer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.experiments.compare import markdown_table
from fedprior.experiments.comparison_report import OURS, Row, gap, interval
from fedprior.experiments.comparison_settings import Setting
from fedprior.experiments.optimizers import EQUAL, OPTIMIZERS, PUBLISHED, Optimizer

BETTER = "better"
_TITLES = {name: each.title for name, each in OPTIMIZERS.items()}
_TITLES |= {BETTER: "the better of these for each method"}
Documents = Mapping[str, Mapping[str, Any]]  # of rows.json, by the name of the optimizer


def place(out: Path, optimizer: Optimizer) -> Path:
    """Where a comparison under this optimizer is, in the folder of the comparison."""
    return out if optimizer == PUBLISHED else out / optimizer.name


def found_in(out: Path) -> dict[str, dict[str, Any]]:
    """What rows.json holds under each optimizer that there is."""
    files = {name: place(out, each) / "rows.json" for name, each in OPTIMIZERS.items()}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}


def rows_of(documents: Documents, setting: str) -> dict[str, dict[str, Row]]:
    """The rows of a setting by optimizer and method, where there are any.

    With several optimizers of the same seeds, all quick or none, `BETTER` has each method under the
    one that it has the highest validation score with.
    """
    rows = {
        name: {row["method"]: Row(**row) for row in each["rows"] if row["setting"] == setting}
        for name, each in documents.items()
    }
    rows = {name: own for name, own in rows.items() if own}
    made = [(documents[name]["seeds"], documents[name].get("quick")) for name in rows]
    alike = len(rows) > 1 and all(each == made[0] for each in made)
    return {**rows, BETTER: _better(rows)} if alike else rows


def title(name: str) -> str:
    """What a column of figures is called."""
    return _TITLES[name]


def _better(rows: Mapping[str, Mapping[str, Row]]) -> dict[str, Row]:
    """Each method under the optimizer of its highest validation score; gaps paired by seed."""
    chosen: dict[str, Row] = {}
    for row in (row for own in rows.values() for row in own.values()):
        if row.method not in chosen or _valid(row) > _valid(chosen[row.method]):
            chosen[row.method] = row
    reference = chosen.get(OURS) or max(chosen.values(), key=lambda row: row.mean)
    made = {}
    for name, row in chosen.items():
        ahead, low, high = interval(np.subtract(reference.by_seed, row.by_seed))
        gaps: dict[str, Any] = {"gap": ahead, "gap_low": low, "gap_high": high}
        made[name] = replace(row, reference=reference.method, **gaps)
    return made


def _valid(row: Row) -> float:
    """The validation score that the rate was chosen by."""
    return max((score for score in row.valid_by_rate if score is not None), default=0.0)


def order(rows: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """Methods, the best under the same optimizer first."""
    first = rows.get(EQUAL.name) or next(iter(rows.values()))
    best = sorted(first.values(), key=lambda row: -row.mean)
    others = (name for own in rows.values() for name in own)
    return list(dict.fromkeys([*(row.method for row in best), *others]))


def markdown(documents: Documents, settings: Sequence[Setting]) -> str:
    """One table per setting: accuracy and gap under each optimizer."""
    parts = []
    for setting in settings:
        rows = rows_of(documents, setting.name)
        if not rows:
            continue
        head = ["method", *(word for name in rows for word in (title(name), "gap"))]
        lines = [
            [method, *(cell for own in rows.values() for cell in _cells(own.get(method)))]
            for method in order(rows)
        ]
        parts.append(f"#### {setting.title}\n\n{markdown_table(head, *lines)}")
    return "\n\n".join(parts)


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    spread = "" if row.sd is None else f" ± {row.sd:.2f}"
    return f"{row.mean:.2f}{spread}", gap(row)


def verdicts(documents: Documents, settings: Sequence[Setting]) -> list[str]:
    """Who leads in each setting under each optimizer, and by how much."""
    lines = []
    for setting in settings:
        rows = rows_of(documents, setting.name)
        words = [f"with {title(name)}, {_leader(own)}" for name, own in rows.items()]
        if words:
            lines.append(f"{setting.title}: {'; '.join(words)}.")
    return lines


def _leader(rows: Mapping[str, Row]) -> str:
    best = max(rows.values(), key=lambda row: row.mean)
    others = [row for row in rows.values() if row is not best]
    lead = f"{best.method} leads with {best.mean:.2f}%"
    if not others:
        return f"{best.method} has {best.mean:.2f}%"
    if best.method != best.reference:  # gaps are measured from another
        sure = best.gap_high is not None and best.gap_high < 0
        behind = f"{lead}, {-best.gap:.2f} points ahead of {best.reference}"
        return behind if sure else f"{behind}, which the seeds do not tell apart"
    even = [row.method for row in others if row.gap_low is None or row.gap_low <= 0]
    if even:
        return f"{lead}, not told apart from {', '.join(even)}"
    return f"{lead}, significantly ahead of all {len(others)} others"
