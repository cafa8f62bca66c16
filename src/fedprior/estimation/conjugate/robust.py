"""Intervals for rates that cover on average whatever the shape of the population."""

from collections.abc import Callable

import numpy as np

from fedprior.estimation.conjugate.model import RateLaw

_NODES = 17  # sizes for which critical values are computed; those between take the larger neighbor
_EXACT = 300  # trials up to which the binomial distribution is summed, and normal above
_LARGEST = 200.0  # critical value above which the interval is wider than that of one group alone
_STEPS = 12  # of the bisection in log c, whose error is then about 1e-3


def robust_bounds(
    n: np.ndarray, successes: np.ndarray, law: RateLaw, *, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) with average coverage of at least `level` over all populations of the moments.

    Given n, the interval is center +- c w sqrt(q (1 - q) / n), center = mu + w (z / n - mu),
    w = n / (n + M), q = (z + 1) / (n + 2). The least c is found for which no distribution of the
    rate with the mean and variance of `law` misses with a higher probability than 1 - level: a
    linear program (as Armstrong, Kolesar and Plagborg-Moller 2022 do for normal data). Where the
    intervals of single groups (Clopper and Pearson 1934) are narrower on average, they are taken:
    they cover at every rate.
    """
    from scipy.special import betaincinv

    sizes, place = np.unique(n, return_inverse=True)
    critical = _critical_values(sizes, law, level)[place]
    center, half = _shrunken(n, successes, law)
    with np.errstate(invalid="ignore"):
        reach = np.where(np.isfinite(critical), critical * half, 1.0)
    lower, upper = np.clip(center - reach, 0, 1), np.clip(center + reach, 0, 1)
    tail, failures = (1 - level) / 2, n - successes
    alone = np.where(successes > 0, betaincinv(np.maximum(successes, 1), failures + 1, tail), 0.0)
    above = np.where(
        failures > 0, betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail), 1.0
    )
    worse = ~np.isfinite(_sum_by(place, upper - lower)) | (
        _sum_by(place, upper - lower) >= _sum_by(place, above - alone)
    )
    return np.where(worse[place], alone, lower), np.where(worse[place], above, upper)


def _sum_by(place: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.bincount(place, weights=values)


def _shrunken(n: np.ndarray, successes: np.ndarray, law: RateLaw) -> tuple[np.ndarray, np.ndarray]:
    """Center and unit half width of the intervals."""
    weight = n / (n + law.concentration)
    rate = (successes + 1) / (n + 2)
    center = law.mean + weight * (successes / n - law.mean)
    return center, weight * np.sqrt(rate * (1 - rate) / n)


def _critical_values(sizes: np.ndarray, law: RateLaw, level: float) -> np.ndarray:
    """C for each size, from a table over at most `_NODES` of them."""
    chosen = sizes
    if len(sizes) > _NODES:
        spaced = np.linspace(np.log(sizes[0]), np.log(sizes[-1]), _NODES)
        chosen = sizes[np.unique(np.searchsorted(np.log(sizes), spaced - 1e-12))]
    rates = _rates(law)
    found = np.array([_critical_value(int(size), rates, law, level) for size in chosen])
    right = np.minimum(np.searchsorted(chosen, sizes), len(chosen) - 1)
    left = np.where(chosen[right] == sizes, right, np.maximum(right - 1, 0))
    return np.maximum(found[left], found[right])


def _rates(law: RateLaw) -> np.ndarray:
    """Rates at which a population may have mass: all of [0, 1], densely where the fitted one is."""
    wide = np.sin(np.linspace(0, np.pi / 2, 161)) ** 2
    near = law.mean + np.sqrt(law.variance) * np.linspace(-8, 8, 97)
    return np.unique(np.concatenate([wide, near[(near > 0) & (near < 1)], [law.mean]]))


def _critical_value(n: int, rates: np.ndarray, law: RateLaw, level: float) -> float:
    """The least c for which the worst population misses with probability 1 - level at most."""
    miss = _exact_misses(n, rates, law) if n <= _EXACT else _normal_misses(n, rates, law)
    low, high = 1.0, _LARGEST
    if _worst(miss(high), rates, law) > 1 - level:
        return np.inf
    for _ in range(_STEPS):
        middle = np.sqrt(low * high)
        enough = _worst(miss(middle), rates, law) <= 1 - level
        low, high = (low, middle) if enough else (middle, high)
    return float(high)


def _exact_misses(n: int, rates: np.ndarray, law: RateLaw) -> Callable[[float], np.ndarray]:
    from scipy.stats import binom

    successes = np.arange(n + 1)
    chance = binom.pmf(successes, n, rates[:, None])
    center, half = _shrunken(np.full(n + 1, float(n)), successes, law)
    far = np.abs(rates[:, None] - center)
    return lambda c: (chance * (far > c * half)).sum(axis=1)


def _normal_misses(n: int, rates: np.ndarray, law: RateLaw) -> Callable[[float], np.ndarray]:
    from scipy.special import ndtr

    error = np.sqrt(np.maximum(rates * (1 - rates), 1 / n) / n)
    bias = law.concentration / n * np.abs(law.mean - rates) / error
    return lambda c: ndtr(-c - bias) + ndtr(bias - c)


def _worst(miss: np.ndarray, rates: np.ndarray, law: RateLaw) -> float:
    """The largest mean of `miss` over distributions on `rates` with the law's mean and variance."""
    from scipy.optimize import linprog

    scaled = (rates - law.mean) / np.sqrt(law.variance)
    equal = np.stack([np.ones_like(rates), scaled, scaled**2])
    found = linprog(-miss, A_eq=equal, b_eq=[1.0, 0.0, 1.0], bounds=(0, None), method="highs")
    return float(-found.fun) if found.status == 0 else 1.0
