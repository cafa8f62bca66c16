"""Populations that are mixtures of conjugate members, fitted by likelihood for any family.

`scale-mixture`: members of one mean and of many spreads, their weights by maximum likelihood (as
`ashr` and `ebnm` have them for means). `spike-and-slab`: a point and one member.

Below 2,000 groups such a fit is itself uncertain: the population is then the average of several,
fitted with random weights of the groups (the Bayesian bootstrap, Rubin 1981), and of the conjugate
populations that the data allow, with the weights that BIC gives the two. So intervals allow for the
populations that could as well have given the data.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedprior.core import random
from fedprior.core.threads import one_thread
from fedprior.estimation.nonparametric.atoms import (
    Atoms,
    binned,
    fit_rows,
    log_likelihood,
    responsibilities,
)
from fedprior.estimation.nonparametric.rows import FamilyRows
from fedprior.estimation.nonparametric.solver import fit_atoms

_MOST_ROWS = 1000  # rows that a fit looks at; more are binned
_AVERAGED = 2000  # groups below which several fits are averaged
_NUM_FITS = 12
_STEP = 1.5  # factor between neighboring spreads
_NARROWEST = 0.1  # the least spread, in standard errors of the most precise row
_LEAST = 1e-6  # weight of a member that is kept
_DEPTH = 12.0  # log-likelihoods this far below the highest are ignored
_NUM_SPREADS = 16
_MOST_STEPS = 40  # of a quasi-Newton search
_GAP = 1e-6  # of the weights; a fit of 2,000 groups is not known to 1e-3


def usual(rows: FamilyRows) -> Atoms:
    """The conjugate population itself."""
    mean, spread = rows.fit_member()
    return Atoms(atoms=np.array([mean]), weights=np.ones(1), spread=np.array([spread]))


def fit_scale_mixture(rows: FamilyRows, *, average: bool = True) -> Atoms:
    """Members of a common mean, spreads in steps of 1.5, weights by maximum likelihood."""
    rows = _seen(rows)
    with one_thread():
        return _averaged(rows, _one_scale_mixture(rows, None), _one_scale_mixture, average)[0]


def fit_spike_and_slab(rows: FamilyRows, *, average: bool = True) -> Atoms:
    """Theta is a point, with some probability, else a conjugate member with a mean of its own.

    The point has the width that the data cannot resolve.
    """
    if _is_constant(rows):
        return fit_scale_mixture(rows, average=average)
    rows = _seen(rows)
    with one_thread():
        found = _one_spike_and_slab(rows, _heaviest_atom(rows))
        averaged, share = _averaged(rows, found, _one_spike_and_slab, average)
    (spike, middle), (mass, _), (_, width) = found.atoms, found.weights, found.spread
    named = {"spike": spike, "spike_share": share * mass, "slab_mean": middle, "slab_scale": width}
    return replace(averaged, parameters={key: float(each) for key, each in named.items()})


def _is_constant(rows: FamilyRows) -> bool:
    raw = rows.raw[rows.held & (rows.count > 0)]
    return bool(np.ptp(raw) == 0)


def _seen(rows: FamilyRows) -> FamilyRows:
    """Rows with data, binned if there are many."""
    return binned(rows.take(rows.held & (rows.count > 0)), most=_MOST_ROWS)


def _averaged(
    rows: FamilyRows, first: Atoms, fit: Callable[[FamilyRows, Atoms], Atoms], average: bool
) -> tuple[Atoms, float]:
    """The population to use, and the share of the fits in it.

    The rest are conjugate populations, with the weight that BIC gives them for having two
    parameters less. With few groups the fits are repeated with random weights of the groups, and
    the conjugate populations are all that the data allow.
    """
    few = average and rows.num_groups < _AVERAGED
    plain = usual(rows)
    gained = float(rows.count @ (log_likelihood(rows, first) - log_likelihood(rows, plain)))
    evidence = gained - np.log(max(rows.num_groups, 1.0))
    share = float(1 / (1 + np.exp(-np.clip(evidence, -30, 30))))
    found = [first]
    if few and share > _LEAST:
        draws = random.stream(0, "split")
        again = (rows.with_count(draws.gamma(rows.count)) for _ in range(_NUM_FITS))
        found = [fit(each, first) for each in again if not _is_constant(each)] or [first]
    merged = [(share / len(found), each) for each in found]
    return _merged([*merged, (1 - share, _allowed(rows, plain) if few else plain)]), share


def _allowed(rows: FamilyRows, plain: Atoms) -> Atoms:
    """Conjugate populations with their posterior probabilities, given the mean.

    The prior of the variance A is 1 / (v0 + A), v0 the harmonic mean of the sampling variances; the
    error of the mean widens each member.
    """
    mean = float(plain.atoms[0])
    noise = rows.slope(mean) ** 2 * rows.angle_variance
    middle = rows.num_groups / float(rows.count @ (1 / noise))
    spread = _spreads(rows, mean)
    for _ in range(2):
        logs = rows.count @ rows.log_table(np.full(len(spread), mean), spread)
        inside = np.flatnonzero(logs > logs.max() - _DEPTH)
        low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(spread) - 1)
        spread = np.linspace(0 if low == 0 else spread[low], spread[high], _NUM_SPREADS + 1)[1:]
    logs = rows.count @ rows.log_table(np.full(len(spread), mean), spread)
    weights = np.exp(logs - logs.max()) * spread / (middle + spread**2)
    error = 1 / (rows.count @ (1 / (noise[:, None] + spread**2)))
    wide = np.minimum(np.sqrt(spread**2 + error), max(rows.widest(mean), spread.max()))
    return Atoms(atoms=np.full(len(spread), mean), weights=weights / weights.sum(), spread=wide)


def _merged(found: list[tuple[float, Atoms]]) -> Atoms:
    """The average of populations with these shares."""
    atoms, spread = (
        np.concatenate([getattr(each, name) for _, each in found]) for name in ("atoms", "spread")
    )
    weights = np.concatenate([share * each.weights for share, each in found])
    kept = weights > _LEAST * weights.sum()
    weights = weights[kept] / weights[kept].sum()
    return Atoms(atoms=atoms[kept], weights=weights, spread=spread[kept])


def _one_scale_mixture(rows: FamilyRows, start: Atoms | None) -> Atoms:
    """The weights at each common mean are a convex problem; the mean is searched for."""
    from scipy.optimize import minimize_scalar

    low, high = _range_of_mean(rows, start)
    best: dict[str, Atoms] = {}
    values: list[float] = []

    def objective(place: float) -> float:
        mean = float(rows.destabilize(place))
        spread = _spreads(rows, mean)
        table = rows.log_table(np.full(len(spread), mean), spread)
        most = table.max(axis=1)
        table = np.exp(table - most[:, None])
        weights, _ = fit_atoms(table, rows.count, gap=_GAP)
        value = -float(rows.count @ (np.log(table @ weights) + most))
        if not values or value < min(values):
            kept = weights > 0
            best["found"] = Atoms(
                atoms=np.full(int(kept.sum()), mean), weights=weights[kept], spread=spread[kept]
            )
        values.append(value)
        return value

    minimize_scalar(
        objective, bounds=(low, high), method="bounded", options={"xatol": 1e-2 * (high - low)}
    )
    return best["found"]


def _range_of_mean(rows: FamilyRows, start: Atoms | None) -> tuple[float, float]:
    """Where the common mean is looked for: three standard errors about the previous one."""
    if start is not None:
        middle, spread = start.mean, np.sqrt(start.variance)
    else:
        middle, spread = rows.fit_member()
    noise = rows.slope(middle) ** 2 * rows.angle_variance
    error = 1 / np.sqrt(float(rows.count @ (1 / (noise + spread**2))))
    reach = 4 * error / float(rows.slope(middle))
    place = float(rows.stabilize(middle))
    ends = rows.stabilize(rows.raw)
    low, high = max(place - reach, float(ends.min())), min(place + reach, float(ends.max()))
    return (low, high) if low < high else (place - reach, place + reach)


def _spreads(rows: FamilyRows, mean: float) -> np.ndarray:
    """Spreads from a tenth of the smallest standard error to the widest that makes sense."""
    error = float(rows.slope(mean)) * np.sqrt(float(rows.angle_variance.min()))
    widest = max(rows.widest(mean), 2 * _NARROWEST * error)
    num = int(np.ceil(np.log(widest / (_NARROWEST * error)) / np.log(_STEP))) + 1
    return np.geomspace(_NARROWEST * error, widest, num)


def _one_spike_and_slab(rows: FamilyRows, start: Atoms) -> Atoms:
    """Quasi-Newton steps over the place of the point, mean and spread of the slab, and share.

    Places and spreads are shares of the range of the values, so that the unit does not matter.
    """
    from scipy.optimize import minimize

    first, middle = (float(rows.stabilize(each)) for each in start.atoms)
    at = rows.stabilize(rows.raw)
    low, high = float(at.min()), float(at.max())
    unit = max(high - low, 1e-12)
    error = float(np.sqrt(rows.angle_variance.min()))
    limits = [(0.0, 1.0), (1e-3, 1 - 1e-3)]
    limits += [(np.log(1e-2 * error / unit), np.log(4.0)), (-12.0, 12.0)]

    def population(at: np.ndarray) -> Atoms:
        atoms = np.asarray(rows.destabilize(low + unit * at[:2]), np.float64)
        spread = float(unit * np.exp(at[2]) * rows.slope(atoms[1]))
        spread = min(spread, rows.widest(float(atoms[1])))
        share = 1 / (1 + np.exp(-at[3]))
        return Atoms(
            atoms=atoms, weights=np.array([1 - share, share]), spread=np.array([0.0, spread])
        )

    def objective(at: np.ndarray) -> float:
        found = population(at)
        table = rows.log_table(found.atoms, found.spread) + np.log(found.weights)
        return -float(rows.count @ np.logaddexp(table[:, 0], table[:, 1])) / rows.count.sum()

    share = float(np.clip(start.weights[1], 1e-3, 1 - 1e-3))
    slope = max(float(rows.slope(start.atoms[1])), 1e-300)  # 0 for a rate on its bound
    width = np.log(max(start.spread[1] / slope, 2e-2 * error) / unit)
    begin = np.array(
        [(first - low) / unit, (middle - low) / unit, width, np.log(share / (1 - share))]
    )
    begin = np.clip(begin, *np.transpose(limits))
    found = minimize(
        objective, begin, method="L-BFGS-B", bounds=limits, options={"maxiter": _MOST_STEPS}
    )
    return _with_width(rows, population(found.x if found.fun <= objective(begin) else begin))


def _with_width(rows: FamilyRows, found: Atoms) -> Atoms:
    """The point with a tenth of the least standard error, and that of its own place, as width."""
    noise = rows.slope(found.atoms[0]) ** 2 * rows.angle_variance
    inside = rows.count * responsibilities(rows, found)[:, 0]
    place = 1 / max(float(inside @ (1 / np.maximum(noise, 1e-300))), 1e-300)
    width = np.sqrt(_NARROWEST**2 * float(noise.min()) + min(place, float(noise.max())))
    width = min(float(width), rows.widest(float(found.atoms[0])))
    return replace(found, spread=np.array([width, found.spread[1]]))


def _heaviest_atom(rows: FamilyRows) -> Atoms:
    """The heaviest cluster of the nonparametric population, and the moments of the rest."""
    found = fit_rows(rows, gap=1e-4)
    place = rows.stabilize(found.atoms)
    error = np.sqrt(np.average(rows.angle_variance, weights=rows.count))
    near = np.abs(place[:, None] - place) < error / 2
    center = int(np.argmax(near @ found.weights))
    inside = near[center]
    mass = float(found.weights[inside].sum())
    spike = float(found.weights[inside] @ found.atoms[inside] / mass)
    share = max(1 - mass, 1e-2)
    rest = np.where(inside, 0.0, found.weights)
    rest = found.weights if rest.sum() < 1e-6 else rest
    mean = float(rest @ found.atoms / rest.sum())
    spread = float(np.sqrt(rest @ (found.atoms - mean) ** 2 / rest.sum()))
    return Atoms(
        atoms=np.array([spike, mean]),
        weights=np.array([1 - share, share]),
        spread=np.array([0.0, spread]),
    )
