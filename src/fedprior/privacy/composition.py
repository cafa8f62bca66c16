"""Epsilon of many rounds: the losses of single rounds add up, so their distributions convolve.

The probabilities far above the mean, which determine epsilon, are smaller than the rounding errors
of a Fourier transform of the whole distribution. Each loss is therefore weighted by exp(tilt *
loss) first, such that losses near epsilon are the most probable ones, and the weight is taken out
afterwards. Everything that the computation neglects is bounded and charged to delta.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedprior.privacy.losses import RoundLoss

Array = NDArray[np.float64]
Parts = Sequence[tuple[RoundLoss, int]]  # losses of one round, and the number of rounds

_CUT = 1e-5  # of delta, spent on large losses that are counted as infinite
_NEGLECTED = 1e-9  # weighted probability on either side of the losses that are computed
_ROUNDING = 2.0**-50  # error of the transform for each round, relative to the whole; measured 2^-54
_MARGIN = 1e-9  # of the logarithm of delta, for the rounding errors of the cumulant
_MOST_POINTS = 2**21
LOOSENESS = 2e-4  # of epsilon, by rounding to the grid
_MOST_GRIDS = 8
_STEEPEST = 40.0  # of the logarithm of a slope; steeper ones are those of a single loss


def composed_epsilon(
    rounded: Callable[[float], Parts], approximate: Parts, *, delta: float
) -> float:
    """Return an epsilon for which the composed hockey-stick divergence is at most `delta`.

    `rounded` returns the losses on a given grid, and `approximate` are the losses before they are
    rounded, on a grid of 1. The grid is refined until it hardly matters, or until it has too many
    points to compute. Every grid is sound; epsilon is infinite if none can be computed.
    """
    best, wanted, grid = math.inf, _first_grid(approximate, delta), math.inf
    for _ in range(_MOST_GRIDS):
        if wanted >= grid:
            break
        grid = wanted
        found, slope = _epsilon_on(rounded(grid), grid, delta)
        if math.isinf(found) and math.isfinite(best):
            break
        best = min(best, found)
        wanted = 8 * grid if math.isinf(found) else _suitable(found, slope, approximate)
        grid = math.inf if math.isinf(found) else grid
    return best


def _suitable(epsilon: float, slope: float, parts: Parts) -> float:
    """The largest grid, a power of 2, that increases epsilon by about LOOSENESS.

    Connecting the dots of a grid g adds up to g^2/12 to the mean and up to g^2/6 to the variance of
    each loss. Where log(delta) falls with this slope, a round adds up to (1 + slope) g^2/12 to
    epsilon.
    """
    rounds = sum(number for _, number in parts)
    widest = math.sqrt(12 * LOOSENESS * epsilon / (rounds * (1 + slope)))
    return 2.0 ** math.floor(math.log2(widest)) if widest > 0 else math.inf


def _first_grid(parts: Parts, delta: float) -> float:
    """A grid by the Chernoff bound on epsilon or, where rounding errors hide it, the normal one."""
    tilt = _tilt(parts, 1.0, delta)
    bound = (_cumulant(parts, 1.0, tilt) - math.log(delta)) / tilt
    if bound > 0:
        return _suitable(bound, tilt, parts)
    quantile, spread = math.sqrt(-2 * math.log(delta)), _spread(parts, 1.0, 0.0)
    return _suitable(quantile * spread, quantile / spread, parts)


def _epsilon_on(parts: Parts, grid: float, delta: float) -> tuple[float, float]:
    """Return epsilon on one grid, infinite if it cannot be computed, and -dlog(delta)/depsilon."""
    from scipy.fft import next_fast_len

    share = _CUT * delta / len(parts)
    parts = [(_cut(loss, share / rounds), rounds) for loss, rounds in parts]
    left = delta + math.fsum(
        math.expm1(rounds * math.log1p(-loss.infinite)) for loss, rounds in parts
    )
    if left <= 0:
        return math.inf, 0.0
    tilt = _tilt(parts, grid, left)
    low, high = _window(parts, grid, tilt)
    if high - low > _MOST_POINTS:
        return math.inf, tilt
    size = next_fast_len(high - low, real=True)
    weighted = _convolved(parts, grid, tilt, low, size)
    values = grid * (low + np.arange(size))
    return _solved(weighted, values, parts, grid, tilt, left)


def _solved(
    weighted: Array, losses: Array, parts: Parts, grid: float, tilt: float, delta: float
) -> tuple[float, float]:
    """Return the smallest epsilon with a divergence of at most delta, errors included, and a slope.

    The divergence at epsilon is the sum over losses l > epsilon of P(l) (1 - exp(epsilon - l)),
    where P(l) = weighted(l) exp(cumulant - tilt l). Anything neglected there, of weighted
    probability e, adds at most e exp(cumulant - tilt epsilon) / (tilt + 1).
    """
    cumulant = _cumulant(parts, grid, tilt)
    with np.errstate(divide="ignore"):
        logarithm = np.log(weighted) - tilt * losses
    upper = np.logaddexp.accumulate(logarithm[::-1])[::-1]  # of P(loss or more), divided by
    lower = np.logaddexp.accumulate((logarithm - losses)[::-1])[::-1]  # exp(cumulant)
    with np.errstate(divide="ignore"):
        divergence = upper + np.log(-np.expm1(np.minimum(lower + losses - upper, 0.0)))
    rounds = sum(number for _, number in parts)
    error = math.log((_NEGLECTED + rounds * _ROUNDING) / (tilt + 1)) - tilt * losses
    target = math.log(delta) - cumulant - _MARGIN
    holds = np.flatnonzero(np.logaddexp(divergence, error) <= target)
    if not len(holds):
        return math.inf, tilt
    first = int(holds[0])
    found = float(losses[first])
    if first > 0 and error[first - 1] < target:
        # Between the two points, only terms from `first` on count: upper - exp(epsilon) lower.
        rest = target + math.log(-math.expm1(error[first - 1] - target))
        if rest < upper[first]:
            inside = upper[first] + math.log(-math.expm1(rest - upper[first])) - lower[first]
            found = min(found, max(inside, float(losses[first - 1])))
    slope = math.expm1(min(max(upper[first] - target, 0.0), _STEEPEST))
    # The sums of logarithms above are accurate to this, and epsilon is a difference of two of them.
    finite = logarithm[np.isfinite(logarithm)]
    found += len(losses) * 2.0**-52 * float(np.abs(finite).max())
    return max(found, 0.0), slope


def _cut(loss: RoundLoss, probability: float) -> RoundLoss:
    """Count the largest losses, of at most this probability, as infinite."""
    above = np.cumsum(loss.probabilities[::-1])[::-1]  # of this loss or a larger one
    keep = above > probability
    infinite = float(loss.probabilities[~keep].sum()) + loss.infinite
    return RoundLoss(loss.multiples[keep], loss.probabilities[keep], infinite)


def _moments(loss: RoundLoss, grid: float, tilt: float) -> tuple[float, Array]:
    """Return log E exp(tilt * loss), and the probabilities weighted accordingly."""
    exponent = tilt * grid * loss.multiples
    with np.errstate(divide="ignore"):
        exponent += np.log(loss.probabilities)
    largest = float(exponent.max())
    weighted = np.exp(exponent - largest)
    total = float(weighted.sum())
    return largest + math.log(total), weighted / total


def _cumulant(parts: Parts, grid: float, tilt: float) -> float:
    return math.fsum(rounds * _moments(loss, grid, tilt)[0] for loss, rounds in parts)


def _spread(parts: Parts, grid: float, tilt: float) -> float:
    """Return the standard deviation of the sum of all losses under the weighted probabilities."""
    variance = 0.0
    for loss, rounds in parts:
        _, weighted = _moments(loss, grid, tilt)
        values = grid * loss.multiples
        variance += rounds * float(weighted @ (values - weighted @ values) ** 2)
    largest = max(grid * float(np.abs(loss.multiples).max()) for loss, _ in parts)
    return max(math.sqrt(variance), 1e-6 * largest)


def _tilt(parts: Parts, grid: float, delta: float) -> float:
    """Return the tilt with the least Chernoff bound on epsilon. Any other one would be sound."""
    from scipy.optimize import minimize_scalar

    middle = math.log(math.sqrt(-2 * math.log(delta)) / _spread(parts, grid, 0.0))

    def bound(logarithm: float) -> float:
        tilt = math.exp(logarithm)
        return (_cumulant(parts, grid, tilt) - math.log(delta)) / tilt

    bracket = (middle - 10, middle + 6)
    found = minimize_scalar(bound, bounds=bracket, method="bounded", options={"xatol": 0.02})
    return math.exp(found.x)


def _window(parts: Parts, grid: float, tilt: float) -> tuple[int, int]:
    """Return the multiples of the grid outside of which the sum is improbable, by Chernoff."""
    here = _cumulant(parts, grid, tilt)
    spread = _spread(parts, grid, tilt)
    low = sum(rounds * int(loss.multiples.min()) for loss, rounds in parts)
    high = sum(rounds * int(loss.multiples.max()) for loss, rounds in parts)
    for step in (1 / spread, 2 / spread, 4 / spread, 8 / spread, 16 / spread):
        above = _cumulant(parts, grid, tilt + step) - here - math.log(_NEGLECTED)
        below = here - _cumulant(parts, grid, tilt - step) + math.log(_NEGLECTED)
        high = min(high, math.ceil(above / step / grid))
        low = max(low, math.floor(below / step / grid))
    return low, high + 1


def _convolved(parts: Parts, grid: float, tilt: float, low: int, size: int) -> Array:
    """Return the weighted probabilities of the sums `low` to `low + size - 1`, modulo `size`."""
    transform = np.ones(size // 2 + 1, complex)
    for loss, rounds in parts:
        _, weighted = _moments(loss, grid, tilt)
        folded = np.bincount(loss.multiples % size, weights=weighted, minlength=size)
        transform *= np.fft.rfft(folded) ** rounds
    total = np.fft.irfft(transform, size)
    return np.maximum(np.roll(total, -(low % size)), 0.0)
