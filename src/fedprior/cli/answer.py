"""What `fedprior estimate` prints and writes."""

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.table import Table

from fedprior.cli import regressions
from fedprior.cli.bars import Bar, add_bars
from fedprior.cli.columns import lines_of_facts, named_table
from fedprior.cli.progress import Watcher
from fedprior.cli.screen import Screen, rows_read
from fedprior.data.aggregate import Groups
from fedprior.data.writing import write_table
from fedprior.estimation.page.answer import half_width_decimals
from fedprior.estimation.result import Estimates
from fedprior.reporting import answers
from fedprior.reporting import estimates as reporting
from fedprior.reporting.question import Question

_MOST_PARAMETERS = 20
NOT_PRIVATE = "The groups' own numbers are not private: --release-groups shows them as they are."
PUBLIC_ERRORS = "The standard errors and the groups' sizes count as public."
NO_DELTA = "Rates need no --delta: the guarantee holds with delta = 0."


def answer(question: Question, watcher: Watcher, *, as_json: bool) -> None:
    """Read, estimate, write the files that are asked for, print; files come last and whole."""
    with ExitStack() as stack:
        with watcher.busy("reading"):
            groups = stack.enter_context(reporting.open_groups(question))
        with watcher.busy("estimating"):
            estimates, spent = _estimate(question, groups)
        found = _as_json(question, groups, estimates)
        found |= {} if spent is None else {"ledger": spent}
        _save(question, groups, estimates, found)
        for line in _remarks(question, groups):
            watcher.say(line)
        if as_json:
            typer.echo(json.dumps(found))
        else:
            _print(question, groups, estimates, spent)
    watcher.written(question.out, question.plot, question.report)


def _estimate(question: Question, groups: Groups) -> tuple[Estimates, dict[str, Any] | None]:
    """The estimates and, where they are private, what their ledger says after them."""
    if not question.private:
        return reporting.estimate(groups, question), None
    from fedprior.reporting import charged

    with charged.open_ledger(question, int((groups.n > 0).sum())) as ledger:
        return reporting.estimate(groups, question, ledger=ledger), charged.spent(ledger)


def _remarks(question: Question, groups: Groups) -> list[str]:
    # How many rows were dropped is no function of the private reports.
    read = f"Read {'; '.join(groups.columns.values())}."
    found = [] if question.private else [*[read] * bool(groups.columns), *groups.notes]
    if question.private and question.release_groups:
        found.append(NOT_PRIVATE)
    if question.private and question.stderr is not None:
        found.append(PUBLIC_ERRORS)
    if question.kind in ("rates", "events") and question.delta:
        found.append(NO_DELTA)
    return found


def _save(question: Question, groups: Groups, estimates: Estimates, found: dict[str, Any]) -> None:
    @cache
    def document() -> dict[str, Any]:
        return reporting.document(question, groups, estimates, found)

    def write(path: Path) -> None:
        if estimates.levels is not None:
            write_table(reporting.level_rows(question, groups, estimates), path, owner="estimate")
        elif question.shows_groups:
            groups.write(estimates.columns(), path)
        else:
            reporting.write_population(estimates, path, document())

    def draw(path: Path) -> Path:
        from fedprior.reporting.shrinkage import draw_shrinkage

        return draw_shrinkage(estimates, groups.names, path)

    def rows() -> dict[str, np.ndarray] | None:
        return reporting.table(question, groups, estimates)

    answers.save(question, document, rows, write=write, draw=draw)


def _as_json(question: Question, groups: Groups, estimates: Estimates) -> dict[str, Any]:
    found = reporting.summary(estimates) | {"num_groups": groups.number}
    if not question.private:
        found |= {"rows": groups.rows, "dropped": groups.dropped, "columns": groups.columns}
    if question.out is not None:
        found["out"] = str(question.out)
    return found


def _print(
    question: Question, groups: Groups, estimates: Estimates, spent: dict[str, Any] | None
) -> None:
    screen, lines = Screen(), head(_size(question, groups), estimates)
    if spent is not None:
        from fedprior.reporting.charged import sentence

        lines.add_row("ledger", sentence(spent))
    print_estimates(screen, lines, estimates, said=groups.notes)
    if estimates.meta is not None and estimates.meta.leave_one_out is not None:
        places = np.flatnonzero(estimates.n > 0)
        left_out = estimates.meta.leave_one_out
        screen.table(regressions.leave_one_out_table(left_out, places, groups.names))
    if estimates.levels is not None:
        _print_levels(screen, question, groups, estimates)
    if question.shows_groups:
        print_changed(screen, groups, estimates, *reporting.changed(estimates))


def print_estimates(
    screen: Screen, lines: Table, estimates: Estimates, *, said: Sequence[str] = ()
) -> None:
    """Facts, the sentence, notes that were not `said` on standard error, and a regression."""
    screen.facts(lines)
    screen.say(f"\n{estimates.sentence}")
    screen.notes(note for note in estimates.notes if note not in said)
    if (found := estimates.population.coefficients) is not None:
        screen.table(regressions.coefficients_table(found))
    if estimates.meta is not None:
        screen.console.print()
        screen.facts(regressions.meta_lines(estimates.meta))


