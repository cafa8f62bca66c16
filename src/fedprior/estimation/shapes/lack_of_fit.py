"""A check of the usual population's shape, from the same rows and without another fit.

If the population G were G (1 + e h), E h = 0, the log-likelihood of a row would change by
e E[h(theta) | row]. For h the cosines of G's own distribution function, these derivatives are
bounded; under G, less their regression on the scores of G's parameters, their sums are normal with
known covariance (Neyman's smooth test, for thetas that are not observed).
"""

from functools import cache

import numpy as np

from fedprior.core import random
from fedprior.core.threads import one_thread
from fedprior.estimation.nonparametric.atoms import Atoms, binned, responsibilities
from fedprior.estimation.nonparametric.rows import FamilyRows
from fedprior.estimation.shapes.choice import compare, thinned

FEWEST = 100  # groups below which the check is silent
SIGNIFICANT = 0.02
MATERIAL = 2.0  # percent by which another population has to lower the estimated error
_ENOUGH = 2000  # groups from which on two folds tell whether another population matters
_MOST_ROWS = 1000
_MOST_CHECKED = 100_000  # groups are thinned out beyond: more find what does not matter
_NODES, _INSIDE = 200, 8  # cells of the population, and quantiles inside each
_LEVELS = (np.arange(_NODES * _INSIDE).reshape(_NODES, _INSIDE) + 0.5) / (_NODES * _INSIDE)
_DRAWN = 4000  # rows that stand for the population, for mean and covariance of its derivatives
_KRONECKER = 1.2207440846057596 ** -np.arange(1.0, 4.0)  # x^4 = x + 1: even in three dimensions
_MOST_DIRECTIONS = 20
_GROUPS_A_DIRECTION = 25
_POINT = 0.1  # spread of a cell, in standard errors of the most precise row, that cannot be seen
_SEEN = 2e-4  # share of a direction's variance that the data show, and that the others leave


def shape_warning(rows: FamilyRows) -> str | None:
    """A sentence if the usual population does not fit, unless another one would hardly help.

    Empty if nothing was found, None if the groups are too few to look.
    """
    if rows.num_groups < FEWEST:
        return None
    some = _looked_at(rows)
    mean, spread = some.fit_member()
    chance = chance_of_shape(some, mean, spread)
    if chance >= SIGNIFICANT:
        return ""
    found = compare(some, folds=2 if some.num_groups >= _ENOUGH else 5)
    found = [each for each in found if each.gain + 2 * each.error >= MATERIAL]
    if not found:  # that another population would matter is ruled out
        return ""
    best = max(found, key=lambda each: each.gain if each.gain >= MATERIAL else each.error - 1e9)
    words = f"population={best.name!r} (--population {best.name} on the command line)"
    advice = f"{words} would lower the estimated error by {min(best.gain, 99.0):.0f}%."
    if best.gain < MATERIAL:
        advice = f"try {words}, though these groups do not show by how much that would help."
    return (
        f"The population does not have the shape of a {rows.member.capitalize()} (p = "
        f"{max(chance, 1e-4):.1g}): {advice}"
    )


