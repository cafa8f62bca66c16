"""The sentence that a run's page begins with."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.scores import Metric
from fedprior.learning.catalog import METHODS
from fedprior.pages.page import Rows
from fedprior.privacy.guarantee import shown
from fedprior.reporting import ledgers, released
from fedprior.reporting.pages.clients import gains
from fedprior.reporting.pages.record import RunRecord


def best_method(methods: dict[str, dict[str, Any]], metric: Metric) -> str | None:
    """The method with the best mean, other than local ones; None without any."""
    known = {
        name: metric.signed(row["mean"])
        for name, row in methods.items()
        if row["mean"] is not None and not METHODS[name].alone
    }
    return max(known, key=lambda name: known[name]) if known else None


def lead(record: RunRecord, best: str | None, rows: Rows | None, again: str = "") -> str:
    """The sentence that matters: what helped, by how much, and whom; or that nothing did."""
    if record.stage != "finished":
        return _under_way(record, again)
    if record.secure:
        return _secure_lead(record)
    if best is None:
        return f"The run has finished. {_without_best(record)}"
    row, metric = record.methods[best], record.metric
    mean, name = metric.words(row["mean"]), metric.label
    amount = row["gain_over_local"]
    if amount is None:
        return _not_compared(record, best, f"mean {name}", mean)
    error = _error(row, rows)
    size = metric.difference(amount / metric.unit)
    whom = _whom(rows, best)
    better, worse = ("below", "above") if metric.lower else ("above", "below")
    if amount <= 0:
        below = f"{size} {worse} local" if amount < 0 else "the same as local"
        return (
            f"Sharing does not help here: no method beats models that clients train on their own "
            f"data alone. The best, {best}, has a mean {name} of {mean}, {below}."
        )
    if error is not None and amount < 2 * error:
        return (
            f"It is not clear that sharing helps: {best} has the best mean {name}, {mean}, "
            f"{size} {better} models that clients train alone, which is less than two standard "
            f"errors ({2 * error:.2g}).{whom}"
        )
    return (
        f"Sharing helps: the models of {best} have a mean {name} of {mean}, {size} {better} "
        f"those that clients train on their own data alone.{whom}"
    )


def _error(row: dict[str, Any], rows: Rows | None) -> float | None:
    """The standard error of the mean gain: over seeds, or else over clients."""
    if row["gain_se"]:
        return float(row["gain_se"])
    if rows is None or "gain" not in rows.columns:
        return None
    gain = np.asarray(rows.columns["gain"].values, float)
    gain = gain[np.isfinite(gain)]
    return float(gain.std(ddof=1) / len(gain) ** 0.5) if len(gain) > 2 else None


def _whom(rows: Rows | None, best: str) -> str:
    found = gains(rows, best)
    if rows is None or found is None:
        return ""
    counted = f" {found.won:,} of {found.whole:,} {rows.noun} gain, and {found.lost:,} lose."
    return counted + found.aside(rows.noun)


def _not_compared(record: RunRecord, best: str, what: str, mean: str) -> str:
    """The best method where there is no gain over local."""
    if "local" in record.methods and _diverged(record, "local"):
        return (
            f"{best} has a {what} of {mean}. The models that clients train on their own data alone "
            "diverged, so there is nothing to compare it with."
        )
    if len(record.methods) == 1:
        return f"{best} has a {what} of {mean}."
    return f"Of the methods compared, {best} is best: its {what} is {mean}."


def _without_best(record: RunRecord) -> str:
    """Why no method that shares has a score."""
    diverged = [name for name in record.methods if _diverged(record, name)]
    shared = [name for name in record.methods if not METHODS[name].alone]
    if any(name in diverged for name in shared):
        return f"Models of {', '.join(diverged)} diverged, so there is no mean score to compare."
    known = {name: row["mean"] for name, row in record.methods.items() if row["mean"] is not None}
    if known:
        shown = record.metric.words
        words = [f"{name} has a mean of {shown(mean)}" for name, mean in known.items()]
        return (
            f"Nothing was shared: clients trained on their own data alone. Test "
            f"{record.metric.label}: {'; '.join(words)}."
        )
    if diverged:
        return f"Models of {', '.join(diverged)} diverged, so there is no mean score."
    return "No client has test samples, so there are no scores."


def _diverged(record: RunRecord, method: str) -> bool:
    """Whether some client's model has no finite score; without test samples a score is NaN."""
    values = record.clients.get(method.replace("-", "_"))
    return values is not None and bool(np.isinf(values).any())


def _under_way(record: RunRecord, again: str) -> str:
    """How far a run is that has not ended."""
    whole, done = len(record.standings), sum(each.finished for each in record.standings)
    began = [each for each in record.standings if not each.finished and each.rounds is not None]
    now = "".join(
        f" {each.method} (seed {each.seed}) has done {each.rounds:,} of {each.planned:,} rounds."
        for each in began[:1]
    )
    what = f"{done} of {whole} trainings are finished.{now}"
    if record.stage == "running":
        return f"The run is in progress: {what}"
    again = again or f"fedprior train --resume {shlex.quote(str(record.folder.path))}"
    return f"The run has stopped before its end: {what} Continue it with {again}."


def _secure_lead(record: RunRecord) -> str:
    """What a run with secure noise may say of itself."""
    bills = ledgers.spent(record.folder.path)
    words = [
        f"{name_of(bill, record)} has spent epsilon {shown(bill['epsilon'], digits=4)} of "
        f"{bill['budget']:g} at delta {bill['delta']:g}."
        for bill in bills
        if bill["epsilon"] and bill["budget"]
    ]
    told = [released.sentence(row) for row in record.summary.get("released_scores", ())]
    hidden = "Scores of single clients are not protected, and this page does not show them."
    return " ".join(["The run has finished.", *words, *told, hidden])


def name_of(bill: dict[str, Any], record: RunRecord) -> str:
    """The training of a ledger, with its seed where there are several."""
    method, _, seed = Path(bill["ledger"]).parent.name.rpartition("-seed-")
    return f"{method}, seed {seed}," if record.config.seeds > 1 else method
