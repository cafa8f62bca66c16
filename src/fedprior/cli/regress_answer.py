"""What `fedprior regress` prints and writes."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.table import Table

from fedprior.cli.bars import Bar, add_bars
from fedprior.cli.columns import lines_of_facts, named_table
from fedprior.cli.progress import Watcher
from fedprior.cli.screen import Screen, rows_read
from fedprior.data.writing import write_table
from fedprior.regression import summary
from fedprior.regression.face.analysis import Analysis
from fedprior.regression.face.holdout import HeldOut
from fedprior.regression.page import METRICS
from fedprior.reporting import answers
from fedprior.reporting import regression as reporting
from fedprior.reporting.regress_question import RegressQuestion
from fedprior.reporting.regression import RegressAnswer

_BESIDE = 3  # coefficients up to which correlations fit beside them
_MOST_CORRELATIONS = 10  # coefficients up to which they fit into a table of their own
_Form = tuple[Any, Callable[[Any], None]]  # regress, summary and document; what prints
_SCALES = {"gaussian": "", "poisson": " of the log rate"}


def answer(question: RegressQuestion, watcher: Watcher, *, as_json: bool) -> None:
    """Read, fit, write the files that are asked for, print; files come last and whole."""
    form, show = (reporting, _print) if question.structure is None else _levels()
    with watcher.busy("fitting"):
        found = form.regress(question)
    _save(question, found, lambda: form.document(found))
    for remark in found.remarks:
        watcher.say(remark)
    if as_json:
        more = {} if question.out is None else {"out": str(question.out)}
        typer.echo(json.dumps(form.summary(found) | more))
    else:
        show(found)
    watcher.written(question.out, question.plot, question.report)


def _levels() -> _Form:
    from fedprior.cli.regress_levels import show
    from fedprior.reporting import regress_levels

    return regress_levels, show


def _save(question: RegressQuestion, found: Any, document: Callable[[], dict[str, Any]]) -> None:
    rows = cache(found.table)

    def write(path: Path) -> None:
        write_table(rows(), path, owner="regress")

    def draw(path: Path) -> Path:
        from fedprior.reporting.regression_plot import draw_coefficients

        return draw_coefficients(found.analysis, path)

    answers.save(question, document, rows, write=write, draw=draw)


def _print(answer: RegressAnswer) -> None:
    screen, found, level = Screen(), answer.analysis, answer.question.level
    screen.facts(_head(found))
    bars = _bars(found, level)
    screen.table(add_bars(_coefficients(found, level), screen.console, bars, about_zero=True))
    if _BESIDE < len(found.names) <= _MOST_CORRELATIONS and _has_correlations(found):
        screen.table(_correlations(found))
    if len(found.fit.population.components) > 1:
        screen.table(_components(found))
    screen.facts(_variances(found))
    if answer.held_out is not None:
        screen.table(_held_out(answer.held_out))
        screen.say(answer.held_out.sentence(answer.question.seed))
    screen.notes(answer.notes)


def _has_correlations(found: Analysis) -> bool:
    covariance = found.fit.population.covariance
    return bool((covariance != np.diag(np.diag(covariance))).any())


def _head(found: Analysis) -> Table:
    lines, fit, specification = lines_of_facts(), found.fit, found.specification
    rows = rows_read(found.rows.num_rows, found.num_dropped)
    lines.add_row("groups", f"{len(found.levels):,}, {rows}")
    classes = ""
    if found.classes is not None:
        names = [str(each) for each in found.classes.tolist()]
        classes = f": {', '.join(names[1:])} against {names[0]}"
    lines.add_row("family", f"{fit.family}{classes}")
    how = f"{found.covariance} covariance, "
    how = "" if fit.population.kind == "discrete" else how
    way = "as in the paper" if specification.method == "paper" else specification.criterion.upper()
    lines.add_row("population", f"{fit.population.kind} ({how}{way})")
    return lines


def _coefficients(found: Analysis, level: float) -> Table:
    """Mean, its interval and spread of each coefficient, then the fixed ones."""
    population, names = found.fit.population, found.names
    deviation, errors = summary.deviations(found)
    correlation = summary.correlations(population.covariance)
    shown = range(len(names) - 1 if len(names) <= _BESIDE and _has_correlations(found) else 0)
    heads = [f"corr\n{names[j]}" for j in shown]
    title = f"Coefficients, {100 * level:g}% intervals of the means"
    limits = population.limits(level)
    title = "Coefficients" if limits is None else title
    ends = [] if limits is None else ["lower", "upper"]
    table = named_table(title, "", "mean", "error", *ends, "sd between", "error", *heads)
    means = population.mean_errors

    def interval(place: int) -> list[str]:
        return [] if limits is None else [_number(each[place]) for each in limits]

    for row, name in enumerate(names):
        own = "" if means is None else _number(means[row])
        beside = [_correlation(correlation[row, j]) if j < row else "" for j in shown]
        spread = (_number(deviation[row]), _number(errors[row]))
        mean = _number(population.mean[row])
        table.add_row(name, mean, own, *interval(row), *spread, *beside)
    for row, name in enumerate(found.fixed_names):
        own = "" if population.fixed_errors is None else _number(population.fixed_errors[row])
        value, ends = _number(population.fixed[row]), interval(len(names) + row)
        table.add_row(name, value, own, *ends, "fixed", "", *([""] * len(heads)))
    return table


def _bars(found: Analysis, level: float) -> list[Bar | None]:
    """The intervals of the means, the fixed coefficients' after them."""
    population = found.fit.population
    limits = population.limits(level)
    middle = np.concatenate([population.mean, population.fixed])
    if limits is None:
        return [None] * len(middle)
    return [Bar(*map(float, each)) for each in zip(limits[0], middle, limits[1], strict=True)]


