"""The page of regressions: the population's coefficients, each group's, and what they predict."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.estimation.notes import UNEVEN
from fedprior.estimation.page.about import figure, folded, groups_fact
from fedprior.estimation.page.answer import Summarized, cell, known, percent
from fedprior.estimation.page.notes import alone, told
from fedprior.pages.page import (
    Block,
    Cell,
    Curve,
    Curves,
    Fact,
    Intervals,
    Listing,
    Note,
    Notes,
    Page,
    PageColumn,
    Rows,
    Scatter,
    Section,
    SmallTable,
)

_MOST = 6  # coefficients with a chart each
_CELLS = 200_000  # groups times coefficients that are drawn
METRICS = {
    "rmse": "root mean squared error",
    "log_loss": "log loss",
    "deviance": "mean Poisson deviance",
}
_ENDS = {"coefficient": "", "lower": "_lower", "upper": "_upper"}  # in keys, and in the table


def regression_page(summary: Mapping[str, Any], table: Mapping[str, np.ndarray] | None) -> Page:
    """The page of a summary, as `fedprior regress --json` prints it, and of its table.

    The table has one row per group: its name, n, and each coefficient with error and limits.
    """
    assert table is not None
    answer = Summarized(summary=summary, table=table)
    names = coefficients(table)
    rows = _rows(answer, names)
    shown = names[: max(1, min(_MOST, _CELLS // max(len(rows), 1)))]
    listed = tuple(key for key in rows.columns if not key.startswith("separate "))
    listing = Listing(title="Search and sort", rows=rows, columns=listed, order="name")
    sections = [
        *_population(answer),
        Section("Every group", tuple(_charts(answer, rows, shown)), text=_left(names, shown)),
        *_held_out(answer),
        Section("All groups", (listing,)),
        Section("What was assumed and what was checked", (_notes(answer),)),
    ]
    return Page(
        title=_title(answer, len(rows)),
        lead=_lead(answer, len(rows)),
        about=str(summary.get("source") or ""),
        facts=_facts(answer, len(rows)),
        sections=tuple(sections),
        folded=folded(answer),
        command=str(summary.get("command") or ""),
    )


def coefficients(table: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the coefficients: columns that have an error and limits."""
    ends = ("_error", "_lower", "_upper")
    return [name for name in table if all(f"{name}{end}" in table for end in ends)]


def _title(answer: Summarized, number: int) -> str:
    asked = answer.summary.get("asked") or {}
    if asked.get("of") and asked.get("group"):
        return f"Regression of {asked['of']} by {' and '.join(asked['group'])}"
    return f"Regressions of {number:,} groups"


def _lead(answer: Summarized, number: int) -> str:
    held = answer.summary.get("held_out")
    if not held:
        return f"Each of {number:,} groups has a regression that learns from all the others."
    gains = [known(held[f"gain_over_{other}"]) for other in ("separate", "pooled")]
    parts = [
        f"{abs(gain):.1f}% {'below' if gain >= 0 else 'above'} that of {other}"
        for gain, other in zip(gains, ("separate fits", "a pooled fit"), strict=True)
        if math.isfinite(gain)
    ]
    error = f" Their {METRICS[held['metric']]} is {' and '.join(parts)}." if parts else ""
    return f"{answer.summary.get('sentence') or ''}{error}".strip()


def _facts(answer: Summarized, number: int) -> tuple[Fact, ...]:
    summary = answer.summary
    facts = [groups_fact(answer, number)]
    held = summary.get("held_out") or {}
    for other, than in (("separate", "separate fits"), ("pooled", "a pooled fit")):
        gain, ends = known(held.get(f"gain_over_{other}")), held.get(f"interval_over_{other}")
        if math.isfinite(gain):
            low, high = (known(each) for each in ends or (None, None))
            note = f"95% interval {low:z.1f}% to {high:z.1f}%" if math.isfinite(low) else ""
            facts.append(Fact(f"Lower error than {than}", percent(gain), note))
    share = known(summary.get("share_between"))
    if math.isfinite(share):
        note = "of the variance is between groups"
        facts.append(Fact("Between groups", cell(share, "percent", 1), note))
    noise = summary.get("noise") or {}
    if noise.get("sd") is not None:
        facts.append(Fact("Noise", figure(noise["sd"]), "standard deviation within groups"))
    classes = summary.get("classes")
    if classes:
        note = f"against {classes[0]}"
        facts.append(Fact("Classes", ", ".join(classes[1:]), note))
    return tuple(facts)


