"""Strategies of the matrix mechanism: lower-triangular Toeplitz matrices C, streamed as C^-1 z.

The mechanism releases C x + z and inverts C afterwards, so round t is released with the noise
(C^-1 z)_t, which partly cancels that of the rounds before it. What is learned is a prefix sum of
the rounds, and a good C makes the error of prefix sums small. The strategies are optimized by
jax-privacy (extra `[matrix]`), which is imported only for that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.core.protocols import Cohort
from fedprior.privacy.events import Event, gaussian
from fedprior.privacy.participation import Participation

# Coefficients are multiples of 2^-14, exact in float32 and in integer arithmetic. The rounding
# changes the error of 500 prefix sums by less than 1e-4 of it.
GRID_BITS = 14


@dataclass(frozen=True)
class Banded:
    """C with the `coefficients` c_0 >= c_1 >= ... >= 0 on its diagonals, and zero below them.

    The state is the noise of the last rounds, one fewer than there are bands.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefficients", tuple(float(c) for c in self.coefficients))
        c = self.coefficients
        rule = "positive first, then nonnegative and not increasing"
        good = len(c) > 0 and c[0] > 0 and c[-1] >= 0 and all(np.diff(c) <= 0)
        check.require(bool(good) and math.isfinite(c[0]), "Banded", "coefficients", rule, c)

    @property
    def bands(self) -> int:
        return len(self.coefficients)

    @property
    def num_buffers(self) -> int:
        return self.bands - 1

    def column(self, rounds: int) -> np.ndarray:
        """Return the first column of C for `rounds` rounds."""
        column = np.zeros(rounds)
        kept = self.coefficients[:rounds]
        column[: len(kept)] = kept
        return column

    def step(self, noise: Array, buffers: Array) -> tuple[Array, Array]:
        """Return (C^-1 z)_t for z_t = `noise`, and the buffers of the next round."""
        xp = noise.__array_namespace__()
        first, *later = self.coefficients
        if not later:
            return noise / first, buffers
        now = (noise - _combined(later, buffers)) / first
        return now, xp.concatenate([now[None], buffers[:-1]])


