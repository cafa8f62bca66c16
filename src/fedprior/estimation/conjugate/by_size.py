"""A population whose mean and concentration depend on the group's size."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate.fit import ConjugateFit, narrowest
from fedprior.estimation.conjugate.grid import TILT
from fedprior.estimation.conjugate.likelihood import LikelihoodSlope, linked, tally
from fedprior.estimation.conjugate.model import MANY, ExpectedErrors, RateTable, average, raw_error
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.splines import spline_basis
from fedprior.estimation.statistics import Pairs

_MEAN_KNOTS, _SIZE_KNOTS = 4, 2  # 2 for the mean too where groups are few
# Standard deviation of the prior on differences between knots, linked and in log M. Rates of 1%
# and 60% differ by one such deviation, so the prior matters only where there are hardly any data.
_LOOSE = 5.0
_NODES = 5  # quadrature nodes for log M
_MOST_STEPS = 50


class SizeFit(NamedTuple):
    """Linked mean = basis @ first part, log M = curve @ second part of `coefficients`.

    `basis` and `curve` have one row per pair; `covariance` is that of the coefficients.
    """

    family: CountFamily
    basis: np.ndarray
    curve: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.family.unlink(self.basis @ self.coefficients[: self.basis.shape[1]])

    @property
    def concentration(self) -> np.ndarray:
        return np.exp(self.curve @ self.coefficients[self.basis.shape[1] :])


def fit_by_size(pairs: Pairs, start: ConjugateFit) -> SizeFit:
    """The likeliest population whose linked mean and log M are natural splines of log n.

    Fitted by Newton's method. A weak prior, as in the common population, keeps log M finite. A pair
    without trials gets the population of the smallest size in the data.
    """
    held, family = (pairs.n > 0) & (pairs.count > 0), pairs.family
    data = pairs.held()
    several = len(np.unique(data.n)) > 1
    check.expect(several, family.owner, "by_size needs groups of different sizes.")
    many = tally(data).num_informative >= MANY
    basis = log_size_basis(pairs.n, data.n, data.count, _MEAN_KNOTS if many else 2)
    curve = log_size_basis(pairs.n, data.n, data.count, _SIZE_KNOTS)
    log_size = np.log(min(start.concentration, 10.0 * float(data.n.max())))
    first = np.r_[
        np.full(basis.shape[1], family.link(start.mean)), np.full(curve.shape[1], log_size)
    ]
    bounds = np.log([1e-6, narrowest(tally(data))])
    coefficients, hessian = _ascend(data, basis[held], curve[held], first, bounds)
    values, vectors = np.linalg.eigh(-hessian)
    inverse = vectors / np.maximum(values, 1e-10) @ vectors.T
    return SizeFit(family, basis, curve, coefficients, inverse)


def log_size_basis(
    at: np.ndarray, sizes: np.ndarray, count: np.ndarray, num_knots: int
) -> np.ndarray:
    """Splines of log n; a group without trials gets the basis row of the smallest size."""
    return spline_basis(np.log(np.maximum(at, sizes.min())), np.log(sizes), count, num_knots)


def _ascend(
    pairs: Pairs, basis: np.ndarray, curve: np.ndarray, place: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Damped Newton's method, with log M kept within `bounds` for every pair."""
    split = basis.shape[1]

    def parts(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return pairs.family.unlink(basis @ at[:split]), np.exp(np.clip(curve @ at[split:], *bounds))

    def value(at: np.ndarray) -> float:
        return pairs_log_likelihood(pairs, *parts(at)) + _log_prior(at, split)[0]

    reached = value(place)
    for _ in range(_MOST_STEPS):
        slopes = _sum_slopes(pair_slopes(pairs, *parts(place)), pairs.count, basis, curve)
        _, gradient, curvature = _log_prior(place, split)
        gradient, hessian = gradient + slopes.gradient, curvature + slopes.hessian
        values, vectors = np.linalg.eigh(-hessian)
        step = vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), 1e-8))
        step /= max(np.abs(step).max() / 2.0, 1.0)
        for _ in range(30):
            trial = value(place + step)
            if trial >= reached - 1e-12 * abs(reached):
                break
            step = step / 2
        place, reached = place + step, trial
        if np.abs(step).max() < 1e-7:
            break
    return place, hessian


def pairs_log_likelihood(pairs: Pairs, mean: np.ndarray, size: np.ndarray) -> float:
    """Log p(successes | n) of all groups up to a constant; each pair has its own population."""
    z, n = pairs.successes.astype(np.float64), pairs.n.astype(np.float64)
    return float(pairs.count @ pairs.family.row_log_likelihood(n, z, mean, size))


def pair_slopes(pairs: Pairs, mean: np.ndarray, size: np.ndarray) -> LikelihoodSlope:
    """Derivatives of each pair's log-likelihood by its linked mean and log M: (2, pairs) ..."""
    z, n = pairs.successes.astype(np.float64), pairs.n.astype(np.float64)
    return linked(pairs.family, mean, size, pairs.family.row_derivatives(n, z, mean, size))