def _population(answer: Summarized) -> list[Section]:
    """Means and spread of the coefficients, those that all share, and kinds of groups."""
    found = answer.population
    if not found:
        return []
    limits = (f"lower {answer.percent}", f"upper {answer.percent}")
    spread = ("sd between groups", "its standard error")
    head = ("coefficient", "mean", "standard error", *limits, *spread)
    cells: list[tuple[Cell, ...]] = [
        (name, *_valued(each), *(figure(found["sd"][name][key]) for key in ("value", "error")))
        for name, each in found["mean"].items()
    ]
    for name, each in (answer.summary.get("fixed") or {}).items():
        cells.append((name, *_valued(each), "the same in all groups", None))
    known_ones = [place for place in range(len(head)) if any(row[place] for row in cells)]
    rows = tuple(tuple(row[place] for place in known_ones) for row in cells)
    shown = tuple(head[place] for place in known_ones)
    blocks: list[Block] = [SmallTable(title="Population", head=shown, cells=rows)]
    kinds = found.get("components") or []
    if len(kinds) > 1:
        blocks.append(_kinds(kinds, found["coefficients"]))
    return [Section("Coefficients", tuple(blocks))]


def _valued(each: Mapping[str, Any]) -> tuple[Cell, ...]:
    return tuple(figure(each.get(key)) for key in ("value", "error", "lower", "upper"))


def _kinds(kinds: list[dict[str, Any]], names: list[str]) -> SmallTable:
    cells = tuple(
        (
            f"kind {number + 1}",
            cell(known(each["share"]), "percent", 1),
            *(figure(each["mean"][name]) for name in names),
        )
        for number, each in enumerate(kinds)
    )
    return SmallTable(title="Kinds of groups", head=("", "share", *names), cells=cells)


