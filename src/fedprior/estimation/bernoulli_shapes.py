"""Populations of rates of another shape than Beta: one common rate, or any, and which to take."""

import numpy as np

from fedprior.core import random
from fedprior.estimation import bernoulli_fit as fits
from fedprior.estimation import nonparametric
from fedprior.estimation.bernoulli_likelihood import Tally, log_likelihood, tally
from fedprior.estimation.bernoulli_model import Errors, Table, average, raw_error
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Pairs

_FOLDS = 5
_SEED = 0  # of the folds: the same data give the same choice


def common_rate(data: Tally) -> tuple[float, float]:
    """The pooled rate and its variance, Beta(1/2 + successes, 1/2 + failures)."""
    won, lost = data.total_successes + 0.5, data.total_failures + 0.5
    rate = won / (won + lost)
    return rate, rate * (1 - rate) / (won + lost + 1)


def point_population(data: Tally) -> FittedPopulation:
    """All groups have one rate."""
    rate, variance = common_rate(data)
    return FittedPopulation(
        kind="point",
        fitted_by="likelihood",
        mean=rate,
        heterogeneity=0.0,
        parameters={"mean": rate},
        standard_errors={"mean": float(np.sqrt(variance))},
    )


def point_table(pairs: Pairs, data: Tally, *, level: float, above: float | None) -> Table:
    """The common rate for every group, with the interval of that one rate."""
    from scipy.special import betainc, betaincinv

    rate, variance = common_rate(data)
    shape = data.total_successes + 0.5, data.total_failures + 0.5
    row = np.ones(len(pairs.n))
    return Table(
        personal=rate * row,
        variance=variance * row,
        weight=0 * row,
        lower=betaincinv(*shape, (1 - level) / 2) * row,
        upper=betaincinv(*shape, (1 + level) / 2) * row,
        above=None if above is None else (1 - betainc(*shape, above)) * row,
    )


def point_errors(pairs: Pairs, data: Tally) -> Errors:
    """Of the common rate, were it true."""
    rate, variance = common_rate(data)
    raw = rate * (1 - rate) * average(pairs, 1 / np.maximum(pairs.n, 1))
    return Errors(personal=variance, raw=raw, pooled=variance)


def any_population(atoms: nonparametric.Atoms, data: Tally) -> FittedPopulation:
    """The nonparametric population: its atoms and their weights."""
    mean = atoms.mean
    error = atoms.variance + common_rate(data)[1] * data.num_groups
    return FittedPopulation(
        kind="nonparametric",
        fitted_by="likelihood",
        mean=mean,
        heterogeneity=float(np.sqrt(atoms.variance)),
        parameters={"mean": mean},
        standard_errors={"mean": float(np.sqrt(error / data.num_groups))},
        atoms=atoms.atoms,
        weights=atoms.weights,
    )


def any_table(pairs: Pairs, atoms: nonparametric.Atoms, beta: Table) -> Table:
    """Posterior means under the atoms, in the intervals of the Beta fit (never their quantiles).

    The weight is posterior variance / sampling variance at the estimate, at most 1; with a Beta
    that would be n / (n + M + 1).
    """
    mean, variance = nonparametric.posterior_rates(pairs.n, pairs.successes, atoms)
    sampling = mean * (1 - mean) / np.maximum(pairs.n, 1)
    weight = np.where(sampling > 0, variance / np.maximum(sampling, 1e-300), 0.0)
    weight = np.where(pairs.n > 0, np.minimum(weight, 1.0), 0.0)
    return beta.around(mean, variance=variance, weight=weight)


def any_errors(pairs: Pairs, atoms: nonparametric.Atoms, data: Tally, table: Table) -> Errors:
    """Expected errors were the atoms the population."""
    raw = raw_error(pairs, table.personal, table.variance)
    pooled = atoms.variance + common_rate(data)[1]
    return Errors(personal=average(pairs, table.variance), raw=raw, pooled=pooled)


def choose(pairs: Pairs) -> tuple[str, dict[str, float]]:
    """Which of point, beta, nonparametric predicts held-out groups best; their mean log scores.

    Five folds of groups; the groups of a pair are alike, so only how many of them fall in each fold
    is drawn. The simplest wins where scores are equal.
    """
    draws = random.stream(_SEED, "split")
    held = pairs.n > 0
    some = Pairs(pairs.n[held], pairs.successes[held], pairs.count[held], pairs.place[:0])
    folds = draws.multinomial(some.count, np.full(_FOLDS, 1 / _FOLDS))
    scores = {"point": 0.0, "beta": 0.0, "nonparametric": 0.0}
    for number in range(_FOLDS):
        test = folds[:, number]
        if not 0 < test.sum() < some.count.sum():
            continue
        for name, score in _held_out(some, some.count - test, test).items():
            scores[name] += score / float(some.count.sum())
    best = max(scores, key=lambda name: scores[name])
    for name in scores:  # in order of complexity; rounding is no reason for a richer population
        if scores[name] >= scores[best] - 1e-9:
            return name, scores
    return best, scores


def _held_out(pairs: Pairs, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """The log p(test | n) of each population fitted to `train`, binomial coefficients left out."""
    data, unseen = tally(pairs, train), tally(pairs, test)
    rate, _ = common_rate(data)
    point = unseen.total_successes * np.log(rate) + unseen.total_failures * np.log1p(-rate)
    scores = {"point": float(point), "beta": float(point), "nonparametric": float(point)}
    if min(data.total_successes, data.total_failures) > 0 and data.n.max() > 1:
        beta = fits.by_likelihood(data)
        if not beta.is_point:
            found = log_likelihood(unseen, np.array([beta.mean]), np.array([beta.concentration]))
            scores["beta"] = float(found[0])
    atoms = nonparametric.fit_rates(pairs._replace(count=train), gap=1e-5)
    seen = test > 0
    n, successes = pairs.n[seen], pairs.successes[seen]
    logs = nonparametric.log_likelihood_rates(n, successes, atoms)
    scores["nonparametric"] = float(test[seen] @ (logs - _log_ways(n, successes)))
    return scores


def _log_ways(n: np.ndarray, successes: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return gammaln(n + 1.0) - gammaln(successes + 1.0) - gammaln(n - successes + 1.0)
