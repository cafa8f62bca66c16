"""The regression of the population's mean on covariates, in the user's units."""

from dataclasses import replace

import numpy as np

from fedprior.estimation.covariates import Coefficients
from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    RatioProfile,
    law_of,
    moment_fit,
    restricted_maximum,
)
from fedprior.estimation.gaussian.nodes import PopulationNodes
from fedprior.estimation.gaussian.rows import own_columns
from fedprior.estimation.intervals import mixture_interval, normal_score


def coefficients_of(
    bins: Bins, law: MeanLaw, fitted: RatioProfile, *, level: float, r_squared: float
) -> Coefficients:
    """The generalized least squares fit with normal intervals, the variances plugged in."""
    turn, offset, names = in_units(bins, law)
    values = turn @ fitted.coefficients[0] + offset
    variance = fitted.noise[0] * np.einsum("tp,pq,tq->t", turn, fitted.covariance[0], turn)
    errors = np.broadcast_to(np.sqrt(variance)[:, None], values.shape)
    half = normal_score(level) * errors
    return _shaped(names, values, errors, values - half, values + half, level, r_squared)


def integrated_coefficients(
    bins: Bins, law: MeanLaw, nodes: PopulationNodes, *, level: float, r_squared: float
) -> Coefficients:
    """Posterior means, standard deviations and quantiles over the nodes, for few groups.

    The variances' uncertainty widens the intervals, as Student's t and Knapp and Hartung's errors
    do where these are known up to a factor.
    """
    turn, offset, names = in_units(bins, law)
    location = turn @ nodes.coefficients + offset
    square = np.einsum("tp,gpq,tq->gt", turn, nodes.covariance, turn)[:, :, None]
    values = np.tensordot(nodes.probability, location, axes=1)
    spread = nodes.inflation * square + (location - values) ** 2
    errors = np.sqrt(np.tensordot(nodes.probability, spread, axes=1))
    scale = np.broadcast_to(np.sqrt(square), location.shape)
    lower, upper = mixture_interval(
        level, nodes.probability, location, scale, freedom=nodes.freedom
    )
    return _shaped(names, values, errors, lower, upper, level, r_squared)


def explained(bins: Bins, law: MeanLaw, fitted: RatioProfile, *, moments: bool = False) -> float:
    """1 - (variance of theta about the regression) / (variance without covariates), at least 0."""
    bare = replace(bins, covariates=None)
    before = law_of(bare, law.design[:, : own_columns(bins, law)], law.shape)
    other = (moment_fit if moments else restricted_maximum)(bare, before)
    without = float(other.ratio[0] * other.noise[0])
    left = float(fitted.ratio[0] * fitted.noise[0])
    return max(1 - left / without, 0.0) if without > 0 else 0.0


def in_units(bins: Bins, law: MeanLaw) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """(turn, offset, names): turn @ coefficients + offset has the units of the user's columns.

    Where the columns of the bins are splines of size there is no one intercept, but slopes alone.
    """
    z = bins.covariates
    assert z is not None
    turn, names = z.in_units(law.design.shape[1])
    offset = np.zeros((len(turn), bins.dimension))
    if len(names) > len(z.names):
        offset[0] = bins.center
    return turn, offset, names


def _shaped(
    names: tuple[str, ...],
    values: np.ndarray,
    errors: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    level: float,
    r_squared: float,
) -> Coefficients:
    """One column for values of one coordinate."""
    found = (values, errors, lower, upper)
    values, errors, lower, upper = (each[:, 0] if each.shape[1] == 1 else each for each in found)
    return Coefficients(
        names=names,
        values=values,
        standard_errors=errors,
        lower=lower,
        upper=upper,
        level=level,
        r_squared=r_squared,
    )
