"""The posterior of a population that differs from row to row, on a few nodes of M."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedprior.estimation.conjugate.grid import PopulationGrid, bulk, legendre, scale_prior
from fedprior.estimation.conjugate.regression import (
    FittedRegression,
    Regression,
    RegressionColumns,
    ascend,
    inverse_of,
)
from fedprior.estimation.statistics import Pairs

_NARROW = 0.1  # below this deviation of log M a single node is enough (`posterior.is_narrow`)
_NODES = 5  # for rows with a log M of their own
_ROUGH, _FINE = 1e-2, 1e-5  # rises of the log-likelihood at which conditional fits end
# Variance of the log of a mean, beyond which a Gamma of that variance has no wider interval.
_WIDEST = 4.0
_MOST_ROWS = 20_000  # beyond, log M is taken as normal: conditional fits would cost too much


class CoefficientNodes(NamedTuple):
    """Values of M with probability `weight`; given each, coefficients of the mean ~ N(., .).

    For events `concentration` is the shape mean M.
    """

    weight: np.ndarray
    concentration: np.ndarray
    coefficients: np.ndarray  # (nodes, p)
    covariance: np.ndarray  # (nodes, p, p)


def coefficient_nodes(
    problem: Regression, fit: FittedRegression, *, few: bool, num_nodes: int
) -> CoefficientNodes:
    """The posterior of M, with the coefficients integrated out by Laplace's method.

    Nodes of Gauss and Legendre in u = (1 + M)^(-1/2) over the bulk of the posterior, each with the
    coefficients' conditional mode and curvature. In the search for the bulk they stay at the joint
    mode unless groups are few.
    """
    split = fit.design.split
    deviation = float(np.sqrt(fit.covariance[split, split]))
    if deviation < _NARROW or len(problem.n) > _MOST_ROWS:
        return single_node(fit) if deviation < _NARROW else _normal_nodes(fit)

    def conditional(scale: float, close: float) -> tuple[float, np.ndarray, np.ndarray]:
        given = replace(problem, reference=float(scale**-2.0 - 1))
        start = np.r_[fit.coefficients[:split], np.log(scale**-2.0 - 1)]
        at, hessian = ascend(given, start, point=True, close=close)
        covariance = inverse_of(-hessian[:split, :split])
        # Jeffreys' prior given M has no say in which M it is: at the mode its density is 1.
        height = _height(given, at) - given.jeffreys(start)
        return height + np.linalg.slogdet(covariance)[1] / 2, at[:split], covariance

    def log_density(scales: np.ndarray) -> np.ndarray:
        if few:
            return np.array([conditional(scale, _ROUGH)[0] for scale in scales])
        ends = (np.r_[fit.coefficients[:split], np.log(each**-2.0 - 1)] for each in scales)
        return np.array([_height(problem, at) for at in ends])

    low, high = bulk(log_density, least=float(1 / np.sqrt(1 + np.exp(problem.bounds[1]))))
    scales, widths = legendre(num_nodes, low, high)
    found = (conditional(scale, _FINE) for scale in scales)
    heights, modes, covariances = zip(*found, strict=True)
    weight = np.exp(np.array(heights) - max(heights)) * widths
    kept = weight > 1e-9 * weight.sum()
    return CoefficientNodes(
        weight[kept] / weight[kept].sum(),
        (scales**-2.0 - 1)[kept],
        np.stack(modes)[kept],
        np.stack(covariances)[kept],
    )


def _height(problem: Regression, at: np.ndarray) -> float:
    """`value` as a density of u, with the prior of the common population at this number of groups.

    A slope takes one of them.
    """
    size, split = np.exp(at[problem.design.split :]), problem.design.split
    groups = float(problem.count.sum()) - (split - 1)
    prior = scale_prior(size, np.array(problem.factor), groups)[0]
    return problem.value(at) - problem.size_prior(at[split:])[0] + float(prior)


def _normal_nodes(fit: FittedRegression) -> CoefficientNodes:
    """Log M is normal; the coefficients do not depend on it."""
    split = fit.design.split
    points, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    deviation = min(float(np.sqrt(fit.covariance[split, split])), 3.0)
    return CoefficientNodes(
        weight / weight.sum(),
        np.exp(fit.coefficients[split] + deviation * points),
        np.tile(fit.coefficients[:split], (_NODES, 1)),
        np.tile(fit.covariance[:split, :split], (_NODES, 1, 1)),
    )


def single_node(fit: FittedRegression) -> CoefficientNodes:
    """The mode, with the uncertainty of log M in the coefficients' covariance alone."""
    split = fit.design.split
    return CoefficientNodes(
        np.ones(1),
        np.exp(fit.coefficients[split : split + 1]),
        fit.coefficients[None, :split],
        fit.covariance[None, :split, :split],
    )


def grid_of(pairs: Pairs, design: RegressionColumns, nodes: CoefficientNodes) -> PopulationGrid:
    """The population of each row at each node, (nodes, rows)."""
    family, size = pairs.family, nodes.concentration
    square = np.stack([_squares(design.mean, each) for each in nodes.covariance])
    mean = family.unlink(nodes.coefficients @ design.mean.T)
    if family.tied:
        size = size[:, None] / mean
    return PopulationGrid(family, nodes.weight, size, mean, _moved(pairs, mean, size, square))


def own_size_grid(pairs: Pairs, fit: FittedRegression) -> PopulationGrid:
    """The same where every row has a log M of its own, normal with the fit's uncertainty."""
    split = fit.design.split
    square = _squares(fit.design.mean, fit.covariance[:split, :split])
    deviation = np.sqrt(_squares(fit.design.size, fit.covariance[split:, split:]))
    points, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    log_size = np.log(fit.concentration) + np.minimum(deviation, 3.0) * points[:, None]
    mean = np.broadcast_to(fit.mean, log_size.shape)
    moved = _moved(pairs, mean, np.exp(log_size), square)
    return PopulationGrid(pairs.family, weight / weight.sum(), np.exp(log_size), mean, moved)


def _squares(columns: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The quadratic form x' C x of every row."""
    return np.einsum("ip,ip->i", columns @ covariance, columns)


def _moved(pairs: Pairs, mean: np.ndarray, size: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Variance of the mean whose link has variance `square`, as far as it moves an estimate.

    The delta method's, which is exact for the posterior of a rate of events, bounded by V(mean)
    where rates are. Where M falls as the mean grows, estimates move by their own share, not the
    mean's.
    """
    family = pairs.family
    if not family.tied:
        ratio = family.variance(mean) * square
        return family.variance(mean) * ratio / (1 + family.excess * ratio)
    moved = mean**2 * np.minimum(square, _WIDEST)
    return moved * ((pairs.successes / mean + size) / (pairs.n + size)) ** 2


def left_over(grid: PopulationGrid, pairs: Pairs) -> np.ndarray:
    """The average variance of rates about the regression, at each node."""
    share = np.where(pairs.n > 0, pairs.count, 0)
    size = grid.concentration if grid.concentration.ndim == 2 else grid.concentration[:, None]
    spread = grid.family.variance(grid.mean) / (size + grid.family.excess)
    return spread @ share / share.sum()
