"""The page of a run folder, while the run goes on and after it has ended."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.standard_input import shown as shown_path
from fedprior.engines import blocks as parts
from fedprior.pages.page import (
    Block,
    Fact,
    Number,
    Page,
    Rows,
    Section,
    SmallTable,
    Style,
    Text,
)
from fedprior.reporting import ledgers, released
from fedprior.reporting.pages import cost
from fedprior.reporting.pages.clients import PAIRS, client_rows, client_section, distributions
from fedprior.reporting.pages.lead import best_method, lead, name_of
from fedprior.reporting.pages.made import SHOWS_THE_SAME, settings, versions
from fedprior.reporting.pages.privacy import FEW_POINTS, POINTS, limits, privacy_section
from fedprior.reporting.pages.record import RunRecord, folder_of

WHAT = "the folder of a run of fedprior train"
_AGAIN = {  # by whether the noise is secure
    False: "This command gives the same answer again:",
    True: "This command trains again, with new noise, and spends epsilon again:",
}


def owns(path: Path) -> bool:
    """Whether the path is a run folder of `train`; that of a deployment has an agreement, too."""
    return folder_of(path) is not None and not (path / "agreement.json").is_file()


def page_of(path: Path) -> Page:
    """The page of a run folder."""
    folder = folder_of(path)
    assert folder is not None
    return run_page(RunRecord(folder))


def run_page(
    record: RunRecord,
    *sections: Section,
    title: str = "Training run",
    again: str = "",
    shown_by: str = "",
) -> Page:
    """The page of a run, with further `sections` of whoever knows more about it.

    `again` says how a run that has stopped is continued, and `shown_by` is a command that shows
    its state; without it, the page names the one that trains again.
    """
    config, methods = record.config, record.methods
    style = _style(record)
    best = best_method(methods)
    rows = client_rows(
        record.clients, config.methods, style, best=best, same=bool(config.data.path)
    )
    found = [
        *_progress(record),
        *_methods(record, rows, style),
        *([] if rows is None else [client_section(rows, best, style)]),
        *_rounds(record, style),
        *_calibration(record),
        *_classes(record, rows),
        *cost.sections(record),
        *_privacy(record),
        *sections,
    ]
    return Page(
        title=title,
        lead=lead(record, best, style, rows, again),
        about=f"{record.folder.path.name}: {shown_path(config.data.path) or config.data.name}",
        facts=tuple(_facts(record, best, style, rows)),
        sections=tuple(found),
        folded=(settings(config), versions()),
        command=shown_by or f"fedprior train {shlex.quote(str(record.folder.config))} --out NEW",
        command_text=SHOWS_THE_SAME if shown_by else _AGAIN[record.secure],
    )


def _style(record: RunRecord) -> Style:
    """How scores are shown: by what the run predicts, and by those that are known so far."""
    classes = None
    if record.folder.evaluation.is_file() and not record.secure:
        classes = record.evaluation["classes"] is not None
    elif record.config.data.options.get("regression"):
        classes = False
    means = [row["mean"] for row in record.methods.values()]
    return parts.style_of(
        [*means, *(line.get("valid") for line in record.history)], classes=classes
    )


def _facts(record: RunRecord, best: str | None, style: Style, rows: Rows | None) -> list[Fact]:
    facts = []
    if not record.secure:
        if best is not None:
            row = record.methods[best]
            facts.append(Fact("best method", best))
            facts.append(Fact(f"mean {parts.score_name(style)}", parts.score(row["mean"], style)))
            if row["gain_over_local"] is not None:
                unit = 1 if style == "percent" else 0.01
                digits = 1 if style == "percent" else 4
                gain = Number(unit * row["gain_over_local"], digits=digits, sign=True)
                facts.append(Fact("gain over local", gain, "points" if unit == 1 else ""))
        if rows is not None:
            seeds = len(set(record.clients["seed"].tolist())) if rows.noun == PAIRS else 1
            note = f"in each of {seeds} seeds" if seeds > 1 else ""
            facts.append(Fact("clients", Number(len(rows) / seeds, "whole"), note))
    if record.config.seeds > 1:
        facts.append(Fact("seeds", Number(record.config.seeds, "whole")))
    if record.private:
        facts.append(Fact("privacy budget", f"epsilon {record.config.privacy.epsilon:g}"))
        noise = "secure" if record.secure else "simulated"
        facts.append(Fact("noise", noise, "" if record.secure else "not valid for release"))
    return facts


def _progress(record: RunRecord) -> list[Section]:
    if record.stage == "finished":
        return []
    cells = tuple(
        (
            f"{each.method}, seed {each.seed}",
            each.words,
            None if each.rounds is None else Number(each.rounds, "whole"),
            None if each.planned is None else Number(each.planned, "whole"),
        )
        for each in record.standings
    )
    head = ("training", "state", "rounds done", "of")
    blocks: list[Block] = [SmallTable(title="Trainings", head=head, cells=cells)]
    return [Section("Progress", tuple(blocks))]


def _methods(record: RunRecord, rows: Rows | None, style: Style) -> list[Section]:
    methods = record.methods
    if not methods:
        return []
    seeds = any(row["mean_sd"] is not None for row in methods.values())
    points = style == "percent"
    cells = []
    for name, row in sorted(methods.items(), key=lambda item: -(item[1]["mean"] or -np.inf)):
        alone = name == "local" or row["gain_over_local"] is None
        gain = None if alone else row["gain_over_local"] * (1 if points else 0.01)
        gaining = None if alone or row["share_gaining"] is None else row["share_gaining"]
        cells.append(
            (
                name,
                parts.score(row["mean"], style),
                *((parts.score(row["mean_sd"], style),) if seeds else ()),
                parts.score(row["worst_decile"], style),
                parts.score(row["best_decile"], style),
                None if gain is None else Number(gain, digits=1 if points else 4, sign=True),
                None if gaining is None else Number(gaining, "percent", digits=1),
            )
        )
    spread = ("± over seeds",) if seeds else ()
    gain = "gain over local" + (" (points)" if points else "")
    head = ("method", "mean", *spread, "worst decile", "best decile", gain, "clients gaining")
    text = (
        f"Test {parts.score_name(style)} of the clients' own models, all trained with the same "
        "number of gradient steps. The worst decile is the mean of the lowest tenth of the clients."
    )
    blocks: list[Block] = [SmallTable(title="Scores by method", head=head, cells=tuple(cells))]
    drawn = None if rows is None else distributions(rows, list(methods), style)
    blocks += [] if drawn is None else [drawn]
    return [Section("Methods", tuple(blocks), text)]


def _rounds(record: RunRecord, style: Style) -> list[Section]:
    charts = parts.over_rounds(record.history, style)
    if not record.secure and not any("valid" in line for line in record.history):
        text = (
            "There are no scores over rounds, because the run did not compute any. "
            "With training.evaluate_every=N a run scores its models every N rounds."
        )
        charts = [*charts, Text(text)]
    return [Section("Over rounds", tuple(charts))] if charts else []


def _calibration(record: RunRecord) -> list[Section]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in record.evaluation["runs"]:
        if "calibration" in each:
            found.setdefault(each["method"], []).append(each["calibration"])
    charts = parts.calibration(found)
    return [Section("Calibration", tuple(charts))] if charts else []


def _classes(record: RunRecord, rows: Rows | None) -> list[Section]:
    section = parts.balance(record.evaluation["classes"], rows)
    return [] if section is None else [section]


def _privacy(record: RunRecord) -> list[Section]:
    if not record.private:
        return []
    path = record.folder.path
    bills = ledgers.spent(path)
    first = f"-seed-{record.config.seed}"  # of many seeds, which spend the same
    named = [
        (name_of(bill, record).rstrip(","), path / bill["ledger"], bill)
        for bill in bills
        if Path(bill["ledger"]).parent.name.endswith(first)
    ]
    if not named:
        return []
    points = FEW_POINTS if record.stage == "running" else POINTS
    section = privacy_section(named, points=points)
    words = [released.sentence(row) for row in record.summary.get("released_scores", ())]
    whole = ledgers.together(path)
    words += [ledgers.sentence_together(whole)] if whole else []
    blocks = (*section.blocks, *map(Text, words))
    written = not record.secure or record.config.privacy.unprotected_scores
    limited = limits(secure=record.secure, scores=written, ledgers=len(bills))
    return [Section("Privacy", blocks), Section("What is not protected", (limited,))]
