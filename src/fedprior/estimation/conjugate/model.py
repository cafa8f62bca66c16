"""The fitted population, and the estimate, interval and expected error of every pair under it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedprior.estimation.conjugate import fit as fits
from fedprior.estimation.conjugate import posterior
from fedprior.estimation.conjugate.grid import PopulationGrid, integrate, known_grid
from fedprior.estimation.conjugate.likelihood import Tally
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.result import FittedPopulation
from fedprior.estimation.statistics import Pairs

MANY = 100  # groups of two or more trials, from which on estimates use only the fitted population
_FEW_NODES, _MANY_NODES = 20, 12


@dataclass(frozen=True, kw_only=True, eq=False)
class RateTable:
    """One row per pair (n, successes); `variance` is the expected squared error of `personal`."""

    personal: np.ndarray
    variance: np.ndarray
    weight: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    above: np.ndarray | None = None

    def times(self, unit: float) -> "RateTable":
        """The rates in another unit."""
        return replace(
            self,
            personal=unit * self.personal,
            variance=unit**2 * self.variance,
            lower=unit * self.lower,
            upper=unit * self.upper,
        )

    def around(
        self,
        personal: np.ndarray,
        *,
        variance: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> "RateTable":
        """Replace the estimate and keep the intervals, widened to contain it."""
        return replace(
            self,
            personal=personal,
            variance=self.variance if variance is None else variance,
            weight=self.weight if weight is None else weight,
            lower=np.minimum(self.lower, personal),
            upper=np.maximum(self.upper, personal),
        )

    def containing(self, lower: float, upper: float) -> "RateTable":
        """Widen every interval to hold this one."""
        return replace(
            self, lower=np.minimum(self.lower, lower), upper=np.maximum(self.upper, upper)
        )

    def part_of_the_way(self, pairs: Pairs, share: float) -> "RateTable":
        """Move from the raw rate only a `share` of the way to the estimate."""
        if share == 1.0:
            return self
        back = np.where(pairs.n > 0, (1 - share) * (_raw(pairs) - self.personal), 0.0)
        weight = np.where(pairs.n > 0, 1 - share * (1 - self.weight), self.weight)
        return self.around(self.personal + back, variance=self.variance + back**2, weight=weight)


def _raw(pairs: Pairs) -> np.ndarray:
    """The raw rate of each pair; 0 without data."""
    return pairs.successes / pairs.divisor


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedErrors:
    """Expected squared errors, averaged over the groups with trials."""

    personal: float
    raw: float
    pooled: float

    def gain_over_raw(self) -> float:
        return _gain(self.personal, self.raw)

    def gain_over_pooled(self) -> float:
        return _gain(self.personal, self.pooled)


def _gain(error: float, other: float) -> float:
    return 100 * (1 - error / other) if other > 0 else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class ConjugateModel:
    """`grid` is the posterior of the population; `plug` is the one that estimates use, if any.

    Without `plug` the estimates average over the grid.
    """

    grid: PopulationGrid
    plug: fits.ConjugateFit | None
    fitted_by: str


def fit_model(data: Tally, *, fit: str) -> ConjugateModel:
    """Maximum likelihood or moments; integrated for few groups, or if all outcomes are equal.

    Groups of one trial carry no information on heterogeneity and do not count as groups here.
    """
    few = data.num_informative < MANY
    grid = integrate(data, num_scales=_FEW_NODES if few else _MANY_NODES)
    if data.is_constant or (few and fit == "likelihood"):
        return ConjugateModel(grid=grid, plug=None, fitted_by="integrated")
    plug = fits.by_likelihood(data) if fit == "likelihood" else fits.by_moments(data)
    return ConjugateModel(grid=grid, plug=plug, fitted_by=fit)


def known_model(family: CountFamily, mean: float, concentration: float) -> ConjugateModel:
    """A known population."""
    grid = known_grid(family, mean, concentration)
    return ConjugateModel(grid=grid, plug=None, fitted_by="known")


def table_of(
    model: ConjugateModel, pairs: Pairs, *, level: float, above: float | None
) -> RateTable:
    """Posterior mean, its expected squared error and the equal-tailed interval of each pair."""
    n, successes = pairs.n.astype(np.float64), pairs.successes.astype(np.float64)
    moments = posterior.moments(model.grid, n, successes)
    lower, upper = posterior.rate_interval(model.grid, n, successes, level=level, about=moments)
    over = None
    if above is not None:
        over = posterior.above(model.grid, n, successes, threshold=above)
    table = RateTable(
        personal=moments.mean,
        variance=moments.variance,
        weight=moments.weight,
        lower=lower,
        upper=upper,
        above=over,
    )
    if model.plug is None:
        personal = moments.mean
        if np.isinf(model.grid.family.top) and model.grid.mean.ndim == 1:
            personal = np.where(n > 0, personal, law_of(model.grid).mean)
        return table.around(personal)
    weight = np.zeros(len(n)) if model.plug.is_point else n / (n + model.plug.concentration)
    personal = model.plug.mean + weight * (_raw(pairs) - model.plug.mean)
    variance = moments.variance + (moments.mean - personal) ** 2
    return table.around(personal, variance=variance, weight=weight)


def step_limit(tables: Sequence[RateTable], margins: Sequence[Pairs]) -> float:
    """min(1, h sum V(p) / sum n d^2 / (1 - w)): the share of the steps d that is safe.

    Moving the raw rate of a group by t d = t (1 - w) (mean - raw) lowers its expected squared error
    by 2 t h (1 - w) V(p) / n - t^2 d^2 for any rates, h = 1 - 1/m for the mean's own error. Groups
    are weighted by n / (1 - w), so that each of them says equally much: else the few smallest
    decide, by chance. Under the fitted population both sums agree on average, and t = 1. Where
    rates are at two extremes, steps are longer than that, and the best t is below 1.
    """
    gained = taken = 0.0
    for table, pairs in zip(tables, margins, strict=True):
        count = np.where(pairs.n > 0, pairs.count, 0)
        gained += float(count @ pairs.family.variance(table.personal)) * (1 - 1 / count.sum())
        step = pairs.divisor * (table.personal - _raw(pairs)) ** 2
        taken += float(count @ (step / np.maximum(1 - table.weight, 1e-9)))
    return min(1.0, gained / taken) if taken > 0 else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RateLaw:
    """Mean, variance sigma^2 and E V of a new group's rate, and the error of the mean.

    They are averages over the grid, so they stay positive if the fitted population is a point.
    """

    family: CountFamily
    mean: float
    variance: float
    inner: float
    mean_variance: float

    @property
    def concentration(self) -> float:
        return self.inner / self.variance


def law_of(grid: PopulationGrid) -> RateLaw:
    """The moments of a rate under the grid.

    Where rates have no upper bound, medians over the grid take the place of means, which a handful
    of groups does not make finite: two groups with a rate of 1 would have a mean of 4.
    """
    family = grid.family
    over = partial(typical, family, grid.weight)
    mean = over(grid.mean)
    return RateLaw(
        family=family,
        mean=mean,
        variance=over(grid.variance),
        inner=over(grid.variance * grid.concentration),
        mean_variance=over(grid.mean_variance + (grid.mean - mean) ** 2),
    )


def typical(family: CountFamily, weight: np.ndarray, values: np.ndarray) -> float:
    """The mean of the values or, where rates have no upper bound, their median."""
    if np.isfinite(family.top):
        return float(weight @ values)
    order = np.argsort(values)
    middle = int(np.searchsorted(np.cumsum(weight[order]), 0.5))
    return float(values[order][min(middle, len(order) - 1)])


def average(pairs: Pairs, values: np.ndarray) -> float:
    """The mean of `values`, one per pair, over the groups with trials."""
    count = np.where(pairs.n > 0, pairs.count, 0)
    return float(count @ values / count.sum())


def raw_error(pairs: Pairs, mean: np.ndarray, variance: np.ndarray) -> float:
    """The average of E[V(p) | data] / n, from the posterior mean and variance of each pair."""
    return average(pairs, pairs.family.expected_variance(mean, variance) / pairs.divisor)


def errors_of(
    model: ConjugateModel, pairs: Pairs, data: Tally, variance: np.ndarray
) -> ExpectedErrors:
    """Expected errors of the table, of the raw rates and of one common rate.

    All are conditional on the data, so that estimates equal to the common rate have no gain over
    it. For a known population, its mean is the common rate.
    """
    moments = posterior.moments(model.grid, pairs.n, pairs.successes)
    rate = float(model.grid.mean[0]) if model.fitted_by == "known" else data.common_mean()[0]
    return ExpectedErrors(
        personal=average(pairs, variance),
        raw=raw_error(pairs, moments.mean, moments.variance),
        pooled=average(pairs, moments.variance + (moments.mean - rate) ** 2),
    )


def population_of(model: ConjugateModel, data: Tally) -> FittedPopulation:
    """The fitted population: `plug`, else the one with the mean and variance of the grid."""
    law = law_of(model.grid)
    if model.plug is None:
        scale = np.sqrt(law.variance)
        errors = {}
        if model.fitted_by != "known":
            errors = {
                "mean": float(np.sqrt(law.mean_variance)),
                "heterogeneity": _scale_error(model),
            }
        parameters = data.family.parameters(law.mean, law.concentration)
        return _described(model, law.mean, float(scale), parameters, errors)
    plug = model.plug
    errors = plug.standard_errors(data.total_size)
    parameters = {"mean": plug.mean}  # those of a point, whose concentration is infinite
    if not plug.is_point:
        parameters = data.family.parameters(plug.mean, plug.concentration)
    return _described(model, plug.mean, float(np.sqrt(plug.variance)), parameters, errors)


def _scale_error(model: ConjugateModel) -> float:
    """The posterior standard deviation of sigma; from medians where rates have no bound."""
    grid = model.grid
    over = partial(typical, grid.family, grid.weight)
    scale = np.sqrt(grid.family.variance(grid.mean) / (grid.concentration + grid.family.excess))
    return float(np.sqrt(over((scale - over(scale)) ** 2)))


def _described(
    model: ConjugateModel,
    mean: float,
    scale: float,
    parameters: dict[str, float],
    errors: dict[str, float],
) -> FittedPopulation:
    return FittedPopulation(
        kind=model.grid.family.population,
        fitted_by=model.fitted_by,
        mean=mean,
        heterogeneity=scale,
        parameters=parameters,
        standard_errors=errors,
    )
