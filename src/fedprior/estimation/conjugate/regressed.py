"""Rates under a population that depends on the group's size, on covariates, or on both."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.by_size import size_design, size_parameters
from fedprior.estimation.conjugate.fit import ConjugateFit
from fedprior.estimation.conjugate.likelihood import Tally
from fedprior.estimation.conjugate.model import ConjugateModel, average, fit_model, law_of, typical
from fedprior.estimation.conjugate.regression import (
    FittedRegression,
    RegressionColumns,
    fit_regression,
    regression_of,
)
from fedprior.estimation.conjugate.row_grid import (
    CoefficientNodes,
    coefficient_nodes,
    grid_of,
    left_over,
    own_size_grid,
    single_node,
)
from fedprior.estimation.covariates import Coefficients, Covariates, Scaled
from fedprior.estimation.intervals import mixture_interval
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Pairs

_FEW_NODES, _MANY_NODES = 16, 12


class Regressed(NamedTuple):
    """A population of every row: its mode `fit`, its posterior `nodes`, and how it estimates."""

    fit: FittedRegression
    nodes: CoefficientNodes
    model: ConjugateModel
    scaled: Scaled | None
    by_size: bool

    @property
    def means(self) -> np.ndarray:
        """The mean of each row's population."""
        if self.model.plug is not None:
            return self.fit.mean
        return self.nodes.weight @ self.model.grid.mean


def regress(
    pairs: Pairs,
    start: ConjugateFit,
    *,
    covariates: Covariates | None,
    by_size: bool,
    few: bool,
    point: bool = False,
) -> Regressed:
    """Fit the population; of `few` groups the estimates average over its posterior.

    `start` is the common population. With `by_size`, or with many groups, estimates use the mode,
    and the posterior widens their intervals.
    """
    ones = np.ones((len(pairs.n), 1))
    own = size_design(pairs) if by_size else RegressionColumns(ones, ones)
    scaled = None
    if covariates is not None:
        scaled = covariates.scaled((pairs.n > 0) & (pairs.count > 0), pairs.count)
        own = own._replace(mean=np.concatenate([own.mean, scaled.rows], axis=1))
        _check_number(pairs, own)
    fit = fit_regression(pairs, own, start, point=point)
    few, nodes = few and not (by_size or point), single_node(fit)
    if not (by_size or point):
        problem = regression_of(pairs, own, start)
        number = _FEW_NODES if few else _MANY_NODES
        nodes = coefficient_nodes(problem, fit, few=few, num_nodes=number)
    grid = own_size_grid(pairs, fit) if by_size else grid_of(pairs, own, nodes)
    plug = None
    if not few:
        plug = ConjugateFit(fit.family, fit.mean, fit.concentration, is_point=point)  # type: ignore[arg-type]
    model = ConjugateModel(grid=grid, plug=plug, fitted_by="integrated" if few else "likelihood")
    return Regressed(fit, nodes, model, scaled, by_size)


def _check_number(pairs: Pairs, design: RegressionColumns) -> None:
    groups, terms = int(pairs.count[pairs.n > 0].sum()), design.split
    rule = f"above {terms}, the number of coefficients"
    remedy = "Take fewer covariates, or do without by_size."
    owner = pairs.family.owner
    check.require(groups > terms, owner, "number of groups with data", rule, groups, remedy)


def variance_left(found: Regressed, pairs: Pairs) -> float:
    """The average variance of rates about the regression.

    For few groups its posterior mean or, where rates have no upper bound, its median.
    """
    fit = found.fit
    if found.model.plug is not None:
        spread = fit.family.variance(fit.mean) / (fit.concentration + fit.family.excess)
        return average(pairs, spread)
    return typical(fit.family, found.nodes.weight, left_over(found.model.grid, pairs))


