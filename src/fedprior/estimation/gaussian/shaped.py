"""Means under populations of other shapes: what these need of the groups."""

from dataclasses import replace

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, RatioProfile
from fedprior.estimation.gaussian.rows import locations
from fedprior.estimation.gaussian.unequal import unequal_noise
from fedprior.estimation.nonparametric.normal import NormalRows, normal_rows
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.shapes.answer import (
    ShapeAnswer,
    shape_answer,
    shape_population,
    unborrowed,
)
from fedprior.estimation.shapes.choice import pick, unpicked
from fedprior.estimation.shapes.lack_of_fit import shape_warning
from fedprior.estimation.statistics import Means


def _rows(statistics: Means, bins: Bins, fitted: RatioProfile) -> NormalRows:
    """The groups' means, with the sampling variances of the fit; infinite without data."""
    variance = np.append(fitted.noise[0] * bins.unit, np.inf)[bins.place]
    mean = np.asarray(statistics.mean, np.float64).reshape(len(variance))
    return normal_rows(mean, variance)


def pick_population(statistics: Means, bins: Bins, fitted: RatioProfile) -> tuple[str, str]:
    """The population that `auto` takes, and a note on it."""
    if bins.dimension > 1:
        return "gaussian", unpicked("gaussian", "others need values of one coordinate")
    if not fitted.noise[0] > 0:
        return "gaussian", unpicked("gaussian", "the values have no noise")
    rows = _rows(statistics, bins, fitted)
    if _noise_differs(statistics, bins, rows):
        return "gaussian", unpicked("gaussian", "others need the same noise in all groups")
    return pick(rows)


def warning(statistics: Means, bins: Bins, fitted: RatioProfile) -> str | None:
    """A sentence if the shape of the population is not Gaussian; empty if nothing was found.

    None if it cannot be told: with too few groups, or if the noise differs between groups, which
    looks like a population with heavy tails.
    """
    if bins.dimension > 1 or not (fitted.ratio[0] > 0 and fitted.noise[0] > 0):
        return None
    rows = _rows(statistics, bins, fitted)
    found = shape_warning(rows)
    return None if found and _noise_differs(statistics, bins, rows) else found


def _noise_differs(statistics: Means, bins: Bins, rows: NormalRows) -> bool:
    found = unequal_noise(statistics, rows.value[:, None]) if bins.noise is None else None
    return found is not None and found.clear


def with_shape(
    estimates: Estimates,
    statistics: Means,
    bins: Bins,
    law: MeanLaw,
    fitted: RatioProfile,
    *,
    name: str,
    threshold: float | None,
    robust: bool,
) -> Estimates:
    """Replace the Gaussian posterior by that under the population `name`.

    If the population depends on size or covariates, (theta - f) / sqrt(A) has the common
    distribution. Where the population has no quantiles of its own, `lower`, `upper`, `scale` and
    `above` remain those of the Gaussian fit; robust intervals remain in any case.
    """
    rows = _rows(statistics, bins, fitted)
    location, scale = np.zeros(len(rows.count)), np.ones(len(rows.count))
    if estimates.population.varies:
        spread = np.sqrt(fitted.ratio[0] * fitted.noise[0] * law.shape)
        scale = np.broadcast_to(spread, law.shape.shape)[bins.place]
        location = locations(bins, law, fitted.coefficients[0], slice(None))[:, 0] + bins.center[0]
    inner = normal_rows((rows.value - location) / scale, rows.variance / scale**2, rows.count)
    limit = None if threshold is None else (threshold - location) / scale
    found = shape_answer(inner, name, level=estimates.level, threshold=limit)
    personal = location + scale * found.personal
    error, raw, pooled = found.error, found.raw_error, found.pooled_error
    if estimates.population.varies:
        some = rows.held
        share = np.where(some, rows.count, 0.0) / rows.num_groups
        error = float(share @ (scale**2 * found.variance))
        raw = float(share[some] @ rows.variance[some])
        pooled = error + float(share @ (personal - share @ personal) ** 2)
    estimates = replace(
        estimates,
        personal=personal,
        weight=found.weight,
        population=_population(estimates.population, inner, name, found),
        gain_over_raw=100 * (1 - error / raw),
        gain_over_pooled=100 * (1 - error / pooled),
        notes=(*estimates.notes, *(unborrowed(found.notes) if robust else found.notes)),
    )
    if found.lower is not None and found.upper is not None:
        own = scale * np.sqrt(found.variance)
        estimates = replace(estimates, scale=own, above=found.above)
        if not robust:
            lower, upper = location + scale * found.lower, location + scale * found.upper
            estimates = replace(estimates, lower=lower, upper=upper)
    return replace(
        estimates,
        lower=np.minimum(estimates.lower, personal),
        upper=np.maximum(estimates.upper, personal),
    )


def _population(
    gaussian: FittedPopulation, rows: NormalRows, name: str, found: ShapeAnswer
) -> FittedPopulation:
    """Members and weights; where the population varies, they are those of standardized thetas."""
    noise = {key: v for key, v in gaussian.parameters.items() if key == "noise_variance"}
    if gaussian.varies:
        return replace(gaussian, kind=name, fitted_by="likelihood", standard_errors={})
    shape = shape_population(rows, name, found.atoms)
    variance = {"variance": found.atoms.variance}
    return replace(shape, parameters={**shape.parameters, **variance, **noise})
