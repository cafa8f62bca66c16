"""Test whether a group's size carries information on its rate, and whether that matters."""

import numpy as np

from fedprior.estimation.conjugate.by_size import fit_by_size, log_size_basis, pairs_log_likelihood
from fedprior.estimation.conjugate.fit import ConjugateFit
from fedprior.estimation.conjugate.model import average
from fedprior.estimation.conjugate.regression import FittedRegression
from fedprior.estimation.statistics import Pairs

_SIGNIFICANT = 5e-3
_MATERIAL = 0.98  # a warning only where the expected error is at least 2% lower
_FEWEST = 20  # groups: the distribution of the test statistic is asymptotic


def size_warning(pairs: Pairs, pooled: ConjugateFit) -> str | None:
    """A warning if one population for all sizes wastes information, else an empty one.

    None if the groups are too few, or of one size, so that nothing was tested.
    Two tests must agree: one of moments, which is valid for any shape of the population but rejects
    too often with few groups, and the likelihood ratio test, which does not.
    """
    some = pairs.held()
    if some.count.sum() < _FEWEST or len(np.unique(some.n)) < 2:
        return None
    chance = chance_of_size(some, pooled)
    if chance >= _SIGNIFICANT:
        return ""
    fit = fit_by_size(some, pooled)
    chance = max(chance, _chance_of_ratio(some, pooled, fit))
    ratio = _error_ratio(some, pooled, fit)
    if chance >= _SIGNIFICANT or ratio > _MATERIAL:
        return ""
    return (
        "The size of a group carries information: groups of different size differ (p = "
        f"{chance:.1g}), and a population that depends on size would lower the expected error by "
        f"{100 * (1 - ratio):.0f}%. Use by_size=True (--by-size on the command line)."
    )


def chance_of_size(pairs: Pairs, pooled: ConjugateFit) -> float:
    """p-value of a test that E[p] (spline) and E[p^2] (line) depend on log n.

    Given n, z / n and z (z - 1) / (n (n - e)) have these means whatever the shape of the population
    (e is the family's excess), so that none of them causes a warning; the fit only weighs the
    groups. Hotelling's T^2 on the groups' contributions.
    """
    from scipy.special import fdtrc

    knots = 4 if pairs.count.sum() >= 100 else 2
    scores = np.concatenate(
        [_scores(pairs, *each) for each in zip(_moments(pairs, pooled), (knots, 2), strict=True)],
        axis=1,
    )
    num = float(pairs.count.sum())
    weighted = pairs.count[:, None] * scores
    total = weighted.sum(axis=0)
    values, vectors = np.linalg.eigh(scores.T @ weighted - np.outer(total, total) / num)
    kept = values > 1e-8 * values.max()
    freedom = int(kept.sum())
    if not 0 < freedom < num:
        return 1.0
    statistic = float(((vectors.T @ total)[kept] ** 2 / values[kept]).sum()) * (num - 1) / num
    return float(fdtrc(freedom, num - freedom, statistic * (num - freedom) / (num - 1) / freedom))


def _moments(pairs: Pairs, pooled: ConjugateFit) -> list[tuple[np.ndarray, np.ndarray]]:
    """(estimate of E[p^k], its weight) of each pair, for k = 1 and 2.

    Weights are inverse variances under the fit; (z)_2^2 = (z)_4 + 4 (z)_3 + 2 (z)_2, and the
    factorial moment (z)_k has the mean n (n - e) ... (n - (k - 1) e) E[p^k].
    """
    n, z = pairs.n.astype(np.float64), pairs.successes.astype(np.float64)
    step, excess = np.arange(4), pairs.family.excess
    size = min(pooled.concentration, 1e8)
    moments = np.cumprod((pooled.mean * size + step) / (size + excess * step))
    first, second, third, fourth = moments
    spread = second - first**2 + (first - excess * second) / n
    two, three, four = np.cumprod([n * (n - excess), n - 2 * excess, n - 3 * excess], axis=0)
    squares = four * fourth + 4 * three * third + 2 * two * second
    some = np.where(n > excess, two, 1.0)
    wide = np.maximum(squares / some**2 - second**2, 1e-300)
    return [(z / n, 1 / spread), (z * (z - 1) / some, np.where(n > excess, 1 / wide, 0.0))]


def _scores(pairs: Pairs, moment: tuple[np.ndarray, np.ndarray], knots: int) -> np.ndarray:
    """Contributions of each group of a pair to the slopes of a moment on splines of log n."""
    values, weight = moment
    basis = log_size_basis(pairs.n, pairs.n, pairs.count, knots)
    shares = pairs.count * weight / max(float(pairs.count @ weight), 1e-300)
    scores = (weight * (values - shares @ values))[:, None] * (basis - shares @ basis)
    return scores / np.maximum(np.sqrt(pairs.count @ scores**2), 1e-300)


def _chance_of_ratio(pairs: Pairs, pooled: ConjugateFit, fit: FittedRegression) -> float:
    """p-value of the likelihood ratio of the two fits."""
    from scipy.special import chdtrc

    row = np.ones(len(pairs.n))
    common = pairs_log_likelihood(pairs, pooled.mean * row, pooled.concentration * row)
    gained = pairs_log_likelihood(pairs, fit.mean, fit.concentration) - common
    return float(chdtrc(len(fit.coefficients) - 2, max(2 * gained, 0.0)))


def _error_ratio(pairs: Pairs, pooled: ConjugateFit, fit: FittedRegression) -> float:
    """Expected error under the size-dependent population relative to that of the pooled rule."""
    mean, size, n = fit.mean, fit.concentration, pairs.n
    variance = fit.family.variance(mean) / (size + fit.family.excess)
    inner = variance * size  # E V(p)
    best = inner / (n + size)
    weight = n / (n + pooled.concentration)
    rest = variance + (mean - pooled.mean) ** 2
    used = weight**2 * inner / n + (1 - weight) ** 2 * rest
    return average(pairs, best) / average(pairs, used)
