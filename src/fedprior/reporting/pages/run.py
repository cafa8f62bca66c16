"""The page of a run folder, while the run goes on and after it has ended."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.version import __version__
from fedprior.data.standard_input import shown as shown_path
from fedprior.engines import blocks as parts
from fedprior.learning.catalog import METHODS
from fedprior.pages.page import (
    Block,
    Fact,
    Grid,
    Number,
    Page,
    Rows,
    Section,
    Style,
    Text,
)
from fedprior.privacy.guarantee import shown
from fedprior.reporting import ledgers, released
from fedprior.reporting.pages import cost
from fedprior.reporting.pages.clients import client_rows, client_section, distributions
from fedprior.reporting.pages.privacy import limits, privacy_section
from fedprior.reporting.pages.record import RunRecord, folder_of
from fedprior.reporting.tables import as_tables

WHAT = "the folder of a run of fedprior train"


def owns(path: Path) -> bool:
    """Whether the path is a run folder of `train`; that of a deployment has an agreement, too."""
    return folder_of(path) is not None and not (path / "agreement.json").is_file()


def page_of(path: Path) -> Page:
    """The page of a run folder."""
    folder = folder_of(path)
    assert folder is not None
    return run_page(RunRecord(folder))


def run_page(record: RunRecord, *sections: Section) -> Page:
    """The page of a run, with further `sections` of whoever knows more about it."""
    config, methods = record.config, record.methods
    scores = [np.array([row["mean"] or 0.0]) for row in methods.values()]
    style = parts.style_of(scores)
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
        title="Training run",
        lead=lead(record, best, style, rows),
        about=f"{record.folder.path.name}: {shown_path(config.data.path) or config.data.name}",
        facts=tuple(_facts(record, best, style, rows)),
        sections=tuple(found),
        folded=(settings(record), versions()),
        command=f"fedprior train {shlex.quote(str(record.folder.config))} --out NEW",
    )


def best_method(methods: dict[str, dict[str, Any]]) -> str | None:
    """The method with the highest mean score, other than local ones; None without any."""
    known = {
        name: row["mean"]
        for name, row in methods.items()
        if row["mean"] is not None and not METHODS[name].alone
    }
    return max(known, key=lambda name: known[name]) if known else None


def lead(record: RunRecord, best: str | None, style: Style, rows: Rows | None) -> str:
    """The sentence that matters: what helped, by how much, and whom; or that nothing did."""
    if record.stage != "finished":
        return _under_way(record)
    if record.secure:
        return _secure_lead(record)
    if best is None:
        return "The run has finished. No client has test samples, so that there are no scores."
    row, unit = record.methods[best], 100 if style == "percent" else 1
    mean = f"{100 * row['mean']:.1f}%" if style == "percent" else f"{row['mean']:.4g}"
    name = "accuracy" if style == "percent" else "score (minus the mean squared error)"
    gain = row["gain_over_local"]
    if gain is None:
        return f"Of the methods compared, {best} is best: its mean {name} is {mean}."
    amount, error = unit / 100 * gain, _error(row, rows, unit)
    size = f"{abs(amount):.1f} points" if style == "percent" else f"{abs(amount):.4g}"
    whom = _whom(rows)
    if amount <= 0:
        return (
            f"Sharing does not help here: no method beats models that clients train on their own "
            f"data alone. The best, {best}, has a mean {name} of {mean}, {size} below local."
        )
    if error is not None and amount < 2 * error:
        return (
            f"It is not clear that sharing helps: {best} has the best mean {name}, {mean}, "
            f"{size} above models that clients train alone, which is less than two standard "
            f"errors ({2 * error:.2g}).{whom}"
        )
    return (
        f"Sharing helps: the models of {best} have a mean {name} of {mean}, {size} above those "
        f"that clients train on their own data alone.{whom}"
    )


def _error(row: dict[str, Any], rows: Rows | None, unit: float) -> float | None:
    """The standard error of the mean gain: over seeds, or else over clients."""
    if row["gain_se"]:
        return float(unit / 100 * row["gain_se"])
    if rows is None or "gain" not in rows.columns:
        return None
    gain = np.asarray(rows.columns["gain"].values, float)
    gain = gain[np.isfinite(gain)]
    return float(gain.std(ddof=1) / len(gain) ** 0.5) if len(gain) > 2 else None


def _whom(rows: Rows | None) -> str:
    if rows is None or "gain" not in rows.columns:
        return ""
    gain = np.asarray(rows.columns["gain"].values, float)
    won, lost = int((gain > 0).sum()), int((gain < 0).sum())
    return f" {won:,} of {int(np.isfinite(gain).sum()):,} clients gain, and {lost:,} lose."


def _under_way(record: RunRecord) -> str:
    """How far a run is that has not ended."""
    whole, done = len(record.standings), sum(each.finished for each in record.standings)
    began = [each for each in record.standings if not each.finished and each.rounds is not None]
    now = "".join(
        f" {each.method} (seed {each.seed}) has done {each.rounds:,} of {each.planned:,} rounds."
        for each in began[:1]
    )
    what = f"{done} of {whole} trainings are finished.{now}"
    if record.stage == "running":
        return f"The run is going on: {what}"
    again = shlex.quote(str(record.folder.path))
    return f"The run has stopped before its end: {what} Continue it with fedprior train --resume {again}."


def _secure_lead(record: RunRecord) -> str:
    """What a run with secure noise may say of itself."""
    bills = ledgers.spent(record.folder.path)
    words = [
        f"{bill['ledger'].split('/')[1]}: epsilon {shown(bill['epsilon'], digits=4)} at delta "
        f"{bill['delta']:g}"
        for bill in bills
        if bill["epsilon"]
    ]
    told = [released.sentence(row) for row in record.summary.get("released_scores", ())]
    spent = f"The run has finished and spent {'; '.join(words)}." if words else "It has finished."
    return " ".join([spent, *told])


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
            facts.append(Fact("clients", Number(len(rows), "whole")))
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
    blocks: list[Block] = [Grid(title="Trainings", head=head, cells=cells)]
    return [Section("How far it is", tuple(blocks))]


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
        f"Test {parts.score_name(style)} of the clients' own models, after as many gradient steps "
        "with each method. The worst decile is the mean of the lowest tenth of the clients."
    )
    blocks: list[Block] = [Grid(title="Scores by method", head=head, cells=tuple(cells))]
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
    shown_bills = [bill for bill in bills if bill["ledger"].endswith(f"seed-{record.config.seed}/ledger.jsonl")]
    named = [
        (str(bill["ledger"]).split("/")[1].replace("-seed-", ", seed "), path / bill["ledger"], bill)
        for bill in shown_bills or bills
    ]
    if not named:
        return []
    section = privacy_section(named)
    words = [released.sentence(row) for row in record.summary.get("released_scores", ())]
    whole = ledgers.together(path)
    words += [ledgers.sentence_together(whole)] if whole else []
    blocks = (*section.blocks, *map(Text, words))
    written = not record.secure or record.config.privacy.unprotected_scores
    limited = limits(secure=record.secure, scores=written, ledgers=len(bills))
    return [Section("Privacy", blocks), Section("What is not protected", (limited,))]


def settings(record: RunRecord) -> Grid:
    """All settings of config.toml, flat."""
    cells = tuple(_flat(as_tables(record.config)))
    return Grid(title="Settings", head=("setting", "value"), cells=cells, folded=True)


def _flat(tables: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in tables.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif value not in ("", [], ()):
            shown_value = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((f"{prefix}{name}", shown_value))
    return found


def versions() -> Grid:
    """The versions of what this page is made with, without importing it."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    cells = [("fedprior", __version__), ("Python", platform.python_version())]
    for name in ("jax", "jaxlib", "numpy", "optax", "dp-accounting"):
        try:
            cells.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return Grid(title="Versions that made this page", head=("program", "version"), cells=tuple(cells), folded=True)
