"""Intervals for rates that cover on average whatever the shape of the population."""

from collections.abc import Callable

import numpy as np

from fedprior.estimation.conjugate.model import RateLaw

_NODES = 17  # sizes for which critical values are computed; those between take the larger neighbor
_FARTHEST = 60.0  # standard deviations
_LARGEST = 200.0  # critical value above which the interval is wider than that of one group alone
_STEPS = 12  # of the bisection in log c, whose error is then about 1e-3


def robust_bounds(
    n: np.ndarray, successes: np.ndarray, law: RateLaw, *, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) with average coverage of at least `level` over all populations of the moments.

    Given n, the interval is center +- c w sqrt(V(q) / n), center = mu + w (z / n - mu),
    w = n / (n + M), q the raw rate moved a little off its bounds. The least c is found for which no
    distribution of the rate with the mean and variance of `law` misses with a higher probability
    than 1 - level: a linear program (as Armstrong, Kolesar and Plagborg-Moller 2022 do for normal
    data). Where the
    exact intervals of single groups are narrower on average, they are taken: they cover at every
    rate.
    """
    family = law.family
    sizes, place = np.unique(n, return_inverse=True)
    critical = _critical_values(sizes, law, level)[place]
    center, half = _shrunken(n, successes, law)
    with np.errstate(invalid="ignore"):
        reach = np.where(np.isfinite(critical), critical * half, family.top)
    lower, upper = np.clip(center - reach, 0, family.top), np.clip(center + reach, 0, family.top)
    alone, above = family.exact_interval(n, successes, level=level)
    worse = ~np.isfinite(_sum_by(place, upper - lower)) | (
        _sum_by(place, upper - lower) >= _sum_by(place, above - alone)
    )
    return np.where(worse[place], alone, lower), np.where(worse[place], above, upper)


def _sum_by(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.bincount(place, weights=values)


def _shrunken(n: np.ndarray, successes: np.ndarray, law: RateLaw) -> tuple[np.ndarray, np.ndarray]:
    """Center and unit half width of the intervals."""
    weight = n / (n + law.concentration)
    rate = (successes + 1) / (n + 2 * law.family.excess)
    center = law.mean + weight * (successes / n - law.mean)
    return center, weight * np.sqrt(law.family.variance(rate) / n)


def _critical_values(sizes: np.ndarray, law: RateLaw, level: float) -> np.ndarray:
    """C for each size, from a table over at most `_NODES` of them."""
    chosen = sizes
    if len(sizes) > _NODES:
        spaced = np.linspace(np.log(sizes[0]), np.log(sizes[-1]), _NODES)
        chosen = sizes[np.unique(np.searchsorted(np.log(sizes), spaced - 1e-12))]
    rates = _rates(law)
    found = np.array([_critical_value(float(size), rates, law, level) for size in chosen])
    right = np.minimum(np.searchsorted(chosen, sizes), len(chosen) - 1)
    left = np.where(chosen[right] == sizes, right, np.maximum(right - 1, 0))
    return np.maximum(found[left], found[right])


def _rates(law: RateLaw) -> np.ndarray:
    """Rates at which a population may have mass: all of them, densely where the fitted one is.

    Where rates have no upper bound, those of 60 standard deviations end the grid: farther out there
    can be less than 1 / 3,600 of the groups.
    """
    family, scale = law.family, np.sqrt(law.variance)
    top = min(family.top, law.mean + _FARTHEST * scale)
    wide = family.destabilize(np.linspace(0, family.stabilize(top), 161))
    near = law.mean + scale * np.linspace(-8, 8, 97)
    return np.unique(np.concatenate([wide, near[(near > 0) & (near < top)], [law.mean]]))


def _critical_value(n: float, rates: np.ndarray, law: RateLaw, level: float) -> float:
    """The least c for which the worst population misses with probability 1 - level at most."""
    possible = law.family.counts(n, rates)
    if possible is None:
        miss = _normal_misses(n, rates, law)
    else:
        miss = _exact_misses(n, rates, law, *possible)
    low, high = 1.0, _LARGEST
    if _worst(miss(high), rates, law) > 1 - level:
        return np.inf
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        enough = _worst(miss(middle), rates, law) <= 1 - level
        low, high = (low, middle) if enough else (middle, high)
    return float(high)


def _exact_misses(
    n: float, rates: np.ndarray, law: RateLaw, successes: np.ndarray, chance: np.ndarray
) -> Callable[[float], np.ndarray]:
    center, half = _shrunken(np.full(len(successes), n), successes, law)
    far = np.abs(rates[:, None] - center)
    return lambda c: (chance * (far > c * half)).sum(axis=1)


def _normal_misses(n: float, rates: np.ndarray, law: RateLaw) -> Callable[[float], np.ndarray]:
    from scipy.special import ndtr

    error = np.sqrt(np.maximum(law.family.variance(rates), 1 / n) / n)
    bias = law.concentration / n * np.abs(law.mean - rates) / error
    return lambda c: ndtr(-c - bias) + ndtr(bias - c)


def _worst(miss: np.ndarray, rates: np.ndarray, law: RateLaw) -> float:
    """The largest mean of `miss` over distributions on `rates` with the law's mean and variance."""
    from scipy.optimize import linprog

    scaled = (rates - law.mean) / np.sqrt(law.variance)
    equal = np.stack([np.ones_like(rates), scaled, scaled**2])
    found = linprog(-miss, A_eq=equal, b_eq=[1.0, 0.0, 1.0], bounds=(0, None), method="highs")
    return float(-found.fun) if found.status == 0 else 1.0
