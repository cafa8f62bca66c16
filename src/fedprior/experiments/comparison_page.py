"""The page of a comparison of methods: one section per setting."""

from typing import Any

import numpy as np

from fedprior.experiments import comparison_beside
from fedprior.experiments.comparison_report import Row as ReportRow
from fedprior.experiments.comparison_settings import COMPARISONS, Setting
from fedprior.experiments.optimizers import OPTIMIZERS, PUBLISHED
from fedprior.pages.page import (
    Block,
    Cell,
    Curve,
    Curves,
    Fact,
    Intervals,
    Number,
    Page,
    PageColumn,
    Rows,
    Section,
    SmallTable,
    Text,
)

Row = dict[str, Any]  # of rows.json
_CURVES = 6  # more cannot be told apart


def comparison_page(document: dict[str, Any]) -> Page:
    """The page of rows.json as `comparison_report.to_json` writes it.

    `beside` in it holds such documents by optimizer, this one among them, to be shown side by side.
    """
    name, rows = document["experiment"], document["rows"]
    titles = {each.name: each.title for each in COMPARISONS[name].settings}
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    sections = [
        _section(titles.get(each, each), [r for r in rows if r["setting"] == each], document)
        for each in settings
    ]
    remarks = tuple(Text(remark) for remark in document["remarks"])
    sections.append(Section("In words", remarks))
    if len(document.get("beside", ())) > 1:
        sections.insert(0, _beside(document["beside"], COMPARISONS[name].settings))
    facts = [
        Fact("methods", Number(len({row["method"] for row in rows}), "whole")),
        Fact("settings", Number(len(settings), "whole")),
        Fact("seeds", Number(len(document["seeds"]), "whole")),
        Fact("rates tried", Number(len(document["grid"]), "whole")),
    ]
    return Page(
        title=f"Comparison: {name}",
        lead=_lead(rows, settings, titles),
        about=_about(document),
        facts=tuple(facts),
        sections=tuple(sections),
        folded=tuple(_made_with(document)),
        command=document["command"],
    )


def _about(document: dict[str, Any]) -> str:
    name = document.get("optimizer", {}).get("name", PUBLISHED.name)
    words = [OPTIMIZERS[name].title]
    words += ["quick: one seed, a fifth of the rounds"] if document.get("quick") else []
    return "; ".join(words)


def _beside(documents: comparison_beside.Documents, settings: tuple[Setting, ...]) -> Section:
    """Who leads under which optimizer, and the figures of all of them."""
    blocks: list[Block] = [Text(line) for line in comparison_beside.verdicts(documents, settings)]
    for setting in settings:
        rows = comparison_beside.rows_of(documents, setting.name)
        if not rows:
            continue
        cells = tuple(
            (method, *(_accuracy(own.get(method)) for own in rows.values()))
            for method in comparison_beside.order(rows)
        )
        head = ("method", *(comparison_beside.title(name) for name in rows))
        blocks.append(SmallTable(title=setting.title, head=head, cells=cells))
    return Section("Under each optimizer", tuple(blocks))


def _accuracy(row: ReportRow | None) -> Number | None:
    return None if row is None else _percent(row.mean)


def _lead(rows: list[Row], settings: list[str], titles: dict[str, str]) -> str:
    """Which method leads in each setting."""
    words = []
    for name in settings:
        known = [row for row in rows if row["setting"] == name and row["mean"] is not None]
        title = titles.get(name, name)
        if not known:
            words.append(f"{title}: no method has a score")
            continue
        first = max(known, key=lambda row: row["mean"])
        words.append(f"{title}: {first['method']} leads with {first['mean']:.2f}%")
    return (
        f"{'; '.join(words)}. All methods were tuned in the same way and take the same number of "
        "gradient steps."
    )


def _section(title: str, rows: list[Row], document: dict[str, Any]) -> Section:
    reference = rows[0]["reference"]
    several = any(row["gap_low"] is not None for row in rows)
    blocks: list[Block] = [_table(rows, several)]
    others = [row for row in rows if row["method"] != reference]
    if others:
        blocks.append(_gaps(others, reference, several))
    if len(document["grid"]) > 1:
        blocks.append(_rates(rows, document["grid"]))
    return Section(title, tuple(blocks))


def _table(rows: list[Row], several: bool) -> SmallTable:
    printed = any(row["paper_says"] is not None for row in rows)
    spread = ("± over seeds",) if several else ()
    says = ("the paper says",) if printed else ()
    head = ("method", "accuracy", *spread, "worst decile", *says, "rate", "gap")

    def cells(row: Row) -> tuple[Cell, ...]:
        own = row["method"] == row["reference"]
        spread = None if row["sd"] is None else Number(row["sd"], digits=2)
        gap = None if own or row["gap"] is None else Number(row["gap"], digits=2, sign=True)
        return (
            row["method"],
            _percent(row["mean"]),
            *((spread,) if several else ()),
            _percent(row["worst_decile"]),
            *((_percent(row["paper_says"]),) if printed else ()),
            Number(row["tuned"]["rate"], digits=3),
            gap,
        )

    title = "Test accuracy, mean over clients"
    return SmallTable(title=title, head=head, cells=tuple(cells(row) for row in rows))


def _percent(points: float | None) -> Number | None:
    return None if points is None else Number(points / 100, "percent", 2)


def _gaps(rows: list[Row], reference: str, several: bool) -> Intervals:
    """How far each method is behind the one that it is compared with, in points."""
    columns = {
        "name": PageColumn(label="method", values=[row["method"] for row in rows], style="text"),
        "gap": PageColumn(label="ahead by (points)", values=_values(rows, "gap"), digits=2),
    }
    bounds = {}
    if several:
        for name in ("gap_low", "gap_high"):
            label = "from" if name == "gap_low" else "to"
            columns[name] = PageColumn(label=label, values=_values(rows, name), digits=2)
        bounds = {"lower": "gap_low", "upper": "gap_high"}
    text = f"Right of zero, {reference} is ahead." + (
        " Intervals are 95%, paired by seed: those that include zero cannot be told apart."
        if several
        else " There is one seed, and so no interval."
    )
    return Intervals(
        title=f"Lead of {reference} over each other method, in points",
        rows=Rows(columns=columns, noun="methods"),
        value="gap",
        line=0.0 if several else None,
        line_label="no difference",
        text=text,
        **bounds,
    )


def _values(rows: list[Row], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], float)


def _rates(rows: list[Row], grid: list[float]) -> Curves:
    curves = tuple(
        Curve(
            name=row["method"],
            x=grid,
            y=[np.nan if score is None else score / 100 for score in row["valid_by_rate"]],
        )
        for row in rows[:_CURVES]
    )
    return Curves(
        title="Validation accuracy by rate",
        curves=curves,
        x_label="rate",
        y_label="mean validation accuracy",
        style="percent",
        dots=True,
        text=f"Of the best {len(curves)} methods. The rate with the highest one was tested.",
    )


def _made_with(document: dict[str, Any]) -> list[SmallTable]:
    found = []
    for each in document.get("made_with", ()):
        cells = tuple((str(name), str(value)) for name, value in each.items())
        head = ("program", "version")
        found.append(
            SmallTable(title="Versions that made this", head=head, cells=cells, folded=True)
        )
    return found
