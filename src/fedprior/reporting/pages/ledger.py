"""The page of a ledger: what a population may lose in all, who spent it, and what is left."""

import json
import shlex
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.pages.page import (
    Block,
    Curve,
    Curves,
    Fact,
    Note,
    Notes,
    Number,
    Page,
    Section,
    SmallTable,
    Stacked,
)
from fedprior.privacy.charging import total
from fedprior.privacy.opening import read
from fedprior.privacy.records import reservations
from fedprior.reporting import population
from fedprior.reporting.pages.made import SHOWS_THE_SAME, versions
from fedprior.reporting.pages.privacy import flow, limits

WHAT = "a ledger (.jsonl)"
TAKES_KEY = True
_POINTS = 50  # epsilons that are computed for the page


def owns(path: Path) -> bool:
    """Whether the path is a ledger, by its first line; a damaged one says so when it is read."""
    if not path.is_file() or path.suffix != ".jsonl":
        return False
    with path.open("rb") as file:
        first = file.readline(2**16)
    try:
        line = json.loads(first)
    except ValueError:
        return False
    return isinstance(line, dict) and line.get("kind") == "open" and "previous" in line


def page_of(path: Path, *, key: Path | None = None) -> Page:
    """The page of a ledger, computed anew from its events."""
    stated = population.statement(path, key)
    budget = stated["budget"]
    facts = [Fact("epsilon spent", population.figure(stated["spent"]))]
    if budget is not None:
        facts.append(Fact("budget", f"{budget:g}"))
    facts += [
        Fact("delta", f"{stated['delta']:g}"),
        Fact("relation", stated["relation"]),
        Fact("charges", Number(len(stated["charges"]), "whole")),
    ]
    sections = [Section("Budget", tuple(_budget(path, key, stated)))]
    if stated["charges"]:
        sections.append(Section("Who spent what", (_charges(stated),), _ALONE))
        kinds = dict.fromkeys((row["view"], _is_answer(row)) for row in stated["charges"])
        flows = tuple(flow(view, asked=asked) for view, asked in kinds)
        sections.append(Section("Who is trusted", flows))
    sections.append(Section("Who learns how much", (_views(stated),)))
    secure = stated["valid_for_release"]
    sections.append(Section("What is not protected", (limits(secure=secure, scores=False),)))
    head = stated["head"]
    lead = population.sentence(stated).removeprefix(f"{stated['ledger']}: ")
    opened = "" if key is None else " --key FILE"
    return Page(
        title="Privacy ledger",
        lead=lead[:1].upper() + lead[1:],
        about=path.name,
        facts=tuple(facts),
        sections=tuple(sections),
        folded=(
            SmallTable(
                title="Head of the ledger",
                head=("lines", "hash of the last line"),
                cells=((str(head["lines"]), str(head["hash"])),),
                folded=True,
            ),
            versions(),
        ),
        command=f"fedprior privacy ledger show {shlex.quote(str(path))}{opened}",
        command_text=SHOWS_THE_SAME,
    )


_ALONE = "Each epsilon is that of the charge alone. Together they cost at most their sum."


def _budget(path: Path, key: Path | None, stated: dict[str, Any]) -> list[Block]:
    parts: dict[str, tuple[float, ...]] = {"spent": (float(stated["spent"]),)}
    if stated["left"] is not None:
        parts["left"] = (float(stated["left"]),)
    title = "Epsilon spent and left"
    found: list[Block] = [Stacked(title=title, labels=("budget",), parts=parts, rest="left")]
    points = _path(path, key)
    if len(points) > 1:
        numbers, spent = zip(*points, strict=True)
        found.append(
            Curves(
                title="Epsilon after each charge",
                curves=(Curve(name="anyone who sees what was released", x=numbers, y=spent),),
                x_label="charges",
                y_label="epsilon",
                dots=True,
            )
        )
    return found


def _path(path: Path, key: Path | None) -> list[tuple[int, float]]:
    """Epsilon after the first charges, at most `_POINTS` times."""
    terms, records = read(path, key)
    charged = list(reservations(records))
    step = max(1, -(-len(charged) // _POINTS))
    places = sorted({*range(step, len(charged) + 1, step), len(charged)}) if charged else []
    return [(place, total(charged[:place], terms)) for place in places]


def _is_answer(row: dict[str, Any]) -> bool:
    """Whether a charge is that of an estimate or of scores, and not of rounds of a training."""
    return str(row["mechanism"]).startswith("randomized reports")


def _charges(stated: dict[str, Any]) -> SmallTable:
    cells = tuple(
        (
            row["who"],
            Number(row["epsilon"], digits=3),
            Number(row["rounds"], "whole"),
            row["mechanism"],
            row["view"],
            row["noise"],
            row["begun"],
        )
        for row in stated["charges"]
    )
    head = ("who", "epsilon", "rounds", "mechanism", "view", "noise", "since")
    return SmallTable(title="Charges", head=head, cells=cells)


def _views(stated: dict[str, Any]) -> Notes:
    """Epsilon against everybody who might look."""
    notes = []
    for view in stated["views"]:
        known = view["epsilon"] is not None
        spent = population.figure(view["epsilon"]) if known else ""
        text = (
            f"can learn about one {stated['unit']} at most what epsilon {spent} allows, at delta "
            f"{stated['delta']:g} ({stated['relation']})."
            if known
            else "may learn more: no bound is proven."
        )
        title = f"Anyone who {view['adversary']}"
        notes.append(Note(title, text, "plain" if known else "warning"))
    check.expect(bool(notes), "report", "the ledger states no view.")
    return Notes(tuple(notes))
