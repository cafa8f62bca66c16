"""From a question to estimates, and estimates as a table on disk."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.core import check
from fedprior.core.files import write_atomically
from fedprior.core.plain import picked, plain
from fedprior.data.aggregate import Groups, aggregate
from fedprior.data.cells import MISSING
from fedprior.data.writing import write_table, writing
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Counts, Events, Means, Repeats, Shares
from fedprior.reporting import answers
from fedprior.reporting.question import COLUMNS, Question

if TYPE_CHECKING:
    from fedprior.privacy.ledger import Ledger

SHOWN = 5  # groups that moved most, and groups that moved least


@contextmanager
def open_groups(question: Question) -> Iterator[Groups]:
    """The groups of the question's file or of the embedded table; at least two of them."""
    if question.file is None:
        yield _embedded()
        return
    missing = MISSING if question.missing is None else question.missing
    if question.category is not None:
        from fedprior.data.categories import count_categories

        with count_categories(
            question.file,
            category=question.category,
            **picked(question, "group", "strict"),
            missing=missing,
        ) as groups:
            yield groups
        return
    names = (*COLUMNS, "group", "covariates", "strict")
    with aggregate(question.file, **picked(question, *names), missing=missing) as groups:
        if question.structure is None:
            _check_number(groups, question)
            _check_identified(groups, question)
        yield groups


def _check_number(groups: Groups, question: Question) -> None:
    """Two groups with data make a population; private reports of means take three."""
    number = int((groups.n > 0).sum())
    least = 3 if question.private and question.kind == "means" else 2
    rule = f"at least {least}" + ", with trials" * (question.trials is not None)
    rule += ", with an exposure above 0" * (question.exposure is not None)
    named = " and ".join(map(repr, question.group))
    remedy = f"A population is learned from many groups; column {named} names {number}."
    check.require(number >= least, question.source, "number of groups", rule, number, remedy)


def _check_identified(groups: Groups, question: Question) -> None:
    """How much groups of one row differ cannot be told from chance, but for a known variance."""
    if question.kind == "rates" and question.population != "point" and int(groups.n.max()) < 2:
        common = "" if question.private else ", or take one common rate (--population point)"
        raise ValueError(
            f"{question.source}: groups must be of 2 trials or more, at least some, got all of one "
            "trial. How much rates differ cannot be told from chance with one trial a group: give "
            f"more rows of some groups{common}."
        )
    known = question.stderr is not None or question.noise_scale is not None
    if question.kind == "means" and not known and int(groups.n.max()) < 2:
        raise ValueError(
            f"{question.source}: groups must be of more than one row, or of known variance, got "
            "all of one row. How much they differ cannot be identified: give more rows of some "
            "groups, a standard error for each (--stderr), or that of one value (--noise-sd)."
        )


def estimate(groups: Groups, question: Question, ledger: "Ledger | None" = None) -> Estimates:
    """The model that the question asks for, on the groups' sums; what was dropped is noted."""
    found = _privately(groups, question, ledger) if question.private else _openly(groups, question)
    if question.file is None and not question.private:
        found = _judged(found)
    if question.private:  # how many rows were dropped is no function of the private reports
        return found
    return dataclasses.replace(found, notes=(*groups.notes, *found.notes))


def _shares(groups: Groups, question: Question) -> Estimates:
    """The shares of all categories, one row for each group and category."""
    from fedprior.estimation.conjugate.shares import estimate_shares

    kinds = list(dict.fromkeys(np.asarray(groups.categories).tolist()))
    counts = np.asarray(groups.successes).reshape(-1, len(kinds))
    found = estimate_shares(Shares(counts=counts), level=question.level)
    names = {f"mean_{number + 1}": f"share of {kind}" for number, kind in enumerate(kinds)}

    def named(values: dict[str, float]) -> dict[str, float]:
        return {names.get(name, name): value for name, value in values.items()}

    population = found.population
    return dataclasses.replace(
        found,
        n=groups.n,
        weight=np.repeat(found.weight, len(kinds)),
        population=dataclasses.replace(
            population,
            parameters=named(population.parameters),
            standard_errors=named(population.standard_errors),
        ),
        **{
            name: getattr(found, name).ravel()
            for name in ("raw", "personal", "scale", "lower", "upper")
        },
    )