def _sum_slopes(
    each: LikelihoodSlope, count: np.ndarray, basis: np.ndarray, curve: np.ndarray
) -> LikelihoodSlope:
    """Convert derivatives by each pair's linked mean and log M to those by the coefficients."""
    columns = (basis, curve)
    gradient = [columns[i].T @ (count * each.gradient[i]) for i in range(2)]
    blocks = [
        [columns[i].T @ ((count * each.hessian[i, j])[:, None] * columns[j]) for j in range(2)]
        for i in range(2)
    ]
    return LikelihoodSlope(np.concatenate(gradient), np.block(blocks))


def _log_prior(place: np.ndarray, split: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The common population's prior on the average log M, and differences ~ N(0, 5^2)."""
    gradient, hessian = np.zeros(len(place)), np.zeros((len(place), len(place)))
    value = 0.0
    for part in (slice(0, split), slice(split, len(place))):
        knots = place[part]
        centered = np.eye(len(knots)) - 1 / len(knots)
        value -= float(knots @ centered @ knots) / (2 * _LOOSE**2)
        gradient[part] -= centered @ knots / _LOOSE**2
        hessian[part, part] -= centered / _LOOSE**2
    # u = (1 + M)^(-1/2) has density u^TILT, so log M has M (1 + M)^-(3 + TILT)/2
    power, num = (3 + TILT) / 2, len(place) - split
    level = place[split:].mean()
    ratio = 1 / (1 + np.exp(-level))
    value += level - power * np.logaddexp(0, level)
    gradient[split:] += (1 - power * ratio) / num
    hessian[split:, split:] -= power * ratio * (1 - ratio) / num**2
    return value, gradient, hessian


def size_table(fit: SizeFit, pairs: Pairs, *, level: float, above: float | None) -> RateTable:
    """Posterior moments at the fit, with the uncertainty of the fit.

    The delta method accounts for the mean and five quadrature nodes for log M; intervals are those
    of the Beta or Gamma with the resulting moments.
    """
    family = fit.family
    n, z = pairs.n.astype(np.float64), pairs.successes.astype(np.float64)
    split = fit.basis.shape[1]
    mean, size = fit.mean, fit.concentration
    personal = (z + mean * size) / (n + size)
    moved = (fit.basis @ fit.covariance[:split, :split] * fit.basis).sum(axis=1)
    deviation = np.sqrt((fit.curve @ fit.covariance[split:, split:] * fit.curve).sum(axis=1))
    variance = np.zeros(len(n))
    nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
    for node, share in zip(nodes, shares / shares.sum(), strict=True):
        near = size * np.exp(node * np.minimum(deviation, 3.0))
        center = (z + mean * near) / (n + near)
        slope = family.variance(mean) * near / (n + near)
        inner = family.variance(center) / (n + near + family.excess)
        variance += share * (inner + slope**2 * moved + (center - personal) ** 2)
    posterior = family.matched(personal, variance)
    table = RateTable(
        personal=personal,
        variance=variance,
        weight=n / (n + size),
        lower=family.quantile(posterior, (1 - level) / 2),
        upper=family.quantile(posterior, (1 + level) / 2),
        above=None if above is None else 1 - family.below(posterior, above),
    )
    return table.around(personal)


def size_errors(fit: SizeFit, pairs: Pairs, table: RateTable) -> ExpectedErrors:
    """Expected errors if the fit were the population."""
    return ExpectedErrors(
        personal=average(pairs, table.variance),
        raw=raw_error(pairs, table.personal, table.variance),
        pooled=average(pairs, _total_variance(fit, pairs)),
    )


def _total_variance(fit: SizeFit, pairs: Pairs) -> np.ndarray:
    """sigma^2 at the pair's size, plus the squared distance of its mean from the overall mean."""
    mean = fit.mean
    inner = fit.family.variance(mean) / (fit.concentration + fit.family.excess)
    return inner + (mean - average(pairs, mean)) ** 2


def size_population(fit: SizeFit, pairs: Pairs) -> FittedPopulation:
    """Averages over groups, and the parameters at the quartiles of the group size."""
    mean, size = fit.mean, fit.concentration
    center = average(pairs, mean)
    parameters = {"mean": center}
    order = np.argsort(pairs.n, kind="stable")
    order = order[pairs.n[order] > 0]
    share = np.cumsum(pairs.count[order]) / pairs.count[order].sum()
    for quarter in (0.25, 0.5, 0.75):
        place = order[np.searchsorted(share, quarter)]
        at = f"{pairs.n[place] * pairs.unit:.6g}"
        parameters[f"mean_at_n_{at}"] = float(mean[place])
        parameters[f"concentration_at_n_{at}"] = float(size[place])
    return FittedPopulation(
        kind=fit.family.population,
        fitted_by="likelihood",
        mean=center,
        heterogeneity=float(np.sqrt(average(pairs, _total_variance(fit, pairs)))),
        parameters=parameters,
        by_size=True,
    )
