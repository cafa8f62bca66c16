"""Conformance of randomized responses: their exact distribution, and draws that follow it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.audit.bound import two_sided
from fedprior.audit.channels import box
from fedprior.audit.finding import Finding
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random
from fedprior.core.algorithm import Array, Key

_GRID = 2**53  # a uniform draw is one of this many equally likely multiples of 2**-53


class _Given(random.Secure):
    """A stream that returns the given multiples of 2**-53."""

    def __init__(self, *units: int) -> None:
        self.units = units

    def random(self, shape: tuple[int, ...] = ()) -> np.ndarray:
        """Return the given numbers, whose count must match `shape`."""
        return np.array(self.units, np.float64).reshape(shape) / _GRID


def check_one_bit(channel: OneBit, *, draws: int, seed: int, confidence: float) -> Finding:
    """Check that P(bit), counted on the grid of the draws, has ratios of at most e^epsilon.

    Also checks that draws follow these probabilities, and that the reported coordinate does not
    depend on the message.
    """
    low, high = (float(np.asarray(end).ravel()[0]) for end in (channel.low, channel.high))
    single = type(channel)(epsilon=channel.epsilon, low=low, high=high)
    shares = (-1e6, -1e-9, 0.0, 1e-9, 0.25, 0.5, 0.75, 1 - 1e-9, 1.0, 1 + 1e-9, 1e6)
    values = [low + share * (high - low) for share in shares]
    values += [math.nan, math.inf, -math.inf]
    law = [_probability_of_one(single, value) for value in values]
    loss = max(_log_ratio(law), _log_ratio([1 - chance for chance in law]))
    faults = []
    alarm = (1 - confidence) / (len(law) + 1)
    for place, (value, chance) in enumerate(zip(values, law, strict=True)):
        reports = single.encode(np.full((draws, 1), value), random.stream(seed, "encode", place))
        if set(np.unique(reports)) - {reports.min(), reports.max()}:
            faults.append("reports are not one bit")
        ones = int((reports[:, 0] > (low + high) / 2).sum())
        if two_sided(np.array([ones]), draws, float(chance)) < alarm:
            faults.append(f"bits do not follow their distribution at {value:g}")
    faults += _chosen(channel, draws=draws, seed=seed, alarm=alarm)
    name = f"OneBit, epsilon {channel.epsilon:g}"
    claimed = channel.guarantee(noise="secure").epsilon
    return _finding(name, claimed, loss, draws, confidence, faults)


def check_response(channel: KaryResponse, *, draws: int, seed: int, confidence: float) -> Finding:
    """Check that P(answer | symbol), counted on the grid of the draws, has ratios <= e^epsilon.

    Also checks that draws follow these probabilities.
    """
    number = channel.num_symbols
    table = [_law_of_answers(channel, symbol) for symbol in range(number)]
    loss = max(_log_ratio([row[answer] for row in table]) for answer in range(number))
    faults = []
    alarm = (1 - confidence) / number**2
    for symbol, law in enumerate(table):
        symbols = np.full(draws, symbol)
        answers = channel.respond(symbols, random.stream(seed, "encode", symbol))
        counts = np.bincount(answers, minlength=number)
        deviates = [
            two_sided(counts[answer], draws, float(law[answer])) < alarm for answer in range(number)
        ]
        if any(deviates):
            faults.append(f"answers to symbol {symbol} do not follow their distribution")
    name = f"KaryResponse, epsilon {channel.epsilon:g}, {number} symbols"
    claimed = channel.guarantee(noise="secure").epsilon
    return _finding(name, claimed, loss, draws, confidence, faults)


def check_compiled_response(channel: KaryResponse) -> Finding:
    """Count the answers of the compiled channel on the whole grid of a device's draws.

    A device draws words of 32 bits: with many symbols, some answers have fewer of them than others,
    and the ratio of two probabilities may exceed e^epsilon.
    """
    number, symbol = channel.num_symbols, 1
    followed = []

    @jax.jit
    def answers(first: Array, second: Array) -> Array:
        given = jnp.stack(jnp.broadcast_arrays(first, second), axis=-1)

        def bits(key: Key, shape: Any, dtype: Any) -> Array:
            followed.append(shape)
            return given

        with mock.patch.object(jax.random, "bits", bits):
            return channel.respond(jnp.full(given.shape[:-1], symbol), random.root(0))

    def reply(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(answers(*(each.astype(np.uint32) for each in (first, second))))

    top = np.array([2**32 - 1])
    least = np.arange(1, number)
    cuts = _first_words(lambda word: reply(np.full_like(word, top[0]), word) >= least, number - 1)
    edges = [0, *cuts.tolist(), 2**32]
    elsewhere = np.array([edges[(symbol + 1) % number]])
    kept = int(_first_words(lambda word: reply(word, elsewhere) != symbol, 1)[0])
    law = [
        Fraction(2**32 - kept, 2**32) * Fraction(high - low, 2**32) for low, high in pairwise(edges)
    ]
    loss = math.inf if min(law) == 0 else _log_ratio([Fraction(kept, 2**32) + max(law), min(law)])
    faults = [] if followed else ["draws that cannot be followed"]
    name = f"KaryResponse, epsilon {channel.epsilon:g}, {number:,} symbols, compiled"
    claimed = channel.guarantee(noise="simulated").epsilon
    found = _finding(name, claimed, loss, 0, 1.0, faults)
    return replace(found, detail="exact distribution of the answers on a device's grid of 2^-32")


def _first_words(holds: Callable[[np.ndarray], np.ndarray], number: int) -> np.ndarray:
    """The first of 2^32 words at which each of `number` monotone conditions holds."""
    low, high = np.zeros(number, np.int64), np.full(number, 2**32)
    for _ in range(33):
        middle = np.minimum((low + high) // 2, 2**32 - 1)
        true = holds(middle)
        high = np.where(true, np.minimum(high, middle), high)
        low = np.where(true, low, np.minimum(middle + 1, high))
    return high


def _finding(
    name: str, claimed: float, loss: float, draws: int, confidence: float, faults: Sequence[str]
) -> Finding:
    return Finding(
        family="channels",
        mechanism=name,
        detects="any excess of epsilon on the grid of the draws",
        claimed=claimed,
        lower_bound=loss,
        delta=0.0,
        relation="replace-one",
        confidence=confidence,
        detail=f"exact distribution of the answers, followed by {draws:,} draws per input",
        faults=tuple(faults),
    )


def _chosen(channel: OneBit, *, draws: int, seed: int, alarm: float) -> list[str]:
    """Check that the reported coordinate is uniform, for the lowest and the highest message."""
    low, high = box(channel)
    for place, end in enumerate((low, high)):
        messages = np.tile(end, (draws, 1))
        received = channel.encode(messages, random.stream(seed, "encode", 100 + place))
        reported = received != (low + high) / 2
        if (reported.sum(axis=1) != 1).any():
            return ["more than one coordinate is reported"]
        if two_sided(reported.sum(axis=0), draws, 1 / len(low)) < alarm / 2:
            return ["one coordinate is reported more often than others"]
    return []


def _probability_of_one(channel: OneBit, value: float) -> Fraction:
    """The share of the grid on which the bit is 1, which is its lower part."""
    middle = (float(channel.low) + float(channel.high)) / 2
    message = np.array([value])

    def zero(unit: int) -> bool:
        return float(channel.encode(message, _Given(0, unit))[0]) < middle

    return Fraction(_first(zero), _GRID)


def _law_of_answers(channel: KaryResponse, symbol: int) -> list[Fraction]:
    """P(answer | symbol): the symbol on the lower part of the first draw, else by the second."""
    number = channel.num_symbols
    message = np.eye(number)[symbol]

    def answer(first: int, second: int) -> int:
        return int(np.argmax(channel.encode(message, _Given(first, second))))

    def reaches(least: int) -> Callable[[int], bool]:
        return lambda unit: answer(_GRID - 1, unit) >= least

    cuts = [0, *(_first(reaches(least)) for least in range(1, number)), _GRID]
    other = cuts[(symbol + 1) % number]  # a second draw that selects another symbol
    kept = Fraction(_first(lambda unit: answer(unit, other) != symbol), _GRID)
    law = [(1 - kept) * Fraction(high - low, _GRID) for low, high in pairwise(cuts)]
    law[symbol] += kept
    return law


def _first(holds: Callable[[int], bool]) -> int:
    """The first grid point at which the monotone `holds` is true, or _GRID if there is none."""
    low, high = 0, _GRID
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _log_ratio(chances: Sequence[Fraction]) -> float:
    """log(largest / smallest), rounded to the nearest float; infinite if the smallest is zero."""
    if min(chances) == 0:
        return math.inf if max(chances) > 0 else 0.0
    ratio = max(chances) / min(chances)
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln())
