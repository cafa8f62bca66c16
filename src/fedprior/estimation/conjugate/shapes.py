"""Populations of rates other than Beta (one common rate, or nonparametric), and the choice."""

import numpy as np

from fedprior.core import random
from fedprior.estimation import selection
from fedprior.estimation.conjugate import fit as fits
from fedprior.estimation.conjugate.likelihood import Tally, tally
from fedprior.estimation.conjugate.model import (
    ExpectedErrors,
    RateTable,
    average,
    raw_error,
)
from fedprior.estimation.nonparametric import atoms as nonparametric
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Pairs

_SEED = 0  # of the folds, so that the same data always give the same choice


def point_population(data: Tally) -> FittedPopulation:
    """All groups have one rate."""
    rate, variance = data.common_mean()
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
    error = atoms.variance + data.common_mean()[1] * data.num_groups
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
    mean, variance = nonparametric.posterior_rates(pairs, atoms)
    sampling = pairs.family.variance(mean) / pairs.divisor
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
    moved = data.common_mean()[1]
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
    some, usual = pairs.held(), pairs.family.population
    groups = int(some.count.sum())
    even = np.full(selection.FOLDS, 1 / selection.FOLDS)
    drawn = random.stream(_SEED, "split").multinomial(some.count, even)
    parts = [test for test in drawn.T if 0 < test.sum() < groups]
    if selection.num_folds(groups) < 2 or not parts:
        return usual, selection.unpicked(usual, "too few groups to hold any out")
    if tally(some).is_constant:
        return usual, selection.unpicked(usual, "all outcomes are equal")
    names = ["point", usual, *(["nonparametric"] if groups >= selection.FEWEST else [])]
    scores = {
        name: np.concatenate([_held_out(name, some, some.count - test, test > 0) for test in parts])
        for name in names
    }
    return selection.pick(scores, np.concatenate(parts))


def _held_out(name: str, pairs: Pairs, train: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Log p(successes | n) of each pair in `seen` under the population `name` fitted to `train`.

    The binomial coefficient is omitted; other pairs get 0.
    """
    logs, family = np.zeros(len(seen)), pairs.family
    some = pairs._replace(n=pairs.n[seen], successes=pairs.successes[seen])
    n, successes = some.n.astype(np.float64), some.successes.astype(np.float64)
    if name == "nonparametric":
        atoms = nonparametric.fit_rates(pairs._replace(count=train), gap=1e-5)
        logs[seen] = nonparametric.log_likelihood_rates(some, atoms) - family.log_ways(n, successes)
        return logs
    data = tally(pairs, train)
    rate, _ = data.common_mean()
    logs[seen] = family.log_table(n, successes, np.array([rate]))[:, 0]
    if name != "point" and not data.is_constant and data.num_informative > 0:
        fitted = fits.by_likelihood(data)
        if not fitted.is_point:
            row = np.full(len(n), fitted.mean)
            size = np.full(len(n), fitted.concentration)
            logs[seen] = family.row_log_likelihood(n, successes, row, size)
    return logs
