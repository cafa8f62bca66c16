"""The page of a run folder, while the run goes on and after it has ended."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.scores import Metric
from fedprior.data.standard_input import shown as shown_path
from fedprior.engines import blocks as parts
from fedprior.engines.guesses import LABELS
from fedprior.pages.page import Block, Cell, Fact, Number, Page, Rows, Section, SmallTable, Text
from fedprior.reporting import ledgers, released
from fedprior.reporting.pages import cost
from fedprior.reporting.pages.clients import PAIRS, client_rows, client_section, distributions
from fedprior.reporting.pages.lead import best_method, lead, name_of
from fedprior.reporting.pages.made import SHOWS_THE_SAME, settings, versions
from fedprior.reporting.pages.privacy import FEW_POINTS, POINTS, limits, privacy_section
from fedprior.reporting.pages.record import RunRecord, folder_of

_GUESS = "guess:"
_BETTER = {True: "Lower values are better.", False: "Higher values are better."}
_BOOSTING = " Gradient boosting on the same rows stands beside them; it takes no gradient steps."
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
    metric = record.metric
    best = best_method(methods, metric)
    rows = client_rows(
        record.clients, config.methods, metric, best=best, same=bool(config.data.path)
    )
    balance = parts.balance(record.evaluation["classes"], rows)
    found = [
        *_progress(record),
        *_methods(record, rows),
        *_metrics(record),
        *([] if rows is None else [client_section(rows, best, metric)]),
        *_rounds(record),
        *_calibration(record),
        *([] if balance is None else [balance]),
        *cost.sections(record),
        *_privacy(record),
        *sections,
    ]
    return Page(
        title=title,
        lead=lead(record, best, rows, again),
        about=f"{record.folder.path.name}: {shown_path(config.data.path) or config.data.name}",
        facts=tuple(_facts(record, best, rows)),
        sections=tuple(found),
        folded=(settings(config), versions()),
        command=shown_by or f"fedprior train {shlex.quote(str(record.folder.config))} --out NEW",
        command_text=SHOWS_THE_SAME if shown_by else _AGAIN[record.secure],
    )


def _facts(record: RunRecord, best: str | None, rows: Rows | None) -> list[Fact]:
    facts, metric = [], record.metric
    if not record.secure:
        if best is not None:
            row = record.methods[best]
            facts.append(Fact("best method", best))
            facts.append(Fact(f"mean {metric.label}", parts.figure(row["mean"], metric)))
            facts += _guessed(record)
            if row["gain_over_local"] is not None:
                size = row["gain_over_local"] / metric.unit
                gain = parts.gain(size, metric, values=[row["mean"]])
                facts.append(Fact("gain over local", gain, "points" if metric.share else ""))
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


def _guessed(record: RunRecord) -> list[Fact]:
    """The mean of guessing the same for every sample of a client, the better rival first."""
    metric = record.metric
    known = {name: row for name, row in record.guesses.items() if row["mean"] is not None}
    order = sorted(known, key=lambda name: -metric.signed(known[name]["mean"]))
    return [
        Fact(f"always guessing the {LABELS[name]}", parts.figure(known[name]["mean"], metric))
        for name in order[:1]
    ]


def _methods(record: RunRecord, rows: Rows | None) -> list[Section]:
    methods, metric = record.methods, record.metric
    if not methods:
        return []
    seeds = any(row["mean_sd"] is not None for row in methods.values())
    means = [row["mean"] for row in methods.values()]

    def cells(name: str, row: dict[str, Any], local: bool) -> tuple[Cell, ...]:
        alone = local or row["gain_over_local"] is None
        gaining = None if alone else row["share_gaining"]
        spread = (parts.figure(row["mean_sd"], metric, values=means),) if seeds else ()
        return (
            name,
            parts.figure(row["mean"], metric, values=means),
            *spread,
            parts.figure(row["worst_decile"], metric, values=means),
            parts.figure(row["best_decile"], metric, values=means),
            None
            if alone
            else parts.gain(row["gain_over_local"] / metric.unit, metric, values=means),
            None if gaining is None else Number(gaining, "percent", digits=1),
        )

    ranked = sorted(methods.items(), key=lambda item: -_score(item[1]["mean"], metric))
    found = [cells(name, row, name == "local") for name, row in ranked]
    found += [cells(name, row, False) for name, row in record.baseline.items()]
    found += [cells(f"{_GUESS} {LABELS[name]}", row, True) for name, row in record.guesses.items()]
    spread = ("± over seeds",) if seeds else ()
    gain = "gain over local" + (" (points)" if metric.share else "")
    head = ("method", "mean", *spread, "worst decile", "best decile", gain, "clients gaining")
    tenth = "highest" if metric.lower else "lowest"
    text = (
        f"Test {metric.label} of the clients' own models, all trained with the same number of "
        f"gradient steps: the mean over clients. {_BETTER[metric.lower]} The worst decile is the "
        f"mean of the {tenth} tenth of the clients."
    )
    text += _BOOSTING if record.baseline else ""
    blocks: list[Block] = [SmallTable(title="Scores by method", head=head, cells=tuple(found))]
    drawn = None if rows is None else distributions(rows, list(methods), metric)
    blocks += [] if drawn is None else [drawn]
    return [Section("Methods", tuple(blocks), text)]


def _score(value: float | None, metric: Metric) -> float:
    """The score of a value; the lowest where there is none."""
    return -np.inf if value is None else float(metric.signed(value))


def _metrics(record: RunRecord) -> list[Section]:
    """Every metric of every method and of what needs no model."""
    every = {**record.methods, **record.baseline}
    rows = {name: row["metrics"] for name, row in every.items() if "metrics" in row}
    guessed = {f"{_GUESS} {LABELS[k]}": row["metrics"] for k, row in record.guesses.items()}
    if not rows:
        return []
    tables = parts.metrics(rows | guessed, record.metric)
    return [Section("Metrics", tuple(tables), parts.METRICS_TEXT)]


def _rounds(record: RunRecord) -> list[Section]:
    charts = parts.over_rounds(record.history, record.metric)
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
