"""`fedprior regress --nested` and `--crossed`: effects of several columns of groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.plain import picked, plain
from fedprior.estimation.group_levels import GroupLevels
from fedprior.estimation.groups import factorize
from fedprior.estimation.levels.table import level_table
from fedprior.regression.summary import FORMAT
from fedprior.reporting import answers
from fedprior.reporting.regress_question import RegressQuestion
from fedprior.reporting.regress_table import read_rows
from fedprior.reporting.regression import asked, family_of, whole_classes


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelsAnswer:
    """The fitted model, the two classes of the target if it has some, and what was read."""

    question: RegressQuestion
    model: GroupLevels
    num_rows: int
    classes: tuple[str, ...] | None
    columns: dict[str, str]
    remarks: list[str]

    def table(self) -> dict[str, np.ndarray]:
        """One row for each group of each level."""
        return level_table(self.model.estimates_, self.model.keys_)


def regress(question: RegressQuestion) -> LevelsAnswer:
    """Reads the file and fits all rows."""
    table = read_rows(question)
    target = table.columns[str(question.target)]
    family = family_of(question, target)
    rule = "gaussian, binomial or poisson"
    name = f"--family with --{question.structure}"
    check.require(family != "multinomial", "regress", name, rule, family)
    y, classes = (target, None) if family != "binomial" else _outcomes(question, target)
    model = GroupLevels(
        family=family,
        structure=str(question.structure),
        **picked(question, "criterion", "level", "strict"),
    )
    model._called = table.source
    exposure = None if question.exposure is None else table.columns[question.exposure]
    fixed = {name: table.columns[name] for name in question.fixed}
    model.fit(y, _labels(question, table.key), exposure=exposure, fixed=fixed or None)
    return LevelsAnswer(
        question=question,
        model=model,
        num_rows=len(target) - model.num_dropped_,
        classes=classes,
        columns=table.said(),
        remarks=table.remarks(question.columns),
    )


def _outcomes(
    question: RegressQuestion, target: np.ma.MaskedArray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """0 for the first class, 1 for the second, NaN where it is missing."""
    name = f"target {question.target!r}"
    factor = factorize("regress", name, whole_classes(target))
    number = len(factor.levels)
    check.require(number == 2, "regress", f"number of classes in {name}", "2", number)
    classes = tuple(str(each) for each in factor.levels.tolist())
    return np.where(factor.place < 0, np.nan, factor.place), classes


def _labels(question: RegressQuestion, key: Any) -> dict[str, list[Any]]:
    """The labels of each column, from keys of all (`cells.key`)."""
    missing = np.ma.getmaskarray(key)
    none = (None,) * len(question.group)
    parts = [
        none if gone else tuple(part.replace("//", "/") for part in str(name).split(" / "))
        for name, gone in zip(np.ma.getdata(key).tolist(), missing, strict=True)
    ]
    return dict(zip(question.group, map(list, zip(*parts, strict=True)), strict=True))


def summary(answer: LevelsAnswer) -> dict[str, Any]:
    """What `--json` prints; None stands for numbers that are not known."""
    levels = answer.model.levels_
    return {
        "format": FORMAT,
        "family": levels.family,
        "groups": len(answer.model.estimates_.n),
        "rows": answer.num_rows,
        "dropped": answer.model.num_dropped_,
        "classes": None if answer.classes is None else list(answer.classes),
        "level": answer.question.level,
        **plain(levels.summary()),
        "columns": answer.columns,
        "notes": list(answer.model.notes_),
    }


def document(answer: LevelsAnswer) -> dict[str, Any]:
    """What `--json` prints, with what a page of the answer needs beside it."""
    question = answer.question
    return answers.document(
        "regress",
        summary(answer),
        question,
        source=question.source,
        labels=1 + len(question.group),
        kind=answer.model._kind,
        size_name=answer.model.estimates_.size_name,
        num_groups=len(answer.model.estimates_.n),
        asked=asked(question),
    )
