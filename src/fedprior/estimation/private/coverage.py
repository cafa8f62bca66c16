"""Intervals of shrunken rates whose average coverage holds for any population."""

import numpy as np

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
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals that contain p in `level` of the groups on average, if mean (p - c)^2 <= `spread`.

    The exact interval of the group's own count (Clopper and Pearson) holds for every rate. Where
    groups are shrunk it is cut by an interval about the shrunken rate, each at half the error, and
    extended to contain the shrunken rate.
    """
    shrunk = own < 1
    error = (1 - level) / (2 if shrunk[n > 0].any() else 1)
    lower, upper = _exact(n, successes, error)
    if shrunk.any():
        personal = own * successes / np.maximum(n, 1) + (1 - own) * center
        reach = np.ones(len(n))
        reach[shrunk] = _reaches(n[shrunk], own[shrunk], center, spread, error)
        lower, upper = np.maximum(lower, personal - reach), np.minimum(upper, personal + reach)
        lower, upper = np.minimum(lower, personal), np.maximum(upper, personal)
    return np.clip(lower, 0, 1), np.clip(upper, 0, 1)


def _exact(n: np.ndarray, successes: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import betaincinv

    base = int(n.max()) + 1
    pairs, place = np.unique(n * base + successes, return_inverse=True)
    size, count = np.divmod(pairs, base)
    lower = betaincinv(np.maximum(count, 1), size - count + 1, error / 2)
    upper = betaincinv(count + 1, np.maximum(size - count, 1), 1 - error / 2)
    lower, upper = np.where(count > 0, lower, 0.0), np.where(count < size, upper, 1.0)
    return lower[place], upper[place]


def _reaches(
    n: np.ndarray, own: np.ndarray, center: float, spread: float, error: float
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
        found = _half_widths(sizes[chosen], weights, center, share * error, slope)[taken]
        if best is None or number @ found < number @ best:
            best = found
    assert best is not None
    return best[place]


def _half_widths(
    n: np.ndarray, own: np.ndarray, center: float, base: float, slope: float
) -> np.ndarray:
    """The smallest h with P(|a X + (1 - a) c - p| > h) <= base + slope (p - c)^2 at all rates p."""
    rate = np.append(np.linspace(0, 1, _POINTS), center)
    allowed = base + slope * (rate - center) ** 2
    low, high = np.zeros(len(n)), np.ones(len(n))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        fits = (_missed(n[:, None], own[:, None], center, rate, middle[:, None]) <= allowed).all(1)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high + 0.5 / (_POINTS - 1)


def _missed(
    n: np.ndarray, own: np.ndarray, center: float, rate: np.ndarray, reach: np.ndarray
) -> np.ndarray:
    """P(|a Z / n + (1 - a) c - p| > reach) for Z binomial."""
    from scipy.special import bdtr

    step = np.maximum(own, 1e-9) / np.maximum(n, 1)  # of the estimate, from one more success
    away = rate - (1 - own) * center
    last = np.clip(np.floor((away + reach) / step + 1e-9), -1, n)
    before = np.clip(np.ceil((away - reach) / step - 1e-9) - 1, -1, n)
    inside = np.where(last >= 0, bdtr(np.maximum(last, 0), n, rate), 0.0)
    inside -= np.where(before >= 0, bdtr(np.maximum(before, 0), n, rate), 0.0)
    return 1 - np.maximum(inside, 0.0)
