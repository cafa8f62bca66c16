"""From a summary and a table to the page: one level of groups, several, parts, or none."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.estimation.page import groups, levels, meta, parts, private
from fedprior.estimation.page.about import folded, gain_facts, groups_fact
from fedprior.estimation.page.answer import Summarized, cell, decimals, known
from fedprior.estimation.page.notes import checked
from fedprior.estimation.page.rows import rows_of
from fedprior.estimation.result import median
from fedprior.pages.page import Fact, Page, Section

_TITLES = {"means": "Means", "rates": "Rates", "events": "Rates", "shares": "Shares"}
_ROUNDING = 1e-12
_CHECKED = "What was assumed and what was checked"


def estimates_page(
    summary: Mapping[str, Any],
    table: Mapping[str, np.ndarray] | None = None,
    *,
    coordinates: parts.Parts | None = None,
) -> Page:
    """The page of estimates; without a table, that of the population alone.

    The table has label columns first, then numbers, as `fedprior estimate --out` writes it. Of
    values with several `coordinates` these take its place.
    """
    answer = Summarized(summary=summary, table=table)
    if coordinates is not None or (table is not None and "category" in table):
        found = parts.parts_of(answer) if coordinates is None else coordinates
        return _page(answer, _facts(answer, found.n, found.weight), parts.sections(answer, found))
    if table is None:
        return _page(answer, _facts(answer), [])
    if summary.get("levels"):
        lead = f"{summary.get('sentence') or ''} {levels.lead(answer)}".strip()
        told = _facts(answer, size=None, weight=None)
        return _page(answer, (*levels.facts(answer), *told), levels.sections(answer), lead=lead)
    labels = list(table.values())[: int(summary.get("labels") or 1)]
    names = [" / ".join(map(str, row)) for row in zip(*labels, strict=True)]
    rows = meta.with_errors(answer, rows_of(answer, names, label=answer.group_label, noun="groups"))
    sections = groups.sections(answer, rows)
    sections[1:1] = [*meta.meta_section(answer, rows), *meta.coefficient_section(answer)]
    facts = _facts(answer, answer.column(answer.size_name), answer.column("weight"))
    return _page(answer, facts, sections, lead=_lead(answer))


def _page(
    answer: Summarized, facts: tuple[Fact, ...], sections: list[Section], *, lead: str = ""
) -> Page:
    summary = answer.summary
    return Page(
        title=_title(answer),
        lead=lead or str(summary.get("sentence") or "") or _unknown(answer),
        about=str(summary.get("source") or ""),
        facts=facts,
        sections=(*private.sections(answer), *sections, Section(_CHECKED, (checked(answer),))),
        folded=folded(answer),
        command=str(summary.get("command") or ""),
        command_text=private.command_text(answer),
    )


def _title(answer: Summarized) -> str:
    asked = answer.summary.get("asked") or {}
    what = _TITLES.get(answer.kind, "Estimates")
    if answer.summary.get("meta_analysis"):
        what = "Meta-analysis"
    alone = answer.table is None and bool(answer.summary.get("privacy"))
    private = "Private estimate of a population: " * alone
    if asked.get("of") and asked.get("group"):
        return f"{private}{what} of {asked['of']} by {' and '.join(asked['group'])}"
    return f"{private}{what} of {_number(answer):,} groups"


def _number(answer: Summarized) -> int:
    if answer.summary.get("num_groups"):
        return int(answer.summary["num_groups"])
    return 0 if answer.table is None else len(next(iter(answer.table.values())))


def _lead(answer: Summarized) -> str:
    """Whether sharing helps, and whom most."""
    sentence = str(answer.summary.get("sentence") or "") or _unknown(answer)
    sizes = groups.quarters(answer)
    if len(sizes) < 2 or not answer.number("gain_over_raw") >= 1:
        return sentence
    first, last = (groups.gain_of(answer, sizes[place][2]) for place in (0, -1))
    if not first - last >= 1:
        return sentence
    fewest = "least" if answer.kind == "events" else "fewest"
    return (
        f"{sentence} Small groups gain most: the expected error falls by {first:.0f}% in the "
        f"quarter with the {fewest} {answer.size_label}, and by {max(last, 0):.0f}% in the quarter "
        "with the most."
    )


def _unknown(answer: Summarized) -> str:
    """What the table alone tells."""
    if answer.table is None or "weight" not in answer.table:
        return "What sharing gains is not known."
    weight = answer.column("weight")
    typical = median(weight[np.isfinite(weight)])
    return (
        f"A typical group keeps {100 * typical:.0f}% weight on its own data. What sharing gains is "
        "not known from the table alone."
    )


def _facts(
    answer: Summarized, size: np.ndarray | None = None, weight: np.ndarray | None = None
) -> tuple[Fact, ...]:
    facts = [groups_fact(answer, _number(answer)), *gain_facts(answer)]
    if weight is not None and size is not None and np.isfinite(weight).any():
        typical = median(weight[(size > 0) & np.isfinite(weight)])
        note = "of a typical group's estimate is its own value"
        facts.append(Fact("Weight on own data", cell(typical, "percent", 0), note))
    if math.isfinite(answer.mean) and "levels" not in answer.summary:
        facts.append(_mean(answer))
    spread = known(answer.population.get("heterogeneity"))
    if math.isfinite(spread):
        note = "standard deviation between groups"
        digits = decimals(4 * spread * _seen(answer, spread), answer.style)
        facts.append(Fact("Groups differ by", answer.cell(spread, digits), note))
    return tuple(facts)


def _mean(answer: Summarized) -> Fact:
    errors = answer.population.get("standard_errors") or {}
    error = known(errors.get("mean"))
    spread = known(answer.population.get("heterogeneity"))
    told = _seen(answer, error)
    digits = decimals(4 * error if told else spread * _seen(answer, spread), answer.style)
    note = f"± {answer.written(error, digits)}, its standard error" if told else ""
    return Fact("Population mean", answer.cell(answer.mean, digits), note)


def _seen(answer: Summarized, width: float) -> bool:
    """Whether a width is more than what rounding leaves of 0 beside the mean."""
    return width > _ROUNDING * (abs(answer.mean) if math.isfinite(answer.mean) else 0.0)