@dataclass(frozen=True)
class Buffered:
    """C with c_0 = 1 and c_i = sum_j scale_j decay_j^(i-1): a few buffers for any number of rounds.

    The state is one vector per buffer (buffered linear Toeplitz matrices, Dvijotham et al. 2024).
    """

    decays: tuple[float, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("decays", "scales"):
            object.__setattr__(self, name, tuple(float(each) for each in getattr(self, name)))
        same = len(self.decays) == len(self.scales)
        check.require(same, "Buffered", "scales", "as many as decays", self.scales)
        inside = all(0 <= decay <= 1 for decay in self.decays)
        check.require(inside, "Buffered", "decays", "in [0, 1]", self.decays)
        inside = all(scale >= 0 for scale in self.scales) and sum(self.scales) <= 1
        rule = "nonnegative, with a sum of at most 1"
        check.require(inside, "Buffered", "scales", rule, self.scales)

    @property
    def bands(self) -> float:
        return math.inf if self.decays else 1

    @property
    def num_buffers(self) -> int:
        return len(self.decays)

    def column(self, rounds: int) -> np.ndarray:
        """Return the first column of C for `rounds` rounds."""
        powers = np.asarray(self.decays) ** np.arange(max(rounds - 1, 0))[:, None]
        return np.concatenate([[1.0], powers @ np.asarray(self.scales)])[:rounds]

    def step(self, noise: Array, buffers: Array) -> tuple[Array, Array]:
        """Return (C^-1 z)_t for z_t = `noise`, and the buffers of the next round."""
        xp = noise.__array_namespace__()
        if not self.decays:
            return noise, buffers
        now = noise - _combined(self.scales, buffers)
        kept = [decay * buffer for decay, buffer in zip(self.decays, buffers, strict=True)]
        return now, xp.stack(kept) + now


def _combined(weights: Sequence[float], buffers: Array) -> Array:
    """The weighted sum of the buffers; not a matrix product, which a GPU may round to 10 bits."""
    xp = buffers.__array_namespace__()
    column = xp.asarray(weights, dtype=buffers.dtype).reshape(-1, *[1] * (buffers.ndim - 1))
    return xp.sum(column * buffers, axis=0)


Strategy = Banded | Buffered


def sensitivity(strategy: Strategy, participation: Participation) -> float:
    """Return the largest ||C x|| if a client sends messages of norm at most 1 under the rule.

    The coefficients are nonnegative and do not increase, so the worst case is `most` equal messages
    exactly `apart` rounds apart, from the first round on (Kalinin and Lampert 2024, theorem 2). All
    terms are nonnegative, and the result is raised by more than their rounding.
    """
    rounds, apart = participation.rounds, participation.apart
    column, whole = strategy.column(rounds), np.zeros(rounds)
    for turn in range(participation.most):
        whole[turn * apart :] += column[: rounds - turn * apart]
    return math.sqrt(whole @ whole) * (1 + (rounds + 16) * 2.0**-50)


def column_norm(strategy: Strategy, rounds: int) -> float:
    """Return the sensitivity for a single participation."""
    return sensitivity(strategy, Participation(rounds=rounds, apart=rounds))


def whole_run(strategy: Strategy, rule: Participation, noise: float) -> Event:
    """Return the event of all rounds with noise multiplier `noise`, whoever took part when."""
    return gaussian(noise / sensitivity(strategy, rule))


def charge(
    strategy: Strategy, rule: Participation, noise: float, cohort: Cohort, num_clients: int
) -> tuple[Event, int]:
    """Return the event of all rounds under `cohort`, and how often it is composed.

    If C has at most as many bands as there are parts that take turns, two turns of a client move
    different coordinates of C x: each turn is a Poisson-sampled Gaussian by itself, with the
    sensitivity of one column (Choquette-Choo et al. 2023). This needs a rule that no
    honest draw breaks, because a refusal would reveal who took part. A cohort above its cap could
    end the run in any round, so its probability is charged for all of them.
    """
    parts = cohort.cycle
    turns = -(-rule.rounds // parts)
    one = gaussian(noise / column_norm(strategy, rule.rounds))
    event: Event = cohort.amplify(one, num_clients)
    fits = strategy.bands <= rule.apart == parts and rule.most == turns
    if event.sampling != "poisson" or not fits:
        return whole_run(strategy, rule, noise), 1
    return replace(event, overflow=event.overflow * parts), turns


def squared_noise(strategy: Strategy, rounds: int) -> np.ndarray:
    """Return the variance of (C^-1 z)_t, the noise on round t, for noise z of variance 1."""
    return np.cumsum(_inverse(strategy, rounds) ** 2)


def squared_errors(strategy: Strategy, rounds: int) -> np.ndarray:
    """Return the variance of each prefix sum of the rounds, for noise z of variance 1."""
    return np.cumsum(np.cumsum(_inverse(strategy, rounds)) ** 2)


def _inverse(strategy: Strategy, rounds: int) -> np.ndarray:
    """The first column of C^-1: the coefficients of 1 / c(s) as a power series in s."""
    from scipy.signal import lfilter

    first = np.zeros(rounds)
    first[0] = 1.0
    return lfilter([1.0], np.trim_zeros(strategy.column(rounds), "b"), first)


def independent_equivalent(strategy: Strategy, rounds: int) -> float:
    """Return the independent noise with the same mean squared error of prefix sums as z = 1."""
    return math.sqrt(float(np.mean(squared_errors(strategy, rounds))) * 2 / (rounds + 1))


def banded_strategy(rounds: int, *, bands: int) -> Banded:
    """Return the strategy of `bands` bands with the least mean squared error of prefix sums.

    Optimal for clients that take part at least `bands` rounds apart.
    """
    check.count("banded_strategy", rounds=rounds, bands=bands)
    if min(bands, rounds) == 1:
        return Banded((1.0,))
    found = _banded(rounds, min(bands, rounds))
    falling = np.minimum.accumulate(np.maximum(found / found[0], 0))
    return Banded(tuple((np.round(falling * 2**GRID_BITS) / 2**GRID_BITS).tolist()))


def buffered_strategy(participation: Participation) -> Buffered:
    """Return the buffered strategy with the least mean squared error of prefix sums."""
    decays, scales = _buffered(participation)
    decays, scales = np.clip(decays, 0, 1), np.maximum(scales, 0)
    scales = scales / max(1.0, float(scales.sum()) * (1 + 1e-9))
    grid = 2.0**30  # a strategy that was found on another machine has the same digits
    return Buffered(
        tuple((np.round(decays * grid) / grid).tolist()),
        tuple((np.floor(scales * grid) / grid).tolist()),
    )


@lru_cache
def _banded(rounds: int, bands: int) -> np.ndarray:
    """Coefficients as jax-privacy finds them."""
    found = _library("toeplitz").optimize_banded_toeplitz(rounds, bands)
    return np.asarray(found, np.float64)


@lru_cache
def _buffered(rule: Participation) -> tuple[np.ndarray, np.ndarray]:
    """Decays and scales as jax-privacy finds them."""
    found = _library("buffered_toeplitz").optimize(
        n=rule.rounds, min_sep=rule.apart, max_participations=rule.most, error="mean"
    )
    return np.asarray(found.buf_decay, np.float64), np.asarray(found.output_scale, np.float64)


def _library(module: str) -> Any:
    """A module of jax-privacy's matrix factorization."""
    if find_spec("jax_privacy") is None:
        raise check.PrivacyError(
            "strategy: strategies are optimized by jax-privacy, which is not installed. "
            "pip install 'fedprior[matrix]', or give the coefficients of a strategy."
        )
    from importlib import import_module

    return import_module(f"jax_privacy.matrix_factorization.{module}")
