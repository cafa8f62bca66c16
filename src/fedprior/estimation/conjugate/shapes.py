"""Populations of rates other than Beta (one common rate, or nonparametric), and the choice."""

import numpy as np

from fedprior.core import random
from fedprior.estimation import selection
from fedprior.estimation.conjugate import fit as fits
from fedprior.estimation.conjugate.by_size import pair_log_likelihoods
from fedprior.estimation.conjugate.likelihood import Tally, tally
from fedprior.estimation.conjugate.model import (
    ExpectedErrors,
    RateTable,
    average,
    common_rate,
    raw_error,
)
from fedprior.estimation.nonparametric import atoms as nonparametric
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Pairs

_SEED = 0  # of the folds, so that the same data always give the same choice


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


def any_table(pairs: Pairs, atoms: nonparametric.Atoms, beta: RateTable) -> RateTable:
    """Posterior means under the atoms, with the intervals of the Beta fit.

    The weight is posterior variance / sampling variance at the estimate, at most 1; under a Beta
    it would be n / (n + M + 1).
    """
    mean, variance = nonparametric.posterior_rates(pairs.n, pairs.successes, atoms)
    sampling = mean * (1 - mean) / np.maximum(pairs.n, 1)
    weight = np.where(sampling > 0, variance / np.maximum(sampling, 1e-300), 0.0)
    weight = np.where(pairs.n > 0, np.minimum(weight, 1.0), 0.0)
    return beta.around(mean, variance=variance, weight=weight)


def any_errors(
    pairs: Pairs, atoms: nonparametric.Atoms, data: Tally, table: RateTable
) -> ExpectedErrors:
    """Expected errors if the atoms were the population, plus the error of the common rate.

    That error is added to both, so that there is no gain if all atoms coincide.
    """
    raw = raw_error(pairs, table.personal, table.variance)
    spread = table.variance + (table.personal - atoms.mean) ** 2
    moved = common_rate(data)[1]
    return ExpectedErrors(
        personal=average(pairs, table.variance) + moved,
        raw=raw,
        pooled=average(pairs, spread) + moved,
    )


def pick_rate_population(pairs: Pairs) -> tuple[str, str]:
    """The population that predicts held-out groups best (`selection.pick`), and a note on it.

    The candidates are point, beta and, from 20 groups on, nonparametric. The groups of a pair are
    exchangeable, so only the number of them in each of the five folds is drawn.
    """
    held = pairs.n > 0
    some = Pairs(pairs.n[held], pairs.successes[held], pairs.count[held], pairs.place[:0])
    groups = int(some.count.sum())
    even = np.full(selection.FOLDS, 1 / selection.FOLDS)
    drawn = random.stream(_SEED, "split").multinomial(some.count, even)
    parts = [test for test in drawn.T if 0 < test.sum() < groups]
    if selection.num_folds(groups) < 2 or not parts:
        return "beta", selection.unpicked("beta", "too few groups to hold any out")
    if not 0 < some.count @ some.successes < some.count @ some.n:
        return "beta", selection.unpicked("beta", "all outcomes are equal")
    names = ["point", "beta", *(["nonparametric"] if groups >= selection.FEWEST else [])]
    scores = {
        name: np.concatenate([_held_out(name, some, some.count - test, test > 0) for test in parts])
        for name in names
    }
    return selection.pick(scores, np.concatenate(parts))


def _held_out(name: str, pairs: Pairs, train: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Log p(successes | n) of each pair in `seen` under the population `name` fitted to `train`.

    The binomial coefficient is omitted; other pairs get 0.
    """
    logs = np.zeros(len(seen))
    n, successes = pairs.n[seen].astype(np.float64), pairs.successes[seen].astype(np.float64)
    if name == "nonparametric":
        atoms = nonparametric.fit_rates(pairs._replace(count=train), gap=1e-5)
        with_coefficient = nonparametric.log_likelihood_rates(
            pairs.n[seen], pairs.successes[seen], atoms
        )
        logs[seen] = with_coefficient - _log_ways(n, successes)
        return logs
    data = tally(pairs, train)
    rate, _ = common_rate(data)
    logs[seen] = successes * np.log(rate) + (n - successes) * np.log1p(-rate)
    if name == "beta" and min(data.total_successes, data.total_failures) > 0 and data.n.max() > 1:
        beta = fits.by_likelihood(data)
        if not beta.is_point:
            row = np.full(len(n), beta.mean)
            logs[seen] = pair_log_likelihoods(
                n, successes, row, np.full(len(n), beta.concentration)
            )
    return logs


def _log_ways(n: np.ndarray, successes: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return gammaln(n + 1.0) - gammaln(successes + 1.0) - gammaln(n - successes + 1.0)
