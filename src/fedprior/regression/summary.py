"""A fitted regression as JSON has it: what `fedprior regress --json` prints, and its page needs."""

import math
from typing import Any

import numpy as np

from fedprior.core.plain import plain
from fedprior.regression.face.analysis import Analysis
from fedprior.regression.face.holdout import HeldOut

FORMAT = 1
_MOST_APART = 2_000  # groups whose separate fits are in a page


def summary_of(
    found: Analysis, level: float, held: HeldOut | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """The population, the noise and what was held out; None stands for what is not known."""
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
        "level": level,
        "population": _population(found, level),
        "fixed": _fixed(found, level),
        "noise": _noise(found),
        "dispersion": None if found.dispersion is None else plain(found.dispersion._asdict()),
        "share_between": plain(found.share_between),
        "log_likelihood": plain(fit.log_likelihood),
        "held_out": None if held is None else _held_out(held, seed),
    }


def page_keys(found: Analysis, held: HeldOut | None, *, seed: int = 0) -> dict[str, Any]:
    """What a page shows beyond the summary: curves of held-out rows, and separate fits."""
    more: dict[str, Any] = {}
    if held is not None:
        more = {"sentence": held.sentence(seed), "held_out_curves": held.curves}
    if len(found.levels) <= _MOST_APART:
        more["separate"] = dict(zip(found.names, found.separate().T, strict=True))
    return plain(more)


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
