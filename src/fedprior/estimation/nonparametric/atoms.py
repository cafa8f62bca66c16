"""theta ~ any distribution on the line: its maximum-likelihood estimate is a few atoms.

The nonparametric maximum-likelihood estimate (Kiefer and Wolfowitz 1956) on a fine grid, for
binomial, Poisson and Gaussian data. Its posterior means are the best known for sparse, multimodal
and heavy-tailed populations, but its posterior quantiles are not valid intervals (at 95% they cover
63 to 88%). It needs many groups. With few, or if the groups are so precise that their range spans
more standard errors than there are groups, it fits their noise and can be worse than raw values.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.threads import one_thread
from fedprior.estimation.intervals import quantile_between
from fedprior.estimation.nonparametric.grid import MOST_ATOMS, MOST_CELLS, bin_rows, grid
from fedprior.estimation.nonparametric.rows import FamilyRows
from fedprior.estimation.nonparametric.solver import fit_atoms as fit_atoms

_CHUNK_CELLS = 1 << 21  # rows x atoms processed at a time: 16 MB
_NEGLIGIBLE = 1e-7  # probability of a member given the row, below which it moves no quantile


@dataclass(frozen=True, kw_only=True, eq=False)
class Atoms:
    """theta ~ a member of mean `atoms[j]` with probability `weights[j]`.

    The member is conjugate, with the standard deviation `spread[j]`, or a point if that is 0. Those
    of a nonparametric population represent cells of a grid, which have a spread only if the grid is
    coarser than half the standard deviation of some row. `gap` is the duality gap: no weights on
    the grid have a mean log-likelihood per group that is higher by more than that.
    `log_likelihood` is the sum over groups. `parameters` name what the members consist of.
    """

    atoms: np.ndarray
    weights: np.ndarray
    spread: np.ndarray
    gap: float = np.nan
    log_likelihood: float = np.nan
    parameters: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return float(self.weights @ self.atoms)

    @property
    def variance(self) -> float:
        return float(self.weights @ ((self.atoms - self.mean) ** 2 + self.spread**2))


def fit_rows(
    rows: FamilyRows, *, gap: float = 1e-7, most: int | None = None, most_atoms: int = MOST_ATOMS
) -> Atoms:
    """The argmax over distributions of theta of sum count log E[p(row | theta)].

    The grid is even in the coordinate in which the noise of a row does not depend on theta: theta
    itself for values, asin(sqrt(p)) for rates, sqrt for events. Rows without data are ignored. More
    than `most` rows (2**24 / atoms, unless told) are binned (`grid.bin_rows`).

    >>> from fedprior.estimation.nonparametric.counts import count_rows
    >>> from fedprior.estimation.statistics import Counts, collapse
    >>> counts = Counts(n=np.full(6, 100), successes=np.array([10, 10, 10, 80, 80, 80]))
    >>> population = fit_rows(count_rows(collapse(counts)))
    >>> population.atoms.round(2).tolist(), population.weights.round(2).tolist()
    ([0.1, 0.8], [0.5, 0.5])
    """
    some = rows.held & (rows.count > 0)
    check.require(bool(some.any()), "fit_rows", "number of groups with data", "above 0", 0)
    rows = rows.take(some)
    check.require(bool(np.isfinite(rows.raw).all()), "fit_rows", "values", "finite", np.nan)
    good = bool((rows.angle_variance > 0).all())
    check.require(good, "fit_rows", "variance", "above 0", 0.0)
    position, cell = grid(rows.stabilize(rows.raw), rows.angle_variance, most=most_atoms)
    atoms = rows.destabilize(position)
    spread = rows.slope(atoms) * cell  # for a rate on its bound the cell is that point
    few = binned(rows, most=most or MOST_CELLS // len(atoms))
    with one_thread():
        table = _scaled(few.log_table(atoms, spread))
        weights, reached = fit_atoms(table, few.count, gap=gap)
    kept = weights > 0
    found = Atoms(atoms=atoms[kept], weights=weights[kept], spread=spread[kept], gap=reached)
    total = float(rows.count @ log_likelihood(rows, found))
    return replace(found, log_likelihood=total)


def binned(rows: FamilyRows, *, most: int) -> FamilyRows:
    """At most `most` rows: neighbors are averaged where there are more."""
    place = bin_rows(rows.stabilize(rows.raw), rows.angle_variance, most=most)
    return rows if place is None else rows.averaged(place)


def posterior(rows: FamilyRows, atoms: Atoms) -> tuple[np.ndarray, np.ndarray]:
    """E and Var of theta given each row; those of the population without data."""
    mean, variance = np.empty(len(rows.count)), np.empty(len(rows.count))
    points = not atoms.spread.any()
    for part in _chunks(len(mean), len(atoms.atoms)):
        some = rows.take(part)
        share = responsibilities(some, atoms)
        if points:
            mean[part] = share @ atoms.atoms
            inner, spare = atoms.atoms, np.zeros(())
        else:
            inner, spare = some.inner(atoms.atoms, atoms.spread)
            mean[part] = (share * inner).sum(axis=1)
        off = (inner - mean[part][:, None]) ** 2
        variance[part] = (share * (off + spare)).sum(axis=1)
    return mean, variance


def responsibilities(rows: FamilyRows, atoms: Atoms) -> np.ndarray:
    """P(member | row), (rows, members)."""
    table = _scaled(rows.log_table(atoms.atoms, atoms.spread) + np.log(atoms.weights))
    table /= table.sum(axis=1, keepdims=True)
    return table


def log_likelihood(rows: FamilyRows, atoms: Atoms) -> np.ndarray:
    """Log p(row) under the population; 0 without data."""
    logs = rows.log_constant
    for part in _chunks(len(logs), len(atoms.atoms)):
        table = rows.take(part).log_table(atoms.atoms, atoms.spread) + np.log(atoms.weights)
        logs[part] += _log_sum(table)
    return logs


def above(rows: FamilyRows, atoms: Atoms, threshold: float | np.ndarray) -> np.ndarray:
    """P(theta > threshold | row), for one threshold or one for each row."""
    found = np.empty(len(rows.count))
    limit = np.broadcast_to(threshold, found.shape)
    for part in _chunks(len(found), len(atoms.atoms)):
        below = _cdf(rows.take(part), atoms)
        found[part] = 1 - below(limit[part], slice(None))
    return np.clip(found, 0.0, 1.0)


def quantiles(rows: FamilyRows, atoms: Atoms, level: float) -> np.ndarray:
    """The quantile of theta given each row, from the members' posteriors.

    The bracket is Chebyshev's. A quantile that falls on an atom is that atom, to 1e-8 of the
    bracket.
    """
    from scipy.special import ndtri

    found = np.empty(len(rows.count))
    reach = 1.01 / np.sqrt(min(level, 1 - level))
    for part in _chunks(len(found), 8 * len(atoms.atoms)):
        some = rows.take(part)
        mean, variance = posterior(some, atoms)
        deviation = np.sqrt(variance) + 1e-9 * (1e-9 + np.abs(mean))
        ends = [
            rows.stabilize(np.clip(mean + move * deviation, *rows.limits))
            for move in (-reach, ndtri(level), reach)
        ]
        below = _cdf(some, atoms)

        def mass(place: np.ndarray, active: Any, below: Any = below) -> np.ndarray:
            return below(rows.destabilize(place), active)

        found[part] = rows.destabilize(quantile_between(mass, level, *ends))
    return found


def _cdf(rows: FamilyRows, atoms: Atoms) -> Callable[[np.ndarray, Any], np.ndarray]:
    """P(theta <= point | row) as a function of one point for each of the rows picked."""
    share = responsibilities(rows, atoms)
    inner, spare = rows.inner(atoms.atoms, atoms.spread)

    def below(point: np.ndarray, picked: Any) -> np.ndarray:
        part, mean, variance = share[picked], inner[picked], spare[picked]
        row, column = np.nonzero(part > _NEGLIGIBLE)
        mean, variance, at = mean[row, column], variance[row, column], point[row]
        found = (at >= mean).astype(np.float64)
        wide = variance > 0
        found[wide] = rows.below(at[wide], mean[wide], variance[wide])
        weight = part[row, column]
        total = np.bincount(row, weight, minlength=len(point))
        return np.bincount(row, weight * found, minlength=len(point)) / total

    return below


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
