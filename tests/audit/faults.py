"""Mechanisms that are broken on purpose, each in one way, and the power of an attack on them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.stats import binom

from fedprior.audit.bound import lower_limit, upper_limit
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random
from fedprior.privacy.cohort import FixedSize, Poisson

POWER = 0.999


@dataclass(frozen=True, kw_only=True)
class HalfNoise(CentralGaussian):
    def decode(self, total, key):
        scale = self.clip * self.noise_multiplier / 2
        return total + scale * random.normal(key, total.shape)


@dataclass(frozen=True, kw_only=True)
class NoClip(CentralGaussian):
    def encode(self, message, key):
        return message


@dataclass(frozen=True, kw_only=True)
class BlockClip(CentralGaussian):
    """The last coordinate (psi) passes beside the clip of the rest."""

    def encode(self, message, key):
        xp = message.__array_namespace__()
        rest = super().encode(message[..., :-1], key)
        return xp.concatenate([rest, message[..., -1:]], axis=-1)


@dataclass(frozen=True, kw_only=True)
class ClearPsi(CentralGaussian):
    """No noise on the last coordinate."""

    def decode(self, total, key):
        xp = total.__array_namespace__()
        return xp.concatenate([super().decode(total[..., :-1], key), total[..., -1:]], axis=-1)


@dataclass(frozen=True, kw_only=True)
class OneNoise(CentralGaussian):
    """One draw for all coordinates."""

    def decode(self, total, key):
        shape = (*total.shape[:-1], 1)
        return total + self.clip * self.noise_multiplier * random.normal(key, shape)


@dataclass(frozen=True, kw_only=True)
class Weighted(CentralGaussian):
    """The weight travels with the message, neither clipped nor noised, and is what is divided by.

    The engine sends a weight through any channel that does not say that it is private.
    """

    private: ClassVar[bool] = False

    def encode(self, message, key):
        xp = message.__array_namespace__()
        value = super().encode(message[..., :-1], key)
        return xp.concatenate([value, message[..., -1:]], axis=-1)

    def decode(self, total, key):
        xp = total.__array_namespace__()
        return xp.concatenate([super().decode(total[..., :-1], key), total[..., -1:]], axis=-1)


@dataclass(frozen=True, kw_only=True)
class HalfLocalNoise(LocalGaussian):
    def encode(self, message, key):
        quiet = LocalGaussian(clip=self.clip, scale=self.scale / 2, center=self.center)
        return quiet.encode(message, key)


@dataclass(frozen=True, kw_only=True)
class NoLocalClip(LocalGaussian):
    def encode(self, message, key):
        return message + self.scale * random.normal(key, message.shape)


@dataclass(frozen=True, kw_only=True)
class LoudBit(OneBit):
    """Twice the epsilon that is claimed."""

    @property
    def _least(self):
        return OneBit(epsilon=2 * self.epsilon)._least


@dataclass(frozen=True, kw_only=True)
class UnclippedBit(OneBit):
    """A value outside its range is not moved to its edge."""

    def probability(self, share):
        return 0.5 + self.contrast * (share - 0.5)


@dataclass(frozen=True, kw_only=True)
class KeptSymbol(KaryResponse):
    """The true symbol is never drawn among the others: e^epsilon is passed for k > 2."""

    def respond(self, symbols, key):
        draws = random.uniform(key, (*symbols.shape, 2))
        step = 1 + np.floor(draws[..., 1] * (self.num_symbols - 1)).astype(symbols.dtype)
        other = (symbols + step) % self.num_symbols
        return np.where(draws[..., 0] < self.keep + 0.5 * (1 - self.keep), symbols, other)


@dataclass(frozen=True, kw_only=True)
class FixedUnderPoisson(Poisson):
    """Cohorts of one size, accounted for as if each client had thrown a coin."""

    def draw(self, seed, round, num_clients):
        return FixedSize(size=round_half(self.rate * num_clients)).draw(seed, round, num_clients)


@dataclass(frozen=True, kw_only=True)
class Dealt(Poisson):
    """A shuffled list dealt out: everyone once in every 1 / rate rounds."""

    def draw(self, seed, round, num_clients):
        hands = round_half(1 / self.rate)
        order = random.stream(seed, "cohort", round // hands).permutation(num_clients)
        return np.sort(np.array_split(order, hands)[round % hands]).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class Households(Poisson):
    """Clients 2i and 2i + 1 come together or not at all."""

    def draw(self, seed, round, num_clients):
        coins = random.stream(seed, "cohort", round).random(num_clients // 2) < self.rate
        return np.flatnonzero(np.repeat(coins, 2)).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class Eager(Poisson):
    """Drawn a tenth more often than is accounted for."""

    def draw(self, seed, round, num_clients):
        coins = random.stream(seed, "cohort", round).random(num_clients) < 1.1 * self.rate
        return np.flatnonzero(coins).astype(np.int32)


def round_half(value):
    return int(np.floor(value + 0.5))


def power_of_event(likely, rare, *, runs, claimed, delta, confidence):
    """P(the bound of an event passes `claimed`), of rates `likely` and `rare` in the two worlds.

    Exact: all counts of `runs` tested runs of each world, less 1e-12 of their mass.
    """
    counts = [
        np.arange(binom.ppf(5e-13, runs, rate), binom.isf(5e-13, runs, rate) + 1)
        for rate in (likely, rare)
    ]
    alarm = (1 - confidence) / 2
    gain = np.maximum(lower_limit(counts[0], runs, alarm) - delta, 1e-300)
    cost = upper_limit(counts[1], runs, alarm)
    caught = np.log(gain)[:, None] - np.log(cost)[None] > claimed
    mass = [binom.pmf(each, runs, rate) for each, rate in zip(counts, (likely, rare), strict=True)]
    return float(mass[0] @ caught @ mass[1])
