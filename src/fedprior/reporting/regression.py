"""From a question to personal regressions, their summary, and their table on disk."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.reader import Table
from fedprior.regression.face.analysis import Analysis, analyze
from fedprior.regression.face.holdout import HeldOut, compare
from fedprior.regression.face.specification import Specification
from fedprior.regression.result import Family
from fedprior.reporting import answers
from fedprior.reporting.outputs import plain
from fedprior.reporting.regress_question import RegressQuestion
from fedprior.reporting.regress_table import read_rows

FORMAT = 1
_MOST_APART = 2_000  # groups whose separate fits are in the page
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
        population=question.population,
        covariance=question.covariance,
        criterion=question.criterion,
        method=question.method,
        num_components=question.num_components,
        seed=question.seed,
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


def deviations(analysis: Analysis) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of theta between groups, and their standard errors (NaN: unknown)."""
    population = analysis.fit.population
    deviation = np.sqrt(np.diag(population.covariance))
    errors = np.full(len(deviation), np.nan)
    if population.covariance_errors is not None:
        own = np.diag(population.covariance_errors)
        np.divide(own, 2 * deviation, out=errors, where=deviation > 0)
    return deviation, errors


def correlations(covariance: np.ndarray) -> np.ndarray:
    """NaN where a coefficient has no spread."""
    deviation = np.sqrt(np.diag(covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        return covariance / np.outer(deviation, deviation)


def summary(answer: RegressAnswer) -> dict[str, Any]:
    """What `--json` prints; None stands for numbers that are not known."""
    found, held = answer.analysis, answer.held_out
    fit, specification = found.fit, found.specification
    return {
        "format": FORMAT,
        "family": fit.family,
        "groups": len(found.levels),
        "rows": found.rows.num_rows,
        "dropped": found.num_dropped,
        "classes": None if found.classes is None else [str(one) for one in found.classes.tolist()],
        "criterion": specification.criterion,
        "method": specification.method,
        "level": answer.question.level,
        "population": _population(found, answer.question.level),
        "fixed": _fixed(found, answer.question.level),
        "noise": _noise(found),
        "dispersion": _dispersion(found),
        "share_between": plain(found.share_between),
        "log_likelihood": plain(fit.log_likelihood),
        "held_out": None if held is None else _held_out(held, answer.question.seed),
        "columns": answer.columns,
        "notes": list(answer.notes),
    }


def document(answer: RegressAnswer) -> dict[str, Any]:
    """What `--json` prints, with what a page of the answer needs beside it."""
    question, found, held = answer.question, answer.analysis, answer.held_out
    more: dict[str, Any] = {"asked": asked(question)}
    if held is not None:
        more |= {"sentence": held.sentence(question.seed), "held_out_curves": held.curves}
    if len(found.levels) <= _MOST_APART:
        more["separate"] = dict(zip(found.names, found.separate().T, strict=True))
    return answers.document(
        "regress",
        summary(answer),
        question,
        source=question.file or "shops, the simulated example",
        labels=1,
        **more,
    )


def asked(question: RegressQuestion) -> dict[str, Any]:
    """What is explained, by which groups, in the words of the table."""
    if question.file is None:
        return {"group": ["shop"], "of": "sales"}
    return {"group": list(question.group), "of": question.target}


def _fixed(found: Analysis, level: float) -> dict[str, Any]:
    population = found.fit.population
    valued = _valued(found.fixed_names, population.fixed, population.fixed_errors)
    return _with_limits(valued, found, level, len(found.names))


def _with_limits(
    valued: dict[str, Any], found: Analysis, level: float, start: int
) -> dict[str, Any]:
    """Limits and degrees of freedom of the coefficients beside their errors; None if unknown."""
    population, none = found.fit.population, [None] * (start + len(valued))
    limits, freedom = population.limits(level), population.freedom
    lower, upper = (none, none) if limits is None else (plain(each) for each in limits)
    degrees = none if freedom is None else plain(freedom)
    for place, cell in enumerate(valued.values(), start):
        cell |= {"lower": lower[place], "upper": upper[place], "freedom": degrees[place]}
    return valued


def _population(found: Analysis, level: float) -> dict[str, Any]:
    population, names = found.fit.population, found.names
    mean = _valued(names, population.mean, population.mean_errors)
    return {
        "kind": population.kind,
        "covariance": found.covariance,
        "coefficients": names,
        "mean": _with_limits(mean, found, level, 0),
        "sd": _valued(names, *deviations(found)),
        "correlations": plain(correlations(population.covariance)),
        "components": [
            {
                "share": plain(each.share),
                "mean": dict(zip(names, plain(each.mean), strict=True)),
                "sd": dict(zip(names, plain(np.sqrt(np.diag(each.covariance))), strict=True)),
            }
            for each in population.components
        ],
    }


def _noise(found: Analysis) -> dict[str, Any] | None:
    population = found.fit.population
    if population.noise_variance is None:
        return None
    deviation = math.sqrt(population.noise_variance)
    error = population.noise_error
    return {
        "variance": plain(population.noise_variance),
        "sd": plain(deviation),
        "error": None if error is None else plain(error / (2 * deviation)),  # of the sd
    }


def _dispersion(found: Analysis) -> dict[str, Any] | None:
    """Pearson's statistic of counts, its degrees of freedom, and the chance of a larger one."""
    return None if found.dispersion is None else plain(found.dispersion._asdict())


def _held_out(held: HeldOut, seed: int) -> dict[str, Any]:
    return {
        "metric": held.metric,
        "personal": plain(held.personal),
        "separate": plain(held.separate),
        "pooled": plain(held.pooled),
        "gain_over_separate": plain(held.gain_over_separate),
        "gain_over_pooled": plain(held.gain_over_pooled),
        "interval_over_separate": plain(list(held.interval_over_separate)),
        "interval_over_pooled": plain(list(held.interval_over_pooled)),
        "rows": held.num_rows,
        "groups": held.num_groups,
        "seed": seed,
    }


def _valued(names: list[str], values: Any, errors: Any) -> dict[str, Any]:
    errors = [None] * len(names) if errors is None else plain(errors)
    return {
        name: {"value": value, "error": error}
        for name, value, error in zip(names, plain(values), errors, strict=True)
    }