def _openly(groups: Groups, question: Question) -> Estimates:
    if question.structure is not None:
        from fedprior.reporting.levels import estimate_levels

        return estimate_levels(groups, question)
    if question.kind == "shares":
        return _shares(groups, question)
    options = {**question.options, "covariates": _covariates(groups, question)}
    if question.kind == "events":
        from fedprior.estimation.conjugate.estimate import estimate_events

        return estimate_events(_events(groups), **options)
    if question.kind == "rates":
        from fedprior.estimation.conjugate.estimate import estimate_rates

        return estimate_rates(_counts(groups), **options)
    from fedprior.estimation.gaussian.estimate import estimate_means

    return estimate_means(_means(groups), leave_one_out=question.leave_one_out, **options)


def _privately(groups: Groups, question: Question, ledger: "Ledger | None") -> Estimates:
    options = {**picked(question, "epsilon", "seed", "level"), "ledger": ledger}
    if question.kind == "rates":
        from fedprior.estimation.private.rates import estimate_rates_privately

        options["scheme"] = question.scheme or "auto"
        return estimate_rates_privately(_counts(groups), **options)
    if question.kind == "events":
        from fedprior.estimation.private.events import estimate_events_privately

        options |= {"scheme": question.scheme or "auto", "high": question.high}
        return estimate_events_privately(_events(groups), **options)
    from fedprior.estimation.private.means import estimate_means_privately

    options |= {**picked(question, "low", "high", "allow_delta"), "delta": question.delta or 0.0}
    if question.noise_scale is not None:
        options["noise_variance"] = question.noise_scale**2
    return estimate_means_privately(_means(groups), **options)


def _covariates(groups: Groups, question: Question) -> Covariates | None:
    """The covariates of the groups, words as indicators."""
    if not question.covariates:
        return None
    from fedprior.estimation.covariate_rows import covariate_reader

    reader = covariate_reader(question.source, groups.covariates)
    values = reader.encode(groups.covariates, len(groups.n), lenient=False)
    return Covariates(names=reader.names, values=values)


def _counts(groups: Groups) -> Counts:
    successes = np.asarray(groups.successes)
    return Counts(n=groups.n, successes=successes, repeats=_repeats(groups))


def _events(groups: Groups) -> Events:
    events = np.asarray(groups.successes)
    return Events(exposure=groups.n, events=events, repeats=_repeats(groups))


def _repeats(groups: Groups) -> Repeats | None:
    if groups.repeats is None or groups.squares is None or groups.inverses is None:
        return None
    return Repeats(groups.repeats, groups.squares, groups.inverses)


def _means(groups: Groups) -> Means:
    mean = np.asarray(groups.mean)
    return Means(n=groups.n, mean=mean, within=groups.within, variance=groups.variance)


def changed(estimates: Estimates) -> tuple[np.ndarray, np.ndarray]:
    """Places of the groups that moved most, and of those that moved least, |personal - raw|.

    Groups without data have not moved; with at most twice `SHOWN` groups, all are in the first.
    """
    there = np.flatnonzero(estimates.n > 0)
    moved = np.abs(estimates.personal[there] - estimates.raw[there])
    if len(there) <= 2 * SHOWN:
        return there[np.argsort(-moved, kind="stable")], np.empty(0, int)
    return there[_smallest(-moved, SHOWN)], there[_smallest(moved, SHOWN)]


