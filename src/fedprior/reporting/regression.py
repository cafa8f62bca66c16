"""From a question to personal regressions, their summary, and their table on disk."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.plain import picked
from fedprior.data.reader import Table
from fedprior.regression.face.analysis import Analysis, analyze
from fedprior.regression.face.holdout import HeldOut, compare
from fedprior.regression.face.specification import Specification
from fedprior.regression.result import Family
from fedprior.regression.summary import page_keys, summary_of
from fedprior.reporting import answers
from fedprior.reporting.regress_question import RegressQuestion
from fedprior.reporting.regress_table import read_rows

# What a fit calls an option of the command.
_OPTIONS = {
    "population": "--population",
    "covariance": "--covariance",
    "criterion": "--criterion",
    "method": "--method",
    "num_components": "--components",
    "fixed": "--fixed",
}
EXAMPLE = "Simulated example: weekly log sales of 80 shops. Name a FILE for your own data."


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressAnswer:
    """The fit to all rows, and what fits to a part of them predict of the rest.

    `held_out` is None where nothing could be held out; `notes` then says why. `columns` and
    `remarks` say what was read.
    """

    question: RegressQuestion
    analysis: Analysis
    held_out: HeldOut | None
    notes: tuple[str, ...]
    columns: dict[str, str]
    remarks: list[str]

    def table(self) -> dict[str, np.ndarray]:
        """One row for each group."""
        return self.analysis.columns(self.question.level)


def regress(question: RegressQuestion) -> RegressAnswer:
    """Reads, compares by held-out prediction, and fits all rows."""
    table = read_rows(question)
    try:
        analysis = _analyze(question, table)
    except ValueError as error:
        raise ValueError(_in_options(str(error))) from None
    notes = list(analysis.notes)
    held_out = None
    try:
        held_out = compare(analysis.rows, analysis.specification, seed=question.seed)
    except ValueError as error:
        notes.append(f"No held-out comparison: {error}")
    if question.file is None:
        notes.insert(0, EXAMPLE)
    return RegressAnswer(
        question=question,
        analysis=analysis,
        held_out=held_out,
        notes=tuple(notes),
        columns={} if question.file is None else table.said(),
        remarks=[] if question.file is None else table.remarks(question.columns),
    )


def _analyze(question: RegressQuestion, table: Table) -> Analysis:
    owner = "regress" if question.file is None else table.source
    name = "sales" if question.file is None else str(question.target)
    target = table.columns[name]
    family = family_of(question, target)
    used = (name, question.exposure)
    specification = Specification(
        owner=owner,
        family="binomial" if family == "multinomial" else family,
        **picked(question, "population", "covariance", "criterion", "method"),
        **picked(question, "num_components", "seed"),
    )
    return analyze(
        {each: values for each, values in table.columns.items() if each not in used},
        target if family in ("gaussian", "poisson") else whole_classes(target),
        table.key,
        specification=specification,
        fixed=list(question.fixed) if question.file is not None else ["holiday"],
        center=question.center,
        strict=question.strict,
        target_name=f"target {question.target!r}",
        exposure=None if question.exposure is None else table.columns[question.exposure],
    )


def _in_options(message: str) -> str:
    """A refusal of a fit in the words of the command: `regress: --criterion must be ...`."""
    names = "|".join(_OPTIONS)
    return re.sub(
        rf"^.*?: ({names}) must be ",
        lambda found: f"regress: {_OPTIONS[found[1]]} must be ",
        message,
    )


def family_of(question: RegressQuestion, target: np.ma.MaskedArray) -> Family:
    """As asked; else words and numbers that are all 0 or 1 are classes, other numbers are not."""
    asked = question.asked_family()
    cells = target.compressed()
    numbers = cells.dtype.kind in "bf"
    distinct = len(set(cells.tolist()))
    column = f"column {question.target!r}"
    if asked is None:
        if numbers and not np.isin(cells, (0.0, 1.0)).all():
            return "gaussian"
        return "binomial" if distinct <= 2 else "multinomial"
    fits = asked not in ("gaussian", "poisson") or numbers
    rule = f"binomial or multinomial for the words in {column}"
    check.require(fits, "regress", "--family", rule, asked)
    fits = asked != "binomial" or distinct <= 2
    rule = f"multinomial or gaussian for the {distinct} values in {column}"
    check.require(fits, "regress", "--family", rule, asked)
    return asked


def whole_classes(target: np.ma.MaskedArray) -> np.ma.MaskedArray:
    """Whole numbers as such: the class 1 of a CSV file is not called 1.0."""
    if target.dtype.kind != "f":
        return target
    missing = np.ma.getmaskarray(target)
    numbers = np.where(missing, 0.0, target.data)
    whole = bool((np.abs(numbers) < 2**53).all() and (numbers == np.rint(numbers)).all())
    return np.ma.MaskedArray(numbers.astype(np.int64), missing) if whole else target


def summary(answer: RegressAnswer) -> dict[str, Any]:
    """What `--json` prints; None stands for numbers that are not known."""
    question = answer.question
    found = summary_of(answer.analysis, question.level, answer.held_out, seed=question.seed)
    return {**found, "columns": answer.columns, "notes": list(answer.notes)}


def document(answer: RegressAnswer) -> dict[str, Any]:
    """What `--json` prints, with what a page of the answer needs beside it."""
    question, found, held = answer.question, answer.analysis, answer.held_out
    more = page_keys(found, held, seed=question.seed)
    return answers.document(
        "regress",
        summary(answer),
        question,
        source="shops, the simulated example" if question.file is None else question.source,
        labels=1,
        asked=asked(question),
        **more,
    )


def asked(question: RegressQuestion) -> dict[str, Any]:
    """What is explained, by which groups, in the words of the table."""
    if question.file is None:
        return {"group": ["shop"], "of": "sales"}
    return {"group": list(question.group), "of": question.target}