def _correlations(found: Analysis) -> Table:
    """Of more coefficients than have room beside their means; columns are numbered as rows are."""
    names = found.names
    correlation = summary.correlations(found.fit.population.covariance)
    numbers = range(len(names) - 1)
    table = named_table("Correlations between groups", "", *(str(j + 1) for j in numbers))
    for row, name in enumerate(names):
        cells = (_correlation(correlation[row, j]) if j < row else "" for j in numbers)
        table.add_row(f"{row + 1} {name}", *cells)
    return table


def _components(found: Analysis) -> Table:
    names = found.names
    table = named_table("Kinds of groups", "", "share", *names)
    for number, each in enumerate(found.fit.population.components):
        spread = np.sqrt(np.diag(each.covariance))
        cells = [
            _number(mean) + (f" ({_number(sd)})" if sd > 0 else "")
            for mean, sd in zip(each.mean, spread, strict=True)
        ]
        table.add_row(f"component {number}", f"{each.share:.3f}", *cells)
    return table


def _variances(found: Analysis) -> Table:
    lines, population = lines_of_facts(), found.fit.population
    if population.noise_variance is not None:
        deviation = math.sqrt(population.noise_variance)
        error = population.noise_error
        doubt = "" if error is None else f" ± {_number(error / (2 * deviation))}"
        lines.add_row("noise", f"sd {_number(deviation)}{doubt}")
    if found.dispersion is not None:
        spread = found.dispersion
        text = f"Pearson {spread.statistic:.1f} on {spread.degrees:.1f} degrees of freedom"
        lines.add_row("dispersion", f"{text} (ratio {spread.ratio:.2f})")
    scale = _SCALES.get(found.fit.family, " of the log odds")
    share = f"{100 * found.share_between:.1f}% of the variance{scale} at the mean row"
    lines.add_row("between groups", share)
    likelihood = found.fit.log_likelihood
    if likelihood is not None:
        word = "restricted " if found.fit.criterion == "reml" else ""
        lines.add_row(f"{word}log-likelihood", f"{likelihood:.2f}")
    return lines


def _held_out(held: HeldOut) -> Table:
    table = named_table(
        "Held-out prediction", "", METRICS[held.metric], "personal is lower by", "95%"
    )
    table.add_row("personal", f"{held.personal:.4g}", "", "")
    for name, error, gain, (low, high) in (
        ("separate", held.separate, held.gain_over_separate, held.interval_over_separate),
        ("pooled", held.pooled, held.gain_over_pooled, held.interval_over_pooled),
    ):
        ends = f"{low:z.1f} to {high:z.1f}%" if math.isfinite(low) else ""
        table.add_row(name, f"{error:.4g}", f"{gain:z.1f}%" if math.isfinite(gain) else "", ends)
    return table


def _number(value: Any) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.4g}"


def _correlation(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else ""
