"""Shares of categories: each group's shares from a Dirichlet population, margin by margin."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.conjugate import model as models
from fedprior.estimation.conjugate.fit import narrowest
from fedprior.estimation.conjugate.grid import PopulationGrid, bulk, legendre, scale_prior
from fedprior.estimation.conjugate.likelihood import Tally, tally
from fedprior.estimation.families.binomial import BINOMIAL, RARE
from fedprior.estimation.families.rising import rising
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.estimation.statistics import Counts, Shares, collapse

_OWNER = "estimate_shares"
_NODES = 20


def estimate_shares(statistics: Shares, *, level: float = 0.95) -> Estimates:
    """E[p_ik | data] = (z_ik + mu_k M) / (n_i + M), p_i ~ Dirichlet(mu M), z_i ~ Multinomial.

    A share by itself has a Beta population of mean mu_k and concentration M, so that intervals,
    weights and expected errors are those of rates; M is common to all categories, and everything is
    averaged over the M that fit the data. Intervals hold for one category at a time. The gains are
    those in the squared errors of all categories together.

    >>> found = estimate_shares(Shares(counts=np.array([[8, 2, 0], [3, 3, 4], [5, 1, 4]])))
    >>> found.personal.sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0]
    """
    counts, n = _identified(statistics, level), statistics.n
    margins = [collapse(Counts(n=n, successes=column)) for column in counts.T]
    tallies = [tally(each) for each in margins]
    grids = _integrate(tallies)
    fits = [models.ConjugateModel(grid=grid, plug=None, fitted_by="integrated") for grid in grids]
    tables = [
        models.table_of(model, pairs, level=level, above=None)
        for model, pairs in zip(fits, margins, strict=True)
    ]
    share = models.step_limit(tables, margins)  # the same for all, so that shares add up to 1
    errors = np.zeros(3)
    for place, (model, pairs, data) in enumerate(zip(fits, margins, tallies, strict=True)):
        tables[place] = tables[place].part_of_the_way(pairs, share)
        expected = models.errors_of(model, pairs, data, tables[place].variance)
        errors += expected.personal, expected.raw, expected.pooled

    total = models.ExpectedErrors(personal=errors[0], raw=errors[1], pooled=errors[2])

    def column(name: str) -> np.ndarray:
        cells = zip(tables, margins, strict=True)
        return np.stack([getattr(table, name)[pairs.place] for table, pairs in cells], axis=1)

    with np.errstate(invalid="ignore"):
        raw = counts / n[:, None]
    return Estimates(
        n=n,
        raw=raw,
        personal=column("personal"),
        weight=column("weight")[:, 0],
        scale=np.sqrt(column("variance")),
        lower=column("lower"),
        upper=column("upper"),
        level=level,
        population=_population(grids),
        gain_over_raw=total.gain_over_raw(),
        gain_over_pooled=total.gain_over_pooled(),
    )


def _identified(statistics: Shares, level: float) -> np.ndarray:
    """The counts; raises where they cannot identify a population."""
    check.require(0 < level < 1, _OWNER, "level", "in (0, 1)", level)
    sizes = statistics.n
    groups = int((sizes > 0).sum())
    remedy = "A population cannot be learned from one group."
    check.require(groups > 1, _OWNER, "number of groups", "at least 2", groups, remedy)
    remedy = "With one row per group, differences cannot be distinguished from chance."
    rule = "above 1 for some group"
    check.require(sizes.max() > 1, _OWNER, "number of rows", rule, int(sizes.max()), remedy)
    return np.asarray(statistics.counts, np.int64)


class _Proposal(NamedTuple):
    """Dirichlet(first) close to the posterior of the mean at each scale: (scales, categories)."""

    first: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return self.first.sum(axis=1)

    @property
    def mean(self) -> np.ndarray:
        return self.first / self.total[:, None]


def _integrate(tallies: list[Tally]) -> list[PopulationGrid]:
    """The population's posterior, as `grid.integrate` has it for two categories.

    Given the concentration, the mean has nearly a Dirichlet posterior, from which its moments are
    taken; likelihood x prior / proposal at its mean is the marginal likelihood of M.
    """
    data = tallies[0]

    def log_density(scales: np.ndarray) -> np.ndarray:
        return _log_ratio(tallies, scales, _proposal(tallies, scales))

    low, high = bulk(log_density, least=1 / np.sqrt(1 + narrowest(data)))
    scales, widths = legendre(_NODES, low, high)
    proposal = _proposal(tallies, scales)
    logs = _log_ratio(tallies, scales, proposal)
    weight = np.exp(logs - logs.max()) * widths
    weight /= weight.sum()
    mean, size = proposal.mean, 1 / scales**2 - 1
    variance = mean * (1 - mean) / (proposal.total[:, None] + 1)
    return [
        PopulationGrid(BINOMIAL, weight, size, each, spread)
        for each, spread in zip(mean.T, variance.T, strict=True)
    ]


def _proposal(tallies: list[Tally], scales: np.ndarray) -> _Proposal:
    """A group of size n is worth n (M + 1) / (M + n) rows; Jeffreys' prior adds 1/2 to each."""
    size = 1 / scales[:, None] ** 2 - 1
    won = [(size + 1) / (size + data.n) @ data.won for data in tallies]
    return _Proposal(np.stack(won, axis=1) + 0.5)


def _log_ratio(tallies: list[Tally], scales: np.ndarray, proposal: _Proposal) -> np.ndarray:
    """The log of likelihood x prior / proposal at the mean of the proposal."""
    from scipy.special import gammaln

    size, mean, number = 1 / scales**2 - 1, proposal.mean, len(tallies)
    total = -(rising(size[:, None], tallies[0].n) @ tallies[0].n_count)
    for data, share in zip(tallies, mean.T, strict=True):
        total += rising((share * size)[:, None], data.successes) @ data.successes_count
        total += data.total_successes * np.log(share)
    density = ((proposal.first - 0.5) * np.log(mean)).sum(axis=1)
    density += gammaln(proposal.total) - gammaln(proposal.first).sum(axis=1)
    # 4 mean (1 - mean) of two categories is the chance that two rows differ, over its maximum.
    differ = (1 - (mean**2).sum(axis=1)) / (1 - 1 / number)
    factor = np.maximum(differ, 1e-300) / np.sqrt(differ + RARE)
    return total + scale_prior(size, factor, tallies[0].num_informative) - density


def _population(grids: list[PopulationGrid]) -> FittedPopulation:
    laws = [models.law_of(grid) for grid in grids]
    mean = np.array([law.mean for law in laws])
    size = sum(law.inner for law in laws) / sum(law.variance for law in laws)
    parameters = {f"mean_{number + 1}": float(each) for number, each in enumerate(mean)}
    errors = {
        name: float(np.sqrt(law.mean_variance)) for name, law in zip(parameters, laws, strict=True)
    }
    return FittedPopulation(
        kind="dirichlet",
        fitted_by="integrated",
        mean=mean,
        heterogeneity=float(np.sqrt(np.mean([law.variance for law in laws]))),
        parameters={**parameters, "concentration": size},
        standard_errors=errors,
    )
