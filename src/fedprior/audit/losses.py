"""Epsilon from below, computed from densities, without the library that states the claims.

The privacy loss of one round is a function of one number x, whose law is a mixture of normals or of
Laplace laws. Its values are rounded down to a grid and its tails are dropped, so that composing
them by FFT can only lower epsilon: a claim below the result is too small, whatever its proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedprior.core.algorithm import Array
from fedprior.privacy.events import Event, Relation

Spent = Sequence[tuple[Event, int]]
# The result is too small by 2 * rounds * grid at most; the grid keeps this below this share of it.
GAP = 1e-2
_TAIL = 8.0  # standard deviations; beyond lies 1e-15
_CELLS = 1_000_000


def epsilon_from_below(spent: Spent, *, delta: float, relation: Relation) -> float:
    """Return a lower bound on epsilon of the composed events, within `GAP` of the truth.

    A fixed size under replace-one is bounded by its worst case without other clients. The
    probability of a cohort above its cap is taken from delta.
    """
    delta -= math.fsum(rounds * event.overflow for event, rounds in spent)
    if delta <= 0:
        return math.inf
    spent = [(event, rounds) for event, rounds in spent if rounds]
    if not spent:
        return 0.0
    reach = 2.0 if relation == "replace-one" else 1.0
    if all(event.mechanism == "gaussian" and _rate(event) == 1 for event, _ in spent):
        return gaussian(
            math.sqrt(math.fsum(rounds * (reach / event.noise) ** 2 for event, rounds in spent)),
            delta,
        )
    rough = _composed(spent, delta, relation, 1e-3)
    rounds = sum(rounds for _, rounds in spent)
    return _composed(spent, delta, relation, max(GAP * max(rough, 0.05) / (2 * rounds), 1e-7))


def gaussian(distance: float, delta: float) -> float:
    """Return epsilon at `delta` between N(0, 1) and N(distance, 1), by bisection (exact)."""

    def excess(epsilon: float) -> float:
        shift = epsilon / distance
        later = math.exp(min(epsilon, 700.0)) * _normal(-shift - distance / 2)
        return _normal(distance / 2 - shift) - later

    return _root(excess, delta, distance**2 / 2 + 40 * distance)


def _root(excess: Callable[[float], float], delta: float, high: float) -> float:
    low = 0.0
    if excess(low) <= delta:
        return low
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return low


def _normal(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


@dataclass(frozen=True)
class _Pair:
    """Probabilities of cells of x, and a lower bound on the loss of each."""

    mass: np.ndarray
    loss: np.ndarray


def _composed(spent: Spent, delta: float, relation: Relation, grid: float) -> float:
    bounds = []
    for reverse in (False, True):
        pairs = [(_pair(event, relation, reverse, grid), rounds) for event, rounds in spent]
        mass, loss = _convolved(pairs, grid)

        def excess(epsilon: float, mass: Array = mass, loss: Array = loss) -> float:
            above = loss > epsilon
            return float((mass[above] * -np.expm1(epsilon - loss[above])).sum())

        bounds.append(_root(excess, delta, max(float(loss[-1]), 0.0)))
    return max(bounds)


def _pair(event: Event, relation: Relation, reverse: bool, grid: float) -> _Pair:
    if event.mechanism == "response":
        chance = 1 / (1 + math.exp(-event.noise))
        return _Pair(np.array([chance, 1 - chance]), event.noise * np.array([1.0, -1.0]))
    noise, rate = event.noise, _rate(event)
    far = _TAIL * noise if event.mechanism == "gaussian" else 35 * noise
    cells = int(min(max(2 * far / (noise * grid), 1000), _CELLS))
    x = np.linspace(-1 - far, 1 + far, cells + 1)
    one = (rate, 1.0)
    other = (rate, -1.0) if relation == "replace-one" else (0.0, 0.0)
    loss = _log_density(event, x, one) - _log_density(event, x, other)  # increasing in x
    law = other if reverse else one
    loss = -loss if reverse else loss
    mass = np.diff(_cumulative(event, x, law))
    return _Pair(np.maximum(mass, 0), np.minimum(loss[:-1], loss[1:]))


def _rate(event: Event) -> float:
    if event.sampling == "fixed":
        return event.size / event.num_clients if event.amplified else 1.0
    return event.rate


def _log_density(event: Event, x: Array, law: tuple[float, float]) -> Array:
    """log((1 - rate) f(x) + rate f(x - place)), up to a constant."""
    rate, place = law

    def log_one(x: Array) -> Array:
        return -0.5 * x**2 if event.mechanism == "gaussian" else -np.abs(x)

    parts = [log_one(x / event.noise)] if rate < 1 else []
    logs = [math.log1p(-rate)] if rate < 1 else []
    if rate > 0:
        parts.append(log_one((x - place) / event.noise))
        logs.append(math.log(rate))
    total = logs[0] + parts[0]
    return np.logaddexp(total, logs[1] + parts[1]) if len(parts) == 2 else total


def _cumulative(event: Event, x: Array, law: tuple[float, float]) -> Array:
    from scipy.special import ndtr

    rate, place = law

    def one(x: Array) -> Array:
        if event.mechanism == "gaussian":
            return ndtr(x)
        half = 0.5 * np.exp(-np.abs(x))
        return np.where(x < 0, half, 1 - half)

    return (1 - rate) * one(x / event.noise) + rate * one((x - place) / event.noise)


def _convolved(pairs: list[tuple[_Pair, int]], grid: float) -> tuple[np.ndarray, np.ndarray]:
    """The law of the sum of all losses, each rounded down to a multiple of `grid`."""
    units = [np.floor(pair.loss / grid).astype(np.int64) for pair, _ in pairs]
    mean, variance, widest = 0.0, 0.0, 0
    for (pair, rounds), unit in zip(pairs, units, strict=True):
        middle = float(pair.mass @ unit)
        mean += rounds * middle
        variance += rounds * float(pair.mass @ (unit - middle) ** 2)
        widest = max(widest, int(np.abs(unit).max()))
    # Mass that is wrapped around from below would count as a large loss: 14 deviations and the
    # largest single loss leave less than 1e-30 of it.
    half = int(14 * math.sqrt(variance)) + widest + 2
    length = 1 << (2 * half).bit_length()
    spectrum = np.ones(length // 2 + 1, complex)
    for (pair, rounds), unit in zip(pairs, units, strict=True):
        one = np.bincount(unit % length, weights=pair.mass, minlength=length)
        spectrum *= np.fft.rfft(one) ** rounds
    law = np.fft.irfft(spectrum, length)
    first = round(mean) - length // 2
    places = np.arange(first, first + length)
    mass = np.maximum(law[places % length], 0)
    # Rounding errors of the FFT are below 1e-15; far out they would be weighed as probability.
    mass[mass < 1e-15] = 0
    return mass, places * grid
