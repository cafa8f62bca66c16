"""What a page is made of: a summary as JSON has it, and the table with a row for each group."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.estimation.result import FittedPopulation
from fedprior.pages.page import Cell, Number, Style

_SIZES = {"means": "rows", "rates": "trials", "shares": "rows", "events": "exposure"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Summarized:
    """A summary and its table: label columns first, then numbers; None without groups.

    The summary is what `fedprior estimate --json` prints, with what a table alone does not tell
    (`source`, `command`, `version`, `settings`, `asked`); any of it may be missing.
    """

    summary: Mapping[str, Any]
    table: Mapping[str, np.ndarray] | None = None

    @property
    def kind(self) -> str:
        """means, rates, events or shares; empty if it is not known."""
        return str(self.summary.get("kind") or "")

    @property
    def level(self) -> float:
        return float(self.summary.get("level") or 0.95)

    @property
    def percent(self) -> str:
        """The level in percent."""
        return f"{100 * self.level:g}%"

    @property
    def size_name(self) -> str:
        return str(self.summary.get("size_name") or "n")

    @property
    def size_label(self) -> str:
        """What the size of a group is called: rows, trials, exposure."""
        return _SIZES.get(self.kind, self.size_name)

    @property
    def style(self) -> Style:
        return "percent" if self.kind in ("rates", "shares") else "number"

    @property
    def population(self) -> Mapping[str, Any]:
        return self.summary.get("population") or {}

    @property
    def mean(self) -> float:
        """The population's mean; NaN if it has several, or if it is not known."""
        mean = self.population.get("mean")
        return math.nan if mean is None or isinstance(mean, list) else float(mean)

    @property
    def group_label(self) -> str:
        """The column that names groups."""
        return " / ".join((self.summary.get("asked") or {}).get("group") or ["group"])

    def number(self, name: str) -> float:
        """A number of the summary; NaN if it is not known."""
        return known(self.summary.get(name))

    def column(self, name: str) -> np.ndarray:
        """A column of numbers of the table."""
        assert self.table is not None
        return np.asarray(self.table[name], np.float64)

    @property
    def change_label(self) -> str:
        """What a difference of two estimates is called: that of percentages is in points."""
        return "change (points)" if self.style == "percent" else "change"

    def change(self, difference: float, digits: int) -> Cell:
        """A difference of two estimates in a small table, with its sign."""
        points = 100 * difference if self.style == "percent" else difference
        return cell(points, "number", digits, sign=True)

    def cell(self, value: float, digits: int) -> Cell:
        """An estimate in a small table or among the facts."""
        return cell(value, self.style, digits)

    def written(self, value: float, digits: int) -> str:
        """An estimate within a sentence."""
        if self.style == "percent":
            return f"{100 * value:.{digits}f}%"
        return f"{value:,.{digits}f}"

    def fitted(self) -> FittedPopulation | None:
        """The population with its density; None if it is not known."""
        found = self.population
        if not found or found.get("mean") is None:
            return None
        lists: dict[str, Any] = {
            name: None if found.get(name) is None else np.asarray(found[name], np.float64)
            for name in ("atoms", "weights", "spread")
        }
        parameters = {name: known(value) for name, value in found["parameters"].items()}
        varying = bool(found.get("by_size")) or "coefficients" in found
        return FittedPopulation(
            kind=found["kind"],
            fitted_by=found["fitted_by"],
            mean=np.asarray(found["mean"], np.float64),
            heterogeneity=known(found["heterogeneity"]),
            parameters=parameters,
            member=found.get("member", ""),
            by_size=varying,  # then it has no one density
            **lists,
        )


def known(value: Any) -> float:
    """A number; NaN for None."""
    return math.nan if value is None else float(value)


def cell(value: float, style: Style, digits: int, *, sign: bool = False) -> Cell:
    """A number in a small table; None, an empty cell, if it is not finite."""
    return Number(value, style, digits, sign) if math.isfinite(value) else None


def percent(value: float) -> Cell:
    """A gain, which is in percent already."""
    return cell(value / 100, "percent", 1)


def half_width_decimals(width: float) -> int | None:
    """Decimals that show half of an interval of this width to two digits; None if it has none."""
    return 1 - math.floor(math.log10(width / 2)) if math.isfinite(width) and width > 0 else None


def decimals(width: float, style: Style = "number") -> int:
    """The same for a number on a page, from 0 to 8."""
    shown = half_width_decimals(width)
    return 3 if shown is None else min(max(0, shown - 2 * (style == "percent")), 8)


def digits_of(answer: Summarized, lower: np.ndarray, upper: np.ndarray) -> int:
    """Decimals of estimates with these limits."""
    width = (upper - lower)[np.isfinite(upper - lower)]
    return decimals(float(np.median(width)) if len(width) else math.nan, answer.style)
