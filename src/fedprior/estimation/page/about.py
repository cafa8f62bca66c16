"""Facts of the gain, and what is folded away at the end of a page: parameters, settings."""

import math
from collections.abc import Mapping
from typing import Any

from fedprior.estimation.page.answer import Summarized, known, percent
from fedprior.estimation.result import FELL_BACK
from fedprior.pages.page import Cell, Fact, Number, SmallTable

_FITTED = {
    "integrated": "averaged over plausible populations",
    "known": "given, not fitted",
    "likelihood": "fitted by maximum likelihood",
    "moments": "fitted by the method of moments",
    "paper": "fitted as in the paper",
    "private moments": "fitted to private moments",
}


def groups_fact(answer: Summarized, number: int) -> Fact:
    """How many groups there are, and of how many rows."""
    parts = {"rows": answer.summary.get("rows"), "dropped": answer.summary.get("dropped")}
    told = ", ".join(f"{int(count):,} {what}" for what, count in parts.items() if count)
    return Fact("Groups", Number(number, "whole"), told)


def gain_facts(answer: Summarized) -> list[Fact]:
    """What sharing is expected to gain, where that is known."""
    if answer.summary.get("sentence") == FELL_BACK:
        return []
    more = "or more " * bool(answer.summary.get("gains_are_bounds"))
    over = {
        "gain_over_raw": ("Gain over raw values", "than each group's own value"),
        "gain_over_pooled": ("Gain over one common value", "than one value for all"),
    }
    return [
        Fact(title, percent(answer.number(name)), f"{more}less squared error {than}")
        for name, (title, than) in over.items()
        if math.isfinite(answer.number(name))
    ]


def parameter_grid(answer: Summarized) -> SmallTable | None:
    """The population's parameters with standard errors."""
    found, errors = answer.population.get("parameters"), answer.population.get("standard_errors")
    if not found:
        return None
    cells = [
        (name.replace("_", " "), figure(value), figure((errors or {}).get(name)))
        for name, value in found.items()
    ]
    kind, fitted_by = answer.population["kind"], str(answer.population["fitted_by"])
    how = _FITTED.get(fitted_by, f"fitted by {fitted_by}")
    return SmallTable(
        title=f"Population: {kind} ({how})", head=("parameter", "value", "standard error"),
        cells=tuple(cells), folded=True,
    )  # fmt: skip


def figure(value: Any) -> Cell:
    """A parameter to four digits."""
    figure = known(value)
    if not math.isfinite(figure):
        return None
    shown = 3 - math.floor(math.log10(abs(figure))) if figure else 0
    return Number(figure, "number", min(max(0, shown), 10))


def folded(answer: Summarized) -> tuple[SmallTable, ...]:
    """Parameters, settings and versions, which are hidden behind their titles."""
    settings = answer.summary.get("settings") or {}
    made = {"fedprior": answer.summary.get("version")}
    grids = [
        parameter_grid(answer),
        _pairs("Settings", ("option", "value"), settings),
        _pairs("Columns as they were read", ("column", "read as"), answer.summary.get("columns")),
        _pairs("Versions", ("program", "version"), {k: v for k, v in made.items() if v}),
    ]
    return tuple(grid for grid in grids if grid is not None)


def _pairs(title: str, head: tuple[str, str], pairs: Mapping[str, Any] | None) -> SmallTable | None:
    if not pairs:
        return None
    cells = tuple((str(name), _shown(value)) for name, value in pairs.items())
    return SmallTable(title=title, head=head, cells=cells, folded=True)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)
