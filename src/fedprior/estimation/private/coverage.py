"""Intervals of shrunken rates whose average coverage holds for any population."""

import numpy as np

from fedprior.estimation.private.law import TRIALS, CountLaw

_POINTS = 201  # rates at which noncoverage is evaluated; half their distance is added to the width
_MOST_SIZES = 48  # for which widths are computed; others take that of the next smaller size
_STEPS = 12  # of bisection
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of noncoverage that is allowed at the center


def rate_intervals(
    n: np.ndarray,
    successes: np.ndarray,
    own: np.ndarray,
    center: float,
    *,
    spread: float,
    level: float,
    law: CountLaw = TRIALS,
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals that contain p in `level` of the groups on average, if mean (p - c)^2 <= `spread`.

    The exact interval of the group's own count (Clopper and Pearson, Garwood) holds for every rate.
    Where groups are shrunk it is cut by an interval about the shrunken rate, which holds for rates
    up to 1, each at half the error, and extended to contain the shrunken rate.
    """
    shrunk = own < 1
    error = (1 - level) / (2 if shrunk[n > 0].any() else 1)
    lower, upper = exact_intervals(n, successes, error, law)
    if shrunk.any():
        # In the order of operations that gives the estimate itself, so that intervals contain it.
        personal = own * (successes / np.where(n > 0, n, 1)) + (1 - own) * center
        reach = np.full(len(n), np.inf)
        reach[shrunk] = _reaches(n[shrunk], own[shrunk], center, spread, error, law)
        lower, upper = np.maximum(lower, personal - reach), np.minimum(upper, personal + reach)
        lower, upper = np.minimum(lower, personal), np.maximum(upper, personal)
    top = law.family.top
    return np.clip(lower, 0, top), np.clip(upper, 0, top)


def exact_intervals(
    n: np.ndarray, counts: np.ndarray, error: float, law: CountLaw
) -> tuple[np.ndarray, np.ndarray]:
    """The family's exact interval of every group; all rates for one without data."""
    sizes, place = np.unique(n, return_inverse=True)
    base = int(counts.max()) + 1
    pairs, back = np.unique(place * base + counts, return_inverse=True)
    size, count = np.divmod(pairs, base)
    there = sizes[size] > 0
    divisor = np.where(there, sizes[size], 1)
    lower, upper = law.family.exact_interval(divisor, count, level=1 - error)
    lower, upper = np.where(there, lower, 0.0), np.where(there, upper, law.family.top)
    return lower[back], upper[back]


def _reaches(
    n: np.ndarray, own: np.ndarray, center: float, spread: float, error: float, law: CountLaw
) -> np.ndarray:
    """Half widths h such that a rate p is missed with chance error (k + (1 - k) (p - c)^2 / s).

    That is at most `error` on average if mean (p - c)^2 <= s, whatever the rates are and however
    they depend on the sizes. Of several shares k, the one with the shortest intervals is taken.
    """
    sizes, first, place, number = np.unique(
        n, return_index=True, return_inverse=True, return_counts=True
    )
    chosen = np.unique(np.linspace(0, len(sizes) - 1, _MOST_SIZES).round().astype(int))
    weights = own[first[chosen]]
    taken = np.searchsorted(chosen, np.arange(len(sizes)), side="right") - 1
    best = None
    for share in _SHARES:
        slope = (1 - share) * error / max(spread, 1e-12)
        found = _half_widths(sizes[chosen], weights, center, share * error, slope, law)[taken]
        if best is None or number @ found < number @ best:
            best = found
    assert best is not None
    return best[place]


def _half_widths(
    n: np.ndarray, own: np.ndarray, center: float, base: float, slope: float, law: CountLaw
) -> np.ndarray:
    """The smallest h with P(|a X + (1 - a) c - p| > h) <= base + slope (p - c)^2 at all rates p."""
    rate = np.append(np.linspace(0, 1, _POINTS), center)
    allowed = base + slope * (rate - center) ** 2
    low, high = np.zeros(len(n)), np.ones(len(n))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        missed = _missed(n[:, None], own[:, None], center, rate, middle[:, None], law)
        fits = (missed <= allowed).all(axis=1)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high + 0.5 / (_POINTS - 1)


def _missed(
    n: np.ndarray,
    own: np.ndarray,
    center: float,
    rate: np.ndarray,
    reach: np.ndarray,
    law: CountLaw,
) -> np.ndarray:
    """P(|a Z / n + (1 - a) c - p| > reach)."""
    step = np.maximum(own, 1e-9) / np.where(n > 0, n, 1)  # of the estimate, from one more count
    away = rate - (1 - own) * center
    top = n if law is TRIALS else np.inf
    last = np.clip(np.floor((away + reach) / step + 1e-9), -1, top)
    before = np.clip(np.ceil((away - reach) / step - 1e-9) - 1, -1, top)
    inside = law.at_most(last, n, rate) - law.at_most(before, n, rate)
    return 1 - np.maximum(inside, 0.0)
