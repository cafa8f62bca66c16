"""Test whether a group's size carries information on its rate, and whether that matters."""

import numpy as np

from fedprior.estimation.bernoulli.by_size import (
    SizeFit,
    fit_by_size,
    log_size_basis,
    pairs_log_likelihood,
)
from fedprior.estimation.bernoulli.fit import BetaFit
from fedprior.estimation.bernoulli.likelihood import chain, rising_slopes
from fedprior.estimation.bernoulli.model import average
from fedprior.estimation.statistics import Pairs

_SIGNIFICANT = 1e-3
_MATERIAL = 0.98  # a warning only where the expected error is at least 2% lower
_FEWEST = 20  # groups: the distribution of the test statistic is asymptotic


def size_warning(pairs: Pairs, pooled: BetaFit) -> str | None:
    """A warning if one population for all sizes wastes information, else None.

    Two tests must agree: the score test, which is valid for any shape of the population but rejects
    too often with few groups, and the likelihood ratio test, which does not.
    """
    held = (pairs.n > 0) & (pairs.count > 0)
    some = Pairs(pairs.n[held], pairs.successes[held], pairs.count[held], pairs.place[:0])
    if some.count.sum() < _FEWEST or len(np.unique(some.n)) < 2:
        return None
    chance = chance_of_size(some, pooled)
    if chance >= _SIGNIFICANT:
        return None
    fit = fit_by_size(some, pooled)
    chance = max(chance, _chance_of_ratio(some, pooled, fit))
    ratio = _error_ratio(some, pooled, fit)
    if chance >= _SIGNIFICANT or ratio > _MATERIAL:
        return None
    return (
        "The size of a group carries information: groups of different size differ (p = "
        f"{chance:.1g}), and a population that depends on size would lower the expected error by "
        f"{100 * (1 - ratio):.0f}%. Use by_size=True (--by-size on the command line)."
    )


def chance_of_size(pairs: Pairs, pooled: BetaFit) -> float:
    """p-value of a score test that the logit mean (spline) and log M (line) depend on log n.

    The information is the sum of the groups' squared scores, so that a population of another shape
    than Beta does not cause a warning.
    """
    from scipy.special import chdtrc

    gradient = _scores(pairs, pooled)
    knots = 4 if pairs.count.sum() >= 100 else 2
    basis = log_size_basis(pairs.n, pairs.n, pairs.count, knots)
    line = log_size_basis(pairs.n, pairs.n, pairs.count, 2)
    scores = np.concatenate([basis * gradient[0][:, None], line * gradient[1][:, None]], axis=1)
    weighted = pairs.count[:, None] * scores
    total = weighted.sum(axis=0)
    values, vectors = np.linalg.eigh(scores.T @ weighted)
    kept = values > 1e-10 * values.max()
    statistic = float(((vectors.T @ total)[kept] ** 2 / values[kept]).sum())
    freedom = int(kept.sum()) - (1 if pooled.is_point else 2)
    return float(chdtrc(freedom, statistic)) if freedom > 0 else 1.0


def _scores(pairs: Pairs, pooled: BetaFit) -> np.ndarray:
    """Derivatives of each pair by logit mean and log M, from tables over distinct counts."""
    mean, size = pooled.mean, pooled.concentration
    lost = pairs.n - pairs.successes
    slopes = []
    for shape, values in (
        (mean * size, pairs.successes),
        ((1 - mean) * size, lost),
        (size, pairs.n),
    ):
        distinct, place = np.unique(values, return_inverse=True)
        slopes.append([each[place] for each in rising_slopes(shape, distinct)])
    first, second = (np.stack(each) for each in zip(*slopes, strict=True))
    return chain(mean, size, first, second, won=pairs.successes, lost=lost).gradient


def _chance_of_ratio(pairs: Pairs, pooled: BetaFit, fit: SizeFit) -> float:
    """p-value of the likelihood ratio of the two fits."""
    from scipy.special import chdtrc

    row = np.ones(len(pairs.n))
    common = pairs_log_likelihood(pairs, pooled.mean * row, pooled.concentration * row)
    gained = pairs_log_likelihood(pairs, fit.mean, fit.concentration) - common
    return float(chdtrc(len(fit.coefficients) - 2, max(2 * gained, 0.0)))


def _error_ratio(pairs: Pairs, pooled: BetaFit, fit: SizeFit) -> float:
    """Expected error under the size-dependent population relative to that of the pooled rule."""
    mean, size, n = fit.mean, fit.concentration, pairs.n
    spread = mean * (1 - mean)
    variance, binomial = spread / (1 + size), spread * size / (1 + size)
    best = binomial / (n + size)
    weight = n / (n + pooled.concentration)
    rest = variance + (mean - pooled.mean) ** 2
    used = weight**2 * binomial / n + (1 - weight) ** 2 * rest
    return average(pairs, best) / average(pairs, used)
