"""Means of groups whose noise variances differ: theta_i ~ N(mean, A), x_i ~ N(theta_i, s_i / n_i).

A group's noise variance s_i is known only through its own rows and the population of variances: it
is a distribution on a few nodes (`variances.noise_nodes`), to which x_i itself contributes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedprior.estimation.gaussian.summary import quantiles
from fedprior.estimation.gaussian.variances import VariancePopulation, noise_nodes

_FITTED = 1 << 14  # largest number of groups used to fit A: an error of 1% in A where it matters
_ROUGH = 1 << 11  # and to find its range
_POINTS, _ENOUGH, _DEPTH = 25, 9, 18.0  # as in `nodes`
_CHUNK = 1 << 18  # numbers per array in one chunk of groups, so that they stay in the cache
_MOST = 1 << 21  # components in all, above which a few populations stand for the posterior of A
_STRATA = 5
_SHARP = 0.02  # relative error of A below which one population stands for all


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyGroups:
    """Group means x (groups, d), sizes, and sums of squares with their degrees of freedom.

    x is 0 for a group without rows. A group with `freedom` 0 has the noise of the population.
    """

    x: np.ndarray
    n: np.ndarray
    freedom: np.ndarray
    within: np.ndarray
    variances: VariancePopulation
    num_groups: int

    def some(self, places: np.ndarray | slice) -> "NoisyGroups":
        return NoisyGroups(
            x=self.x[places],
            n=self.n[places],
            freedom=self.freedom[places],
            within=self.within[places],
            variances=self.variances,
            num_groups=self.num_groups,
        )

    def thin(self, most: int) -> "NoisyGroups":
        return self.some(slice(None, None, -(-len(self.n) // most)))

    def chunks(self, each: int) -> Iterator[tuple[slice, "NoisyGroups"]]:
        """Pieces of the groups, for arrays of `each` numbers per group."""
        size = max(1, _CHUNK // each)
        for start in range(0, len(self.n), size):
            rows = slice(start, start + size)
            yield rows, self.some(rows)

    def sampling(self) -> tuple[np.ndarray, np.ndarray]:
        """Possible sampling variances of each mean and their log-probabilities, (nodes, groups)."""
        nodes = noise_nodes(self.variances, self.freedom, self.within, num_groups=self.num_groups)
        with np.errstate(divide="ignore"):
            return nodes.variance / self.n, nodes.log_probability


@dataclass(frozen=True, kw_only=True, eq=False)
class Populations:
    """N(mean, between) with probabilities: the posterior of A, and of the mean given A.

    `mean` is (populations, d), `error` the squared standard error of each of its coordinates,
    `spread` half of A's 68% interval.
    """

    probability: np.ndarray
    between: np.ndarray
    mean: np.ndarray
    error: np.ndarray
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pull:
    """Sums over groups at one population: log-likelihood, its slope in the mean, two curvatures."""

    log_likelihood: float
    slope: np.ndarray
    weight: float
    information: float

    def __add__(self, other: "_Pull") -> "_Pull":
        return _Pull(
            log_likelihood=self.log_likelihood + other.log_likelihood,
            slope=self.slope + other.slope,
            weight=self.weight + other.weight,
            information=self.information + other.information,
        )

    @property
    def error(self) -> float:
        """The squared standard error of the mean; the information observed may be too small."""
        return 1 / max(self.information, 0.05 * self.weight)


def fit_populations(groups: NoisyGroups, *, theta_variance: float | None = None) -> Populations:
    """The posterior of A under the prior 1 / (v0 + A), v0 the harmonic mean of the variances.

    The mean has a flat prior, which is integrated over. All groups determine the mean; A comes from
    16,384 of them at most.
    """
    held = groups if groups.n.all() else groups.some(np.flatnonzero(groups.n))
    used = held.thin(_FITTED)
    sampling = used.sampling()
    mean = used.x.mean(axis=0)
    if theta_variance is not None:
        between, probability, spread = np.array([theta_variance]), np.ones(1), 0.0
    else:
        between, probability, mean = _posterior(used.x, *sampling)
        low, _, high = quantiles(between, probability)
        spread = float(high - low) / 2
        components = len(between) * sampling[0].shape[0] * len(groups.n)
        if components > _MOST:
            between, probability = _fewer(between, probability)
    means, errors = [], []
    for each in between:
        mean, pull = _best_mean(used.x, *sampling, each, mean)
        if len(used.n) < len(held.n):  # a step of Newton's method with all groups
            pull = _all(held, each, mean, len(sampling[0]))
            mean = mean + pull.slope * pull.error
        means.append(mean)
        errors.append(pull.error)
    return Populations(
        probability=probability,
        between=between,
        mean=np.array(means),
        error=np.array(errors),
        spread=spread,
    )


def _posterior(
    x: np.ndarray, variance: np.ndarray, log_probability: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A grid of A with probabilities, and a mean to start from."""
    precision = (np.exp(log_probability) / variance).sum(axis=0)
    middle = float(1 / precision.mean())
    mean = x.mean(axis=0)
    low, high = 0.0, float(np.log1p(1e6 * max(1.0, float(x.var(axis=0).mean()) / middle)))
    for most in (_ROUGH, _FITTED) if len(x) > _ROUGH else (_FITTED,):
        thin = slice(None, None, -(-len(x) // most))
        used = (x[thin], variance[:, thin], log_probability[:, thin])
        while True:
            grid = np.linspace(low, high, _POINTS)
            between = middle * np.expm1(grid)  # flat in `grid` is the prior 1 / (v0 + A)
            density = np.empty(_POINTS)
            for number, each in enumerate(between):
                mean, pull = _best_mean(*used, each, mean)
                density[number] = pull.log_likelihood + x.shape[1] * np.log(pull.error) / 2
            inside = np.flatnonzero(density > density.max() - _DEPTH)
            done = len(inside) >= _ENOUGH or high - low < 1e-9
            low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, _POINTS - 1)]
            if done:
                break
    probability = np.exp(density - density.max())
    probability[[0, -1]] /= 2  # the trapezoid rule
    return between[inside], probability[inside] / probability[inside].sum(), mean


