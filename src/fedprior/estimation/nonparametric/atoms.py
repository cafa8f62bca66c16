"""theta ~ any distribution on the line: its maximum-likelihood estimate is a few atoms.

The nonparametric maximum-likelihood estimate (Kiefer and Wolfowitz 1956) on a fine grid, for
binomial, Poisson and Gaussian data. Its posterior means are the best known for sparse, multimodal
and heavy-tailed populations, but its posterior quantiles are not valid intervals (at 95% they cover
63 to 88%). It needs many groups. With few, or if the groups are so precise that their range spans
more standard errors than there are groups, it fits their noise and can be worse than raw values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.estimation.families.family import CountFamily
from fedprior.estimation.nonparametric.grid import MOST_CELLS, averages, bin_rows, grid
from fedprior.estimation.nonparametric.solver import fit_atoms as fit_atoms
from fedprior.estimation.statistics import Pairs

_CHUNK_CELLS = 1 << 21  # rows x atoms processed at a time: 16 MB


@dataclass(frozen=True, kw_only=True, eq=False)
class Atoms:
    """theta = `atoms[j]` with probability `weights[j]`, in increasing order.

    `gap` is the duality gap: no population on the grid has a mean log-likelihood per group that is
    higher by more than that. `log_likelihood` is the sum over groups. `spread[j]` is the standard
    deviation of the grid cell that the atom represents, by a Gaussian or Beta kernel; it is 0 if
    the grid is finer than half the standard deviation of every row.
    """

    atoms: np.ndarray
    weights: np.ndarray
    spread: np.ndarray
    gap: float
    log_likelihood: float

    @property
    def mean(self) -> float:
        return float(self.weights @ self.atoms)

    @property
    def variance(self) -> float:
        return float(self.weights @ ((self.atoms - self.mean) ** 2 + self.spread**2))


def fit_rates(pairs: Pairs, *, gap: float = 1e-7) -> Atoms:
    """The argmax over distributions of the rate p of sum count log E[p^z (1 - p)^(n - z)].

    For events, E[p^z exp(-n p)]. The grid is even in asin(sqrt(p)), or in sqrt(p) for events, and
    thus dense near the bounds. Groups without data are ignored. More than 2**24 / atoms
    distinct pairs are binned (`grid.bin_rows`).

    >>> from fedprior.estimation.statistics import Counts, collapse
    >>> counts = Counts(n=np.full(6, 100), successes=np.array([10, 10, 10, 80, 80, 80]))
    >>> population = fit_rates(collapse(counts))
    >>> population.atoms.round(2).tolist(), population.weights.round(2).tolist()
    ([0.1, 0.8], [0.5, 0.5])
    """
    some, family = pairs.held(), pairs.family
    check.require(len(some.n) > 0, "fit_rates", "n", "above 0 for some group", 0)
    n, successes, count = (
        np.asarray(each, np.float64) for each in (some.n, some.successes, some.count)
    )
    angle = family.stabilize(successes / n)
    position, cell = grid(angle, 1 / (4 * n))
    atoms = family.destabilize(position)
    # d p = 2 sqrt(V(p)) d angle; for a rate on its bound the cell is that point
    spread = 2 * np.sqrt(family.variance(atoms)) * cell
    place = bin_rows(angle, 1 / (4 * n), most=MOST_CELLS // len(atoms))
    log_table = partial(_log_rates, family)
    population = _solve(log_table, (count, n, successes), place, atoms, spread, gap)
    total = float(count @ log_likelihood_rates(some, population))
    return replace(population, log_likelihood=total)


def fit_means(
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    count: np.ndarray | None = None,
    gap: float = 1e-7,
) -> Atoms:
    """The argmax over distributions of theta of sum count log E[N(mean; theta, variance)].

    `variance` is the known sampling variance of each row's mean; rows of infinite variance are
    ignored. More than 2**24 / atoms rows are binned (`grid.bin_rows`).
    """
    mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    count = np.ones(len(mean)) if count is None else np.asarray(count, np.float64)
    some = np.isfinite(variance) & (count > 0)
    check.require(bool(some.any()), "fit_means", "variance", "finite for some group", np.inf)
    mean, variance, count = mean[some], variance[some], count[some]
    check.require(bool((variance > 0).all()), "fit_means", "variance", "above 0", 0.0)
    check.require(bool(np.isfinite(mean).all()), "fit_means", "mean", "finite", np.nan)
    atoms, spread = grid(mean, variance)
    place = bin_rows(mean, variance, most=MOST_CELLS // len(atoms))
    population = _solve(_log_means, (count, mean, variance), place, atoms, spread, gap)
    total = float(count @ log_likelihood_means(mean, variance, population))
    return replace(population, log_likelihood=total)


def _solve(
    log_table: Callable[..., np.ndarray],
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    place: np.ndarray | None,
    atoms: np.ndarray,
    spread: np.ndarray,
    gap: float,
) -> Atoms:
    """The atoms that keep some weight; `rows` are counts and two statistics, binned by `place`."""
    count, first, second = rows if place is None else averages(place, *rows)
    with one_thread():
        table = _scaled(log_table(first, second, atoms, spread))
        weights, reached = fit_atoms(table, count, gap=gap)
    kept = weights > 0
    return Atoms(
        atoms=atoms[kept],
        weights=weights[kept],
        spread=spread[kept],
        gap=reached,
        log_likelihood=np.nan,
    )


def posterior_rates(pairs: Pairs, atoms: Atoms) -> tuple[np.ndarray, np.ndarray]:
    """E and Var of p given each pair; those of the population if n = 0."""
    family = pairs.family

    def moments(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        inner, spare = np.broadcast_to(atoms.atoms, (len(first), len(atoms.atoms))), np.zeros(())
        if atoms.spread.any():
            concentration, point = _concentration(family, atoms.atoms, atoms.spread)
            own = first[:, None] + concentration
            inner = np.where(
                point, atoms.atoms, (second[:, None] + concentration * atoms.atoms) / own
            )
            spare = np.where(point, 0.0, family.variance(inner) / (own + family.excess))
        return _log_rates(family, first, second, atoms.atoms, atoms.spread), inner, spare

    return _posterior(
        np.asarray(pairs.n, np.float64), np.asarray(pairs.successes, np.float64), atoms, moments
    )


def posterior_means(
    mean: np.ndarray, variance: np.ndarray, atoms: Atoms
) -> tuple[np.ndarray, np.ndarray]:
    """E and Var of theta given each row's mean; those of the population if the variance is inf."""

    def moments(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first = np.where(np.isfinite(second), first, 0.0)  # a row without data may hold NaN
        inner, spare = np.broadcast_to(atoms.atoms, (len(first), len(atoms.atoms))), np.zeros(())
        if atoms.spread.any():
            own = atoms.spread**2 / (second[:, None] + atoms.spread**2)
            inner = atoms.atoms + own * (first[:, None] - atoms.atoms)
            spare = atoms.spread**2 * (1 - own)
        return _log_means(first, second, atoms.atoms, atoms.spread), inner, spare

    return _posterior(
        np.asarray(mean, np.float64), np.asarray(variance, np.float64), atoms, moments
    )


def log_likelihood_rates(pairs: Pairs, atoms: Atoms) -> np.ndarray:
    """Log P(successes | n) of each pair under the population, with the binomial coefficient."""
    n, successes = np.asarray(pairs.n, np.float64), np.asarray(pairs.successes, np.float64)
    log_likelihood = pairs.family.log_ways(n, successes)
    for rows in _chunks(len(n), len(atoms.atoms)):
        table = _log_rates(pairs.family, n[rows], successes[rows], atoms.atoms, atoms.spread)
        log_likelihood[rows] += _log_sum(table + np.log(atoms.weights))
    return log_likelihood


def log_likelihood_means(mean: np.ndarray, variance: np.ndarray, atoms: Atoms) -> np.ndarray:
    """Log density of each row's mean under the population; 0 if the variance is infinite."""
    mean, variance = np.asarray(mean, np.float64), np.asarray(variance, np.float64)
    known = np.isfinite(variance)
    log_likelihood = np.zeros(len(mean))
    for rows in _chunks(len(mean), len(atoms.atoms)):
        some = known[rows]
        first, second = mean[rows][some], variance[rows][some]
        table = _log_means(first, second, atoms.atoms, atoms.spread) + np.log(atoms.weights)
        log_likelihood[rows][some] = _log_sum(table) - 0.5 * np.log(2 * np.pi * second)
    return log_likelihood


def _log_rates(
    family: CountFamily, n: np.ndarray, successes: np.ndarray, atoms: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    """Log p(z | n, p) without constants, p the atom, or conjugate with its mean and spread."""
    table = family.log_table(n, successes, atoms)
    concentration, point = _concentration(family, atoms, spread)
    if not point.all():
        blurred = _blurred(family, n, successes, atoms, concentration)
        row, atom = np.nonzero(blurred & ~point)
        table[row, atom] = family.row_log_likelihood(
            n[row], successes[row], atoms[atom], concentration[atom]
        )
    return table


def _blurred(
    family: CountFamily,
    n: np.ndarray,
    successes: np.ndarray,
    atoms: np.ndarray,
    concentration: np.ndarray,
) -> np.ndarray:
    """Mask of rows and atoms for which the width of the cell matters.

    A row whose variance is 200 times that of the cell cannot distinguish the cell from its center.
    The score by the angle overstates the decrease of the log-likelihood at most twofold, so a cell
    60 below the nearest one has less than exp(-30) of the row's mass.
    """
    some = np.where(n > 0, n, 1.0)[:, None]
    angle = family.stabilize(successes[:, None] / some) - family.stabilize(atoms)
    score = 2 * angle**2 / (1 / some + 1 / (concentration + family.excess))
    near = score <= score.min(axis=1, keepdims=True) + 60
    return near & (200 * n[:, None] > concentration)


def _concentration(
    family: CountFamily, atoms: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """M of the conjugate member with the atom's mean and spread, and a mask of point atoms."""
    point = spread <= 0
    variance = np.where(point, 1.0, spread**2)
    concentration = np.maximum(family.variance(atoms) / variance - family.excess, 1e-3)
    return np.where(point, 1.0, concentration), point


def _log_means(
    mean: np.ndarray, variance: np.ndarray, atoms: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    """Log N(mean; atom, variance + spread^2) without the row's constant -log(2 pi variance) / 2.

    An infinite variance gives 0.
    """
    table = (mean[:, None] - atoms) ** 2
    if not spread.any():
        table *= (-0.5 / variance)[:, None]
        return table
    extra = spread**2 / variance[:, None]
    table *= -0.5 / (variance[:, None] * (1 + extra))
    return table - 0.5 * np.log1p(extra)


def _posterior(
    first: np.ndarray,
    second: np.ndarray,
    atoms: Atoms,
    moments: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of theta over the atoms, including the spread of each cell."""
    mean, variance = np.empty(len(first)), np.empty(len(first))
    for rows in _chunks(len(first), len(atoms.atoms)):
        table, inner, spare = moments(first[rows], second[rows])
        table = _scaled(table + np.log(atoms.weights))
        table /= table.sum(axis=1, keepdims=True)
        mean[rows] = (table * inner).sum(axis=1)
        off = (inner - mean[rows][:, None]) ** 2
        variance[rows] = (table * (off + spare)).sum(axis=1)
    return mean, variance


def _scaled(table: np.ndarray) -> np.ndarray:
    """exp(table), each row divided by its largest entry (in place)."""
    table -= table.max(axis=1, keepdims=True)
    return np.exp(table, out=table)


def _log_sum(table: np.ndarray) -> np.ndarray:
    most = table.max(axis=1)
    return most + np.log(np.exp(table - most[:, None]).sum(axis=1))


def _chunks(num_rows: int, num_atoms: int) -> Iterator[slice]:
    size = max(1, _CHUNK_CELLS // num_atoms)
    for start in range(0, num_rows, size):
        yield slice(start, start + size)
