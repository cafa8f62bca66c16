"""The result of each way to estimate rates: a table of pairs, a population, expected errors."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate import regressed
from fedprior.estimation.conjugate.fit import by_likelihood
from fedprior.estimation.conjugate.likelihood import Tally
from fedprior.estimation.conjugate.model import (
    MANY,
    ConjugateModel,
    ExpectedErrors,
    RateTable,
    average,
    errors_of,
    fit_model,
    law_of,
    population_of,
    raw_error,
    step_limit,
    table_of,
)
from fedprior.estimation.conjugate.posterior import moments
from fedprior.estimation.conjugate.robust import robust_bounds
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.nonparametric.counts import count_rows
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.shapes.answer import borrowed, shape_answer, shape_population, unborrowed
from fedprior.estimation.statistics import Pairs

_FEW = 10  # successes or failures of all groups together


@dataclass(frozen=True, kw_only=True, eq=False)
class RateAnswer:
    """The result of `estimate_rates`, with one row per pair."""

    table: RateTable
    population: FittedPopulation
    errors: ExpectedErrors
    notes: tuple[str, ...] = ()
    checks: dict[str, str] = field(default_factory=dict)

    def with_notes(self, *notes: str | None) -> "RateAnswer":
        return replace(self, notes=(*self.notes, *(note for note in notes if note)))


def conjugate_answer(
    model: ConjugateModel, pairs: Pairs, data: Tally, *, level: float, above: float | None
) -> RateAnswer:
    """Posterior means under the conjugate population, fitted or known.

    Where they average over populations, the steps from the raw rates are limited. If there are
    only a few successes (or failures) in all, nothing shows whether the rates differ, and the
    intervals contain that of one common rate.
    """
    table = table_of(model, pairs, level=level, above=above)
    if model.fitted_by == "integrated":
        table = table.part_of_the_way(pairs, step_limit([table], [pairs]))
    if model.fitted_by != "known" and min(data.total_successes, data.total_failures) < _FEW:
        table = table.containing(*_common_interval(data, level))
    errors = errors_of(model, pairs, data, table.variance)
    return RateAnswer(table=table, population=population_of(model, data), errors=errors)


def _common_interval(data: Tally, level: float) -> tuple[float, float]:
    """The interval of one common rate, with Jeffreys' prior; it ends at a bound without events."""
    family = data.family
    shapes = family.posterior_of_common(data.total_successes, data.total_size)
    lower, upper = (float(family.quantile(shapes, (1 + side * level) / 2)) for side in (-1, 1))
    return lower if data.total_successes else 0.0, upper if data.total_failures else family.top


def point_answer(pairs: Pairs, data: Tally, *, level: float, above: float | None) -> RateAnswer:
    """One common rate for all groups; errors and intervals still allow the rates to differ."""
    model = fit_model(data, fit="likelihood")
    answer = conjugate_answer(model, pairs, data, level=level, above=above)
    return common_answer(answer, model, pairs, data)


def regressed_answer(
    pairs: Pairs,
    data: Tally,
    *,
    covariates: Covariates | None,
    by_size: bool,
    point: bool,
    level: float,
    above: float | None,
) -> RateAnswer:
    """Posterior means under a population that depends on covariates, on size, or on both.

    With `point`, estimates are the regression itself; the intervals still allow for differences.
    """
    what = "covariates need" if covariates is not None else "by_size needs"
    sentence = f"{what} outcomes that are not all equal."
    check.expect(not data.is_constant, data.family.owner, sentence)
    start = by_likelihood(data)
    asked: dict[str, Any] = {"covariates": covariates, "by_size": by_size}
    asked["few"] = data.num_informative < MANY
    found = regressed.regress(pairs, start, **asked)
    table = table_of(found.model, pairs, level=level, above=above)
    share = np.nan
    if covariates is not None and not point:
        share = regressed.explained(found, pairs, data, start)
    described, mean, variance = found, table.personal, table.variance
    if point:
        described = regressed.regress(pairs, start, point=True, **asked)
        nothing = np.zeros(len(pairs.n))
        own = variance + (mean - described.means) ** 2
        table = table.around(described.means, variance=own, weight=nothing)
    answer = RateAnswer(
        table=table,
        population=regressed.regressed_population(
            described, pairs, level=level, r_squared=share, point=point
        ),
        errors=ExpectedErrors(
            personal=average(pairs, table.variance),
            raw=raw_error(pairs, mean, variance),
            pooled=average(pairs, variance + (mean - data.common_mean()[0]) ** 2),
        ),
    )
    reason = ", since differences cannot be ruled out"
    return answer.with_notes(
        borrowed(data.family.population, "regression's", reason) if point else None
    )


def common_answer(
    answer: RateAnswer, model: ConjugateModel, pairs: Pairs, data: Tally
) -> RateAnswer:
    """One rate for all groups; the intervals still allow for differences between groups."""
    rate, _ = data.common_mean()
    row = np.full(len(pairs.n), rate)
    posterior = moments(model.grid, pairs.n, pairs.successes)
    variance = posterior.variance + (posterior.mean - row) ** 2
    common = replace(
        answer,
        table=answer.table.around(row, variance=variance, weight=0 * row),
        population=point_population(data),
        errors=replace(answer.errors, personal=average(pairs, variance)),
    )
    reason = ", since differences cannot be ruled out"
    return common.with_notes(borrowed(data.family.population, "common", reason))


def point_population(data: Tally) -> FittedPopulation:
    """All groups have one rate."""
    rate, variance = data.common_mean()
    return FittedPopulation(
        kind="point",
        fitted_by="likelihood",
        mean=rate,
        heterogeneity=0.0,
        parameters={"mean": rate},
        standard_errors={"mean": float(np.sqrt(variance))},
    )


def shaped_answer(
    answer: RateAnswer, pairs: Pairs, name: str, *, level: float, above: float | None
) -> RateAnswer:
    """Posterior means under a population of another shape, with intervals of its own if it can."""
    rows = count_rows(pairs)
    found = shape_answer(rows, name, level=level, threshold=above)
    table = answer.table
    if found.lower is not None and found.upper is not None:
        table = replace(table, lower=found.lower, upper=found.upper, above=found.above)
    reshaped = replace(
        answer,
        table=table.around(found.personal, variance=found.variance, weight=found.weight),
        population=shape_population(rows, name, found.atoms),
        errors=ExpectedErrors(personal=found.error, raw=found.raw_error, pooled=found.pooled_error),
    )
    return reshaped.with_notes(*found.notes)


def robust_answer(
    answer: RateAnswer, model: ConjugateModel, pairs: Pairs, *, level: float
) -> RateAnswer:
    """Intervals that cover on average for any population of the fitted moments (`robust`).

    The moments come from the grid: their variance is above 0 even if the fitted population is a
    point.
    """
    held = pairs.n > 0
    law, n = law_of(model.grid), pairs.divisor
    lower, upper = robust_bounds(n, pairs.successes, law, level=level)
    table = replace(
        answer.table,
        lower=np.where(held, lower, answer.table.lower),
        upper=np.where(held, upper, answer.table.upper),
    )
    notes = unborrowed(answer.notes)
    widened = replace(answer, table=table.around(table.personal), notes=notes)
    return widened.with_notes(
        "Robust intervals cover on average over groups for any population with the fitted mean and "
        "variance; where that costs more than it gains, they are those of each group alone."
    )
