"""Sections of covariates and of a meta-analysis: coefficients, differences, a funnel."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedprior.estimation.page.about import figure
from fedprior.estimation.page.answer import Summarized, known
from fedprior.pages.page import (
    Block,
    Cell,
    Fact,
    PageColumn,
    Rows,
    Scatter,
    Section,
    SmallTable,
    Tiles,
)

_MOST = 200  # groups of which the analysis without them is shown
_LINKS = {"logit": " of the log odds", "log": " of the logarithm of the rate"}


def coefficient_section(answer: Summarized) -> list[Section]:
    """How the population's mean depends on covariates, if it does."""
    found = answer.population.get("coefficients")
    if not found:
        return []
    link = _LINKS.get(answer.population.get("link", ""), "")
    share = known(answer.population.get("r_squared"))
    text = f"The covariates explain {100 * share:.1f}% of the variance between groups."
    title = f"Coefficients{link}"
    return [
        Section(
            "What the covariates explain",
            (coefficient_grid(title, found, answer.level),),
            text=text if math.isfinite(share) else "",
        )
    ]


def coefficient_grid(title: str, found: dict[str, Any], level: float) -> SmallTable:
    """One row per coefficient, with its standard error and interval."""
    limit = f"{100 * level:g}% limit"
    head = ("coefficient", "estimate", "standard error", f"lower {limit}", f"upper {limit}")
    names = ("value", "standard_error", "lower", "upper")
    cells = tuple(
        (name, *(figure(each.get(key, each.get("error"))) for key in names))
        for name, each in found.items()
    )
    return SmallTable(title=title, head=head, cells=cells)


def with_errors(answer: Summarized, rows: Rows) -> Rows:
    """The rows with the standard errors of the studies, if there are some."""
    errors = answer.summary.get("study_errors")
    if not errors:
        return rows
    values = np.array([known(each) for each in errors])
    own = {"error": PageColumn(label="standard error", values=values)}
    return replace(rows, columns=rows.columns | own)


def meta_section(answer: Summarized, rows: Rows) -> list[Section]:
    """The figures of a meta-analysis and its funnel, if it is one."""
    found = answer.summary.get("meta_analysis")
    if not found:
        return []
    blocks: list[Block] = [_figures(answer, found)]
    if "error" in rows.columns:
        blocks.append(_funnel(found, rows))
    if found.get("leave_one_out"):
        blocks.append(_left_out(answer, found["leave_one_out"], rows))
    return [Section("Meta-analysis", tuple(blocks), text=_sentence(found))]


def _sentence(found: dict[str, Any]) -> str:
    share, chance = known(found["i_squared"]), known(found["q_p_value"])
    clear = "more than chance explains" if chance < 0.05 else "no more than chance may explain"
    return (
        f"The groups differ by {clear} (Q = {known(found['q']):.1f} on {found['freedom']} degrees "
        f"of freedom, p = {chance:.2g}); {100 * share:.0f}% of the variation is not noise."
    )


def _figures(answer: Summarized, found: dict[str, Any]) -> Tiles:
    def between(name: str) -> str:
        ends = (known(found[f"{name}_{end}"]) for end in ("lower", "upper"))
        return f"{answer.percent} interval " + " to ".join(f"{each:.4g}" for each in ends)

    ends = [known(found[f"prediction_{end}"]) for end in ("lower", "upper")]
    share = known(found["i_squared"])
    items = (
        Fact("Mean", figure(found["mean"]), between("mean")),
        Fact("Variance between groups (tau²)", figure(found["variance"]), between("variance")),
        Fact("I²", f"{100 * share:.1f}%", "of the variation is not noise"),
        Fact("Cochran's Q", figure(found["q"]), f"p = {known(found['q_p_value']):.3g}"),
        Fact(
            "A new group", " to ".join(f"{each:.4g}" for each in ends),
            f"{answer.percent} prediction interval",
        ),
    )  # fmt: skip
    return Tiles(items)


def _funnel(found: dict[str, Any], rows: Rows) -> Scatter:
    return Scatter(
        title="Funnel: raw values and their standard errors",
        rows=rows,
        x="raw",
        y="error",
        text=(
            "Precise groups are at the bottom. If no small studies went unpublished, the others "
            f"scatter evenly on both sides of the mean, {known(found['mean']):.4g}."
        ),
    )


def _left_out(answer: Summarized, found: dict[str, Any], rows: Rows) -> SmallTable:
    size = answer.column(answer.size_name)
    places = np.flatnonzero(size > 0)[:_MOST]
    names = rows.columns["name"].values
    head = ("group left out", "mean", "standard error", "tau²", "Q", "I²")
    cells: list[tuple[Cell, ...]] = []
    for row, place in enumerate(places):
        figures = (figure(found[key][row]) for key in ("mean", "mean_error", "variance", "q"))
        cells.append((str(names[place]), *figures, f"{100 * known(found['i_squared'][row]):.1f}%"))
    more = f" (the first {_MOST})" if (size > 0).sum() > _MOST else ""
    return SmallTable(title=f"Without each group{more}", head=head, cells=tuple(cells), folded=True)