def _smallest(values: np.ndarray, number: int) -> np.ndarray:
    """Places of the smallest values in order, ties by place, without sorting them all."""
    limit = np.partition(values, number - 1)[number - 1]
    below = np.flatnonzero(values < limit)
    tied = np.flatnonzero(values == limit)[: number - len(below)]
    return np.concatenate([below[np.argsort(values[below], kind="stable")], tied])


def level_rows(question: Question, groups: Groups, estimates: Estimates) -> dict[str, np.ndarray]:
    """One row for every group of every level."""
    from fedprior.estimation.levels.table import level_table
    from fedprior.reporting.levels import level_keys

    return level_table(estimates, level_keys(groups, question))


def table(question: Question, groups: Groups, estimates: Estimates) -> dict[str, np.ndarray] | None:
    """The rows that `--out` writes, with names; None if no group may be shown."""
    if estimates.levels is not None:
        return level_rows(question, groups, estimates)
    if not question.shows_groups:
        return None
    names: dict[str, Any] = {"group": groups.names()}
    if groups.categories is not None and groups.labels is not None:
        names = {"group": groups.labels, "category": groups.categories}
    return {name: np.asarray(each, object) for name, each in names.items()} | estimates.columns()


def document(
    question: Question, groups: Groups, estimates: Estimates, found: dict[str, Any]
) -> dict[str, Any]:
    """What `--json` prints, with what a page of the answer needs beside it."""
    labels = 1 + (len(question.group) if question.structure is not None else 0)
    labels += groups.categories is not None
    errors = {}
    if estimates.meta is not None and question.shows_groups:
        errors["study_errors"] = estimates.meta.study_errors
    return answers.document(
        "estimate",
        {name: each for name, each in found.items() if name != "out"},
        question,
        source="baseball, the embedded table" if question.file is None else question.source,
        labels=labels if question.shows_groups else 0,
        kind=question.kind,
        asked=question.asked,
        **errors,
    )


def write_population(estimates: Estimates, path: Path, found: dict[str, Any]) -> None:
    """The population alone: a table of one row, or all of the summary, `found`, as JSON."""
    with writing(path, "--out", owner="estimate"):
        if path.suffix == ".json":
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps(found, indent=2) + "\n").encode())
        else:
            write_table(_population_row(estimates), path, owner="estimate")


def _population_row(estimates: Estimates) -> dict[str, np.ndarray]:
    population, guarantee = estimates.population, estimates.guarantee
    row: dict[str, Any] = {
        "num_groups": estimates.num_groups,
        "kind": population.kind,
        "fitted_by": population.fitted_by,
        "mean": float(np.mean(population.mean)),
        "heterogeneity": population.heterogeneity,
    }
    for name, value in population.parameters.items():
        row.setdefault(name, value)
    row |= {f"{name}_se": error for name, error in population.standard_errors.items()}
    if guarantee is not None:
        row |= {"epsilon": guarantee.epsilon, "delta": guarantee.delta, "noise": guarantee.noise}
    kinds = {name: object if isinstance(value, str) else None for name, value in row.items()}
    return {name: np.array([value], kinds[name]) for name, value in row.items()}


def summary(estimates: Estimates) -> dict[str, Any]:
    """The summary with None in place of numbers that JSON has no word for."""
    return plain(estimates.summary())


def _embedded() -> Groups:
    from fedprior.data.baseball import baseball

    table = baseball()
    rows, labels = len(table.player), table.player.astype(object)
    return Groups(n=table.at_bats, successes=table.hits, rows=rows, labels=labels)


def _judged(estimates: Estimates) -> Estimates:
    """Baseball alone knows the answer: the rest of the season."""
    from fedprior.data.baseball import baseball

    truth = baseball().remaining_average
    raw, personal = (
        float(((each - truth) ** 2).sum()) for each in (estimates.raw, estimates.personal)
    )
    note = (
        f"Against the rest of the season, the total squared error is {personal:.4f}, that of the "
        f"raw averages {raw:.4f}."
    )
    return dataclasses.replace(estimates, notes=(*estimates.notes, note))