def _print_levels(screen: Screen, question: Question, groups: Groups, estimates: Estimates) -> None:
    """The groups in which groups lie, or which cross; the finest are printed by themselves."""
    from fedprior.cli.levels import level_tables
    from fedprior.reporting.levels import level_keys

    assert estimates.levels is not None
    keys, size_name = level_keys(groups, question), estimates.size_name
    for table in level_tables(estimates.levels, keys, size_name, finest=False):
        screen.table(table)


def head(size: str, estimates: Estimates) -> Table:
    """The population of so many groups and what it is good for, a line each."""
    population = estimates.population
    errors = population.standard_errors

    def shown(name: str, value: float) -> str:
        error = f" ± {errors[name]:.3g}" if math.isfinite(errors.get(name, math.nan)) else ""
        return f"{name.replace('_', ' ')} {value:.4g}{error}"

    lines = lines_of_facts()
    lines.add_row("groups", size)
    varies = ", by size" * population.by_size
    varies += ", by covariates" * (population.coefficients is not None)
    law = f"{population.kind} ({population.fitted_by}{varies})"
    lines.add_row("population", law)
    parameters = {"heterogeneity": population.heterogeneity}
    if estimates.levels is None:  # they have a table of their own
        parameters |= population.parameters
    if np.ndim(population.mean) == 0:
        parameters = {"mean": float(population.mean), **parameters}
    for name, value in list(parameters.items())[:_MOST_PARAMETERS]:
        lines.add_row("", shown(name, value))
    if len(parameters) > _MOST_PARAMETERS:
        lines.add_row("", f"and {len(parameters) - _MOST_PARAMETERS} more")
    if population.atoms is not None:
        what = "atoms" if population.spread is None else f"members ({population.member})"
        lines.add_row("", f"{len(population.atoms)} {what}")
    raw, pooled = estimates.gain_over_raw, estimates.gain_over_pooled
    bounds = estimates.gains_are_bounds and not estimates.fell_back
    if math.isfinite(raw):
        label = "gain, at least" if bounds else "expected gain"
        lines.add_row(label, f"{round(raw, 1) + 0.0:.1f}% over raw values")  # no -0.0
    if math.isfinite(pooled):
        lines.add_row("", f"{round(pooled, 1) + 0.0:.1f}% over one common value")
    if estimates.guarantee is not None:
        lines.add_row("privacy", str(estimates.guarantee))
    return lines


def _size(question: Question, groups: Groups) -> str:
    number = f"{groups.number:,}"
    if groups.categories is not None:
        number += f" of {len(groups.n) // groups.number:,} categories"
    if question.private:  # no word on what was dropped
        return number
    trials = f", {int(groups.n.sum()):,} trials" if question.kind == "rates" else ""
    if question.kind == "events":
        events = int(np.asarray(groups.successes).sum())
        trials = (
            f", {events:,} event{'s' * (events != 1)} over an exposure of {groups.n.sum():,.6g}"
        )
    rows = f", {rows_read(groups.rows, groups.dropped)}" if question.file is not None else ""
    return number + (rows if question.outcome is not None else rows + trials)


def print_changed(
    screen: Screen, groups: Groups, estimates: Estimates, most: np.ndarray, least: np.ndarray
) -> None:
    """Tables of the groups that moved most and least, with intervals as bars on one scale."""
    parts = {"Most changed": most, "Least changed": least}
    drawn = (estimates.lower, estimates.personal, estimates.upper, estimates.raw)
    bars = {
        title: [Bar(*(float(each[place]) for each in drawn)) for place in places]
        for title, places in parts.items()
    }
    scale = [bar for each in bars.values() for bar in each]
    for title, places in parts.items():
        if len(places):
            shown = _groups_table(f"{title} groups", groups, estimates, places)
            add_bars(shown, screen.console, bars[title], scale=scale, names=("personal", "raw"))
            screen.table(shown)


def _groups_table(title: str, groups: Groups, estimates: Estimates, places: np.ndarray) -> Table:
    """The groups at `places`, a line each."""
    found = estimates.columns()
    table = named_table(title, "group", *(name.replace("_", "\n") for name in found))
    digits = _digits(estimates)
    fixed = {"n": ",.0f", "exposure": ",.4g", "weight": ".3f", "above": ".3f", "rank": ",.1f"}
    fixed |= {"rank_lower": ",.0f", "rank_upper": ",.0f"}
    for place, name in zip(places, groups.names(places.tolist()), strict=True):
        cells = (format(each[place], fixed.get(key, digits)) for key, each in found.items())
        table.add_row(name, *cells)
    return table


def _digits(estimates: Estimates) -> str:
    """Decimals that show half an interval to two digits; a general format beyond eight."""
    shown = half_width_decimals(float(np.median(estimates.upper - estimates.lower)))
    if shown is None:
        return ".4g"
    return f".{max(0, shown)}f" if shown <= 8 else ".6g"