def _rows(answer: Summarized, names: list[str]) -> Rows:
    table, alone = answer.table, answer.summary.get("separate") or {}
    assert table is not None
    first, second, *_ = table
    columns = {
        "name": PageColumn(label=answer.group_label, values=[str(x) for x in table[first]],
                       style="text"),
        "n": PageColumn(label="rows", values=answer.column(second), style="whole"),
    }  # fmt: skip
    kinds = [name for name in table if name.startswith("component_")]
    if kinds:
        share = np.array([answer.column(name) for name in kinds])
        words = [f"kind {number + 1}" for number in share.argmax(axis=0).tolist()]
        columns["kind"] = PageColumn(label="most likely kind", values=words, style="text")
    for name in names[: max(1, min(_MOST, _CELLS // max(len(table[first]), 1)))]:
        for key, end in _ENDS.items():
            columns[f"{key} {name}"] = PageColumn(
                label=f"{name}{end.replace('_', ', ')}",
                values=answer.column(f"{name}{end}"),
                near=f"coefficient {name}" if end else "",
            )
        if name in alone:
            values = np.array([known(each) for each in alone[name]])
            columns[f"separate {name}"] = PageColumn(label=f"{name}, separate", values=values)
    return Rows(columns=columns)


def _left(names: list[str], shown: list[str]) -> str:
    if len(shown) == len(names):
        return ""
    return f"The first {len(shown)} of {len(names)} coefficients; the table on disk has all."


def _charts(answer: Summarized, rows: Rows, shown: list[str]) -> list[Block]:
    """Each coefficient by group, then two of them against each other, and against separate fits."""
    means = answer.population.get("mean") or {}
    first_text = f"Personal coefficients with {answer.percent} intervals."
    charts: list[Block] = [
        Intervals(
            title=name,
            rows=rows,
            value=f"coefficient {name}",
            lower=f"lower {name}",
            upper=f"upper {name}",
            line=means[name]["value"] if name in means else None,
            text=first_text if name == shown[0] else "",
        )
        for name in shown
    ]
    if len(shown) > 1:
        first, second = shown[:2]
        charts.append(
            Scatter(
                title=f"{first} and {second}",
                rows=rows,
                x=f"coefficient {first}",
                y=f"coefficient {second}",
                shade="kind" if "kind" in rows.columns else "",
                line=means[second]["value"] if second in means else None,
            )
        )
    return charts + [_apart(rows, name) for name in shown[:2] if f"separate {name}" in rows.columns]


def _apart(rows: Rows, name: str) -> Scatter:
    return Scatter(
        title=f"{name}: separate and personal fits",
        rows=rows,
        x=f"separate {name}",
        y=f"coefficient {name}",
        shade="kind" if "kind" in rows.columns else "n",
        diagonal=True,
        text="A group on the diagonal keeps what its own rows say; the others moved.",
    )


def _held_out(answer: Summarized) -> list[Section]:
    """Errors of personal, separate and pooled fits on rows that none of them has seen."""
    held = answer.summary.get("held_out")
    if not held:
        return []
    blocks: list[Block] = []
    curves = answer.summary.get("held_out_curves") or {}
    if curves:
        classes = answer.summary.get("classes")
        blocks.append(
            Curves(
                title="Predicted and observed",
                curves=tuple(
                    Curve(name=name, x=each[0], y=each[1], dashed=name != "personal")
                    for name, each in curves.items()
                ),
                x_label="mean prediction",
                y_label="mean outcome",
                style="percent" if classes else "number",
                diagonal=True,
                dots=True,
                text=(
                    "Each dot is a set of rows with similar predictions. On the diagonal, "
                    "predictions match outcomes on average."
                ),
            )
        )
    blocks.append(_errors(held))
    text = (
        f"On {held['rows']:,} rows of {held['groups']:,} groups that no fit has seen, drawn with "
        f"seed {held['seed']}."
    )
    return [Section("Predicted and held out", tuple(blocks), text=text)]


def _errors(held: Mapping[str, Any]) -> SmallTable:
    cells: list[tuple[Cell, ...]] = [("personal", figure(held["personal"]), None, None)]
    for other in ("separate", "pooled"):
        low, high = (known(each) for each in held[f"interval_over_{other}"])
        ends = f"{low:z.1f}% to {high:z.1f}%" if math.isfinite(low) else None
        gain = percent(known(held[f"gain_over_{other}"]))
        cells.append((other, figure(held[other]), gain, ends))
    head = ("fit", "error", "personal is lower by", "95% interval")
    title = f"Held-out rows: {METRICS[held['metric']]}"
    return SmallTable(title=title, head=head, cells=tuple(cells))


def _notes(answer: Summarized) -> Notes:
    summary, notes = answer.summary, []
    kind = answer.population.get("kind")
    if kind:
        title = "Assumed: one population"
        law = "Coefficients of groups come from one bell-shaped (Gaussian) population."
        if len(answer.population.get("components") or ()) > 1:
            title = "Assumed: several kinds of groups"
            law = "Groups are of a few kinds, and each kind has coefficients of its own."
        notes.append(Note(title, law))
    held = "of all intervals hold the true coefficient, on average over groups."
    notes.append(Note("Intervals", f"About {answer.percent} {held}"))
    others = summary.get("notes") or []
    if summary.get("dispersion") and not any(note.startswith(UNEVEN) for note in others):
        text = "Tested: counts vary no more within groups than Poisson counts do."
        notes.append(Note("Counts", text, "good"))
    return Notes((*notes, *map(told, others), *alone(answer, "what was held out")))