def _fewer(between: np.ndarray, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The means of A over strata of equal probability: one if A is sharp, else five."""
    mean = float(probability @ between)
    deviation = float(np.sqrt(probability @ (between - mean) ** 2))
    number = 1 if deviation <= _SHARP * mean else _STRATA
    edges = np.concatenate([[0.0], np.cumsum(probability)])
    total = np.concatenate([[0.0], np.cumsum(probability * between)])
    parts = np.diff(np.interp(np.linspace(0, edges[-1], number + 1), edges, total))
    return parts * number, np.full(number, 1 / number)


def _pull(
    x: np.ndarray,
    variance: np.ndarray,
    log_probability: np.ndarray,
    between: float,
    mean: np.ndarray,
) -> _Pull:
    dimension = x.shape[1]
    precision = 1 / (between + variance)
    apart = x - mean
    squares = (apart**2).sum(axis=1)
    density = log_probability + dimension / 2 * np.log(precision) - squares / 2 * precision
    top = density.max(axis=0)
    share = np.exp(density - top)
    total = share.sum(axis=0)
    share *= precision
    weight = share.sum(axis=0) / total
    share *= precision
    bend = (share.sum(axis=0) / total - weight**2) * squares / dimension
    return _Pull(
        log_likelihood=float((np.log(total) + top).sum()),
        slope=weight @ apart,
        weight=float(weight.sum()),
        information=float((weight - bend).sum()),
    )


def _all(groups: NoisyGroups, between: float, mean: np.ndarray, each: int) -> _Pull:
    parts = (_pull(part.x, *part.sampling(), between, mean) for _, part in groups.chunks(each))
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def _best_mean(
    x: np.ndarray,
    variance: np.ndarray,
    log_probability: np.ndarray,
    between: float,
    mean: np.ndarray,
) -> tuple[np.ndarray, _Pull]:
    """The mean of highest likelihood at one A, by EM from `mean`, to 1e-3 of its error."""
    for _ in range(30):
        pull = _pull(x, variance, log_probability, between, mean)
        step = pull.slope / pull.weight
        mean = mean + step
        if np.abs(step).max() ** 2 * pull.weight < 1e-6:
            break
    return mean, pull