def chance_of_shape(rows: FamilyRows, mean: float, spread: float) -> float:
    """p-value of the hypothesis that theta comes from the member of this mean and spread."""
    groups = rows.num_groups
    num = int(min(_MOST_DIRECTIONS, groups // _GROUPS_A_DIRECTION))
    if num < 1 or not spread > 0:
        return 1.0
    with one_thread():
        population = _cells(rows, mean, spread)
        null = _derivatives(_expected(rows, mean, spread), population, mean, spread, num)
        own = _derivatives(rows, population, mean, spread, num)
        apart = rows.count @ own / groups - null.mean(axis=0)
        apart /= np.sqrt(1 / groups + 1 / _DRAWN)  # the sequence errs by less than draws
        z = _standardized(apart, null, num + 2)
    return _chance(z) if len(z) else 1.0


def _expected(rows: FamilyRows, mean: float, spread: float) -> FamilyRows:
    """What rows of these sizes look like under the population, at evenly spread quantiles.

    A Kronecker sequence in (size, theta, data), which errs far less than as many draws would.
    """
    even = (0.5 + np.outer(np.arange(1, _DRAWN + 1), _KRONECKER)) % 1.0
    order = np.argsort(rows.angle_variance, kind="stable")
    share = np.cumsum(rows.count[order]) / rows.count.sum()
    chosen = order[np.minimum(np.searchsorted(share, even[:, 0]), len(order) - 1)]
    theta = rows.member_quantile(even[:, 1], mean, spread)
    return rows.take(chosen).drawn(theta, even[:, 2])


def _looked_at(rows: FamilyRows) -> FamilyRows:
    """Rows with data, thinned out and binned if there are many."""
    return binned(thinned(rows, most=_MOST_CHECKED), most=_MOST_ROWS)


def _scores(rows: FamilyRows, mean: float, spread: float) -> np.ndarray:
    """Derivatives of each row's log-likelihood by mean and spread, also times log size; by noise.

    Central differences. The products with log size make the check blind to effects of size.
    """
    step = 1e-3
    move = step * min(spread, rows.widest(mean))
    means = np.array([mean + move, mean - move, mean, mean])
    spreads = np.array([spread, spread, spread * (1 + step), spread * (1 - step)])
    table = rows.log_table(means, spreads)
    own = np.stack([table[:, 0] - table[:, 1], table[:, 2] - table[:, 3]], axis=1) / (2 * step)
    size = np.log(rows.angle_variance)
    size = size - np.average(size, weights=rows.count)
    if np.ptp(size) < 1e-6:
        return own
    return np.concatenate([own, own * size[:, None]], axis=1)


def _cells(rows: FamilyRows, mean: float, spread: float) -> Atoms:
    """The population in cells of equal mass, each with its own mean and spread."""
    fine = rows.member_quantile(_LEVELS.ravel(), mean, spread).reshape(_LEVELS.shape)
    nodes, cell = fine.mean(axis=1), fine.std(axis=1)
    finest = _POINT * rows.slope(nodes) * np.sqrt(rows.angle_variance.min())
    return Atoms(
        atoms=nodes, weights=np.full(_NODES, 1 / _NODES), spread=np.where(cell > finest, cell, 0.0)
    )


def _derivatives(
    rows: FamilyRows, population: Atoms, mean: float, spread: float, num: int
) -> np.ndarray:
    """The scores, and E[cos(k pi G(theta)) | row], k = 1 ... num + 2."""
    waves = np.cos(np.pi * _LEVELS[:, :, None] * np.arange(1, num + 3)).mean(axis=1)
    waves = responsibilities(rows, population) @ waves
    return np.concatenate([_scores(rows, mean, spread), waves], axis=1)


def _standardized(apart: np.ndarray, null: np.ndarray, num_waves: int) -> np.ndarray:
    """Differences of the waves, less their regression on all before them, over its deviation.

    Independent standard normals under the population, from which the rows of `null` are drawn.
    """
    both = np.concatenate([null, apart[None]])
    basis: list[np.ndarray] = []
    found = []
    for number, column in enumerate(both.T):
        for _ in range(2):  # twice, against rounding
            for other in basis:
                column = column - (column[:-1] @ other[:-1]) * other
        left = float(column[:-1] @ column[:-1])
        wave = number >= len(apart) - num_waves
        least = _SEEN / 2 * len(null)  # a cosine has variance 1 / 2
        if left > (least if wave else 1e-12 * float((null[:, number] ** 2).sum())):
            basis.append(column / np.sqrt(left))
            if wave:
                found.append(column[-1] / np.sqrt(left / len(null)))
    return np.array(found)


@cache
def _null(num: int) -> np.ndarray:
    """The statistic of `num` standard normals, sorted, from 20,000 draws."""
    return np.sort(_statistic(random.stream(0, "split").standard_normal((20_000, num))))


def _statistic(z: np.ndarray) -> np.ndarray:
    """max_k (z_1^2 + ... + z_k^2 - k) / sqrt(2 k): smooth departures first, fine ones as well."""
    number = np.arange(1, z.shape[-1] + 1)
    return ((np.cumsum(z**2, axis=-1) - number) / np.sqrt(2 * number)).max(axis=-1)


def _chance(z: np.ndarray) -> float:
    null = _null(len(z))
    above = len(null) - int(np.searchsorted(null, float(_statistic(z))))
    return (above + 1) / (len(null) + 1)