def explained(found: Regressed, pairs: Pairs, data: Tally, start: ConjugateFit) -> float:
    """1 - (variance of rates about the regression) / (variance without covariates), at least 0.

    For events the variances are those of the rate relative to its mean.
    """
    left, without, mean = variance_left(found, pairs), start.variance, start.mean
    if found.model.plug is None:
        law = law_of(fit_model(data, fit="likelihood").grid)
        without, mean = law.variance, law.mean
    if found.fit.family.tied:
        left, without = left / average(pairs, found.means**2), without / mean**2
    return max(1 - left / without, 0.0) if without > 0 else 0.0


def regressed_population(
    found: Regressed, pairs: Pairs, *, level: float, r_squared: float, point: bool = False
) -> FittedPopulation:
    """Averages over the groups, and the coefficients in the user's units."""
    fit, means = found.fit, found.means
    center, left = average(pairs, means), 0.0 if point else variance_left(found, pairs)
    between = average(pairs, (means - center) ** 2)
    parameters, errors = {"mean": center}, {"mean": _mean_error(found, pairs)}
    if not point and found.scaled is not None:
        parameters["residual_heterogeneity"] = float(np.sqrt(left))
    if found.by_size:
        parameters |= size_parameters(fit, pairs)
    elif not point:
        name = "shape" if fit.family.tied else "concentration"
        parameters[name] = _concentration(found, pairs, left)
        if found.model.plug is not None:
            errors[name] = parameters[name] * float(np.sqrt(fit.covariance[-1, -1]))
    return FittedPopulation(
        kind="point" if point else fit.family.population,
        fitted_by=found.model.fitted_by,
        mean=center,
        heterogeneity=float(np.sqrt(left + between)),
        parameters=parameters,
        standard_errors=errors,
        by_size=found.by_size,
        coefficients=_coefficients(found, pairs.unit, level, r_squared),
    )


def _concentration(found: Regressed, pairs: Pairs, left: float) -> float:
    """That of the mode, or with averages over the posterior; for events the common shape."""
    if found.model.plug is not None:
        return float(np.exp(found.fit.coefficients[-1]))
    each = left_over(found.model.grid, pairs) * found.nodes.concentration
    return float(found.nodes.weight @ each) / max(left, 1e-300)


def _mean_error(found: Regressed, pairs: Pairs) -> float:
    """The error of the average mean, by the delta method at every node."""
    family, x, nodes = found.fit.family, found.fit.design.mean, found.nodes
    share = np.where(pairs.n > 0, pairs.count, 0)
    share = share / share.sum()
    inside, centers = np.empty(len(nodes.weight)), np.empty(len(nodes.weight))
    for place, (at, covariance) in enumerate(
        zip(nodes.coefficients, nodes.covariance, strict=True)
    ):
        mean = family.unlink(x @ at)
        slope = (share * family.variance(mean)) @ x
        inside[place], centers[place] = slope @ covariance @ slope, share @ mean
    spread = (centers - nodes.weight @ centers) ** 2
    return float(np.sqrt(nodes.weight @ (inside + spread)))


def _coefficients(
    found: Regressed, unit: float, level: float, r_squared: float
) -> Coefficients | None:
    """Posterior means (or the mode), standard deviations and quantiles: normal at each node."""
    if found.scaled is None:
        return None
    nodes, probability = found.nodes, found.nodes.weight
    turn, names = found.scaled.in_units(found.fit.design.split)
    location = nodes.coefficients @ turn.T
    values = probability @ location
    if found.model.plug is not None:
        values = turn @ found.fit.coefficients[: found.fit.design.split]
    if len(names) > len(found.scaled.names):  # the intercept is per unit of the user's exposure
        for each in (location, values):
            each[..., 0] -= np.log(unit)
    square = np.einsum("tp,gpq,tq->gt", turn, nodes.covariance, turn)
    lower, upper = mixture_interval(level, probability, location, np.sqrt(square))
    return Coefficients(
        names=names,
        values=values,
        standard_errors=np.sqrt(probability @ (square + (location - values) ** 2)),
        lower=lower,
        upper=upper,
        level=level,
        r_squared=r_squared,
        link=found.fit.family.link_name,
    )
