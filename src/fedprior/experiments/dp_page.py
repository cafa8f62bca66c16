"""The page of the private figures: accuracy against epsilon, and psi's path."""

from typing import Any

from fedprior.experiments.dp_report import COLUMNS, ERRORS, PrivateRow, cells
from fedprior.pages.page import Block, Curve, Curves, Fact, Number, Page, Section, SmallTable, Text
from fedprior.reporting.pages.privacy import flow, limits


def dp_page(document: dict[str, Any]) -> Page:
    """The page of rows.json as `dp_report.to_json` writes it."""
    rows = [PrivateRow(**row) for row in document["rows"]]
    settings = list(dict.fromkeys(row.setting for row in rows))
    sections = [_section(name, [row for row in rows if row.setting == name]) for name in settings]
    terms, *remarks = document["remarks"]
    sections.append(Section("In words", tuple(Text(remark) for remark in remarks)))
    sections.append(Section("Privacy", (Text(terms), flow("central"))))
    sections.append(Section("What is not protected", (limits(secure=False, scores=True),)))
    facts = (
        Fact("settings", Number(len(settings), "whole")),
        Fact("seeds", Number(rows[0].num_seeds, "whole")),
        Fact("noise", "simulated", "not valid for release"),
    )
    return Page(
        title="Private methods against local training",
        lead=_lead(rows, settings),
        facts=facts,
        sections=tuple(sections),
        command="fedprior reproduce dp-figures",
    )


def _lead(rows: list[PrivateRow], settings: list[str]) -> str:
    """Where privacy can be had and sharing still pays."""
    words = []
    for name in settings:
        won = [row for row in rows if row.setting == name and row.above and row.epsilon is not None]
        if not won:
            words.append(f"in {name}, no private method beats local training")
            continue
        least = min(won, key=lambda row: (row.epsilon or 0, -row.difference))
        words.append(
            f"in {name}, {least.method} beats local training from epsilon {least.epsilon:g} on, "
            f"there by {100 * least.difference:.1f} points"
        )
    text = "; ".join(words)
    return f"{text[0].upper()}{text[1:]}. What counts is a difference of {ERRORS} standard errors."


def _section(name: str, rows: list[PrivateRow]) -> Section:
    local = next((row for row in rows if row.method == "local"), None)
    curves = []
    epsilons = sorted({row.epsilon for row in rows if row.epsilon is not None})
    for method in dict.fromkeys(row.method for row in rows if row.method != "local"):
        own = [row for row in rows if row.method == method and row.epsilon is not None]
        own.sort(key=lambda row: row.epsilon or 0.0)
        if own:
            scores = [row.score for row in own]
            errors = [ERRORS * row.score_se for row in own]
            pairs = [*zip(scores, errors, strict=True)]
            curves.append(
                Curve(
                    name=method,
                    x=[row.epsilon or 0.0 for row in own],
                    y=scores,
                    lower=[score - error for score, error in pairs],
                    upper=[score + error for score, error in pairs],
                )
            )
    if local is not None and epsilons:
        flat = [local.score] * len(epsilons)
        curves.append(Curve(name="local", x=epsilons, y=flat, dashed=True))
    blocks: list[Block] = [
        Curves(
            title="Accuracy against epsilon",
            curves=tuple(curves),
            x_label="epsilon",
            y_label="mean test accuracy",
            style="percent",
            dots=True,
            text=f"Bands are {ERRORS} standard errors. Local training spends nothing.",
        )
    ]
    paths = [
        Curve(
            name="without privacy" if row.epsilon is None else f"epsilon {row.epsilon:g}",
            x=list(range(1, len(row.psi) + 1)),
            y=row.psi,
        )
        for row in rows
        if row.method == "adaped" and row.psi
    ]
    if paths:
        blocks.append(
            Curves(
                title="psi of AdaPeD over rounds",
                curves=tuple(paths),
                x_label="round",
                y_label="psi",
            )
        )
    kept = [place for place, column in enumerate(COLUMNS) if column != "setting"]
    table = tuple(tuple(cells(row)[place] for place in kept) for row in rows)
    head = tuple(COLUMNS[place] for place in kept)
    blocks.append(SmallTable(title="All figures, in percent", head=head, cells=table, folded=True))
    return Section(name, tuple(blocks))
