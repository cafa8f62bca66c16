"""Columns by which a population depends on the group's size."""

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.fit import ConjugateFit
from fedprior.estimation.conjugate.likelihood import tally
from fedprior.estimation.conjugate.model import MANY
from fedprior.estimation.conjugate.regression import (
    FittedRegression,
    RegressionColumns,
    fit_regression,
)
from fedprior.estimation.splines import spline_basis
from fedprior.estimation.statistics import Pairs

_MEAN_KNOTS, _SIZE_KNOTS = 4, 2  # 2 for the mean too where groups are few


def fit_by_size(pairs: Pairs, start: ConjugateFit) -> FittedRegression:
    """The likeliest population whose linked mean and log M are natural splines of log n."""
    return fit_regression(pairs, size_design(pairs), start)


def size_design(pairs: Pairs) -> RegressionColumns:
    """Splines of log n; a row without data has those of the smallest size in the data."""
    data = pairs.held()
    several = len(np.unique(data.n)) > 1
    check.expect(several, pairs.family.owner, "by_size needs groups of different sizes.")
    many = tally(data).num_informative >= MANY
    return RegressionColumns(
        log_size_basis(pairs.n, data.n, data.count, _MEAN_KNOTS if many else 2),
        log_size_basis(pairs.n, data.n, data.count, _SIZE_KNOTS),
    )


def log_size_basis(
    at: np.ndarray, sizes: np.ndarray, count: np.ndarray, num_knots: int
) -> np.ndarray:
    """Splines of log n; a group without trials gets the basis row of the smallest size."""
    return spline_basis(np.log(np.maximum(at, sizes.min())), np.log(sizes), count, num_knots)


def pairs_log_likelihood(pairs: Pairs, mean: np.ndarray, size: np.ndarray) -> float:
    """Log p(successes | n) of all groups up to a constant; each pair has its own population."""
    z, n = pairs.successes.astype(np.float64), pairs.n.astype(np.float64)
    return float(pairs.count @ pairs.family.row_log_likelihood(n, z, mean, size))


def size_parameters(fit: FittedRegression, pairs: Pairs) -> dict[str, float]:
    """The parameters at the quartiles of the group size."""
    mean, size = fit.mean, fit.concentration
    order = np.argsort(pairs.n, kind="stable")
    order = order[pairs.n[order] > 0]
    share = np.cumsum(pairs.count[order]) / pairs.count[order].sum()
    found = {}
    for quarter in (0.25, 0.5, 0.75):
        place = order[np.searchsorted(share, quarter)]
        at = f"{pairs.n[place] * pairs.unit:.6g}"
        found[f"mean_at_n_{at}"] = float(mean[place])
        found[f"concentration_at_n_{at}"] = float(size[place])
    return found
