"""Mechanisms that are broken on purpose, each in one way, and the power of an attack on them."""

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom

from fedprior.audit import extremes
from fedprior.audit.bound import lower_limit, upper_limit
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.matrix_gaussian import MatrixGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import random, tree
from fedprior.engines import round as round_module
from fedprior.exchange import client as client_side
from fedprior.exchange.agreement import Agreement, Keys
from fedprior.privacy import accounting, charging, participation, scores, secure
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.ledger import Ledger

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
class HalfShares(DistributedGaussian):
    @property
    def _multiplier(self):
        return super()._multiplier / 2


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


# Faults that are planted in the program itself: each takes a monkeypatch.


def scaled_above(limit, factor):
    """Less noise in high dimensions."""

    def plant(patch):
        real = CentralGaussian.decode

        def decode(self, total, key):
            noisy = real(self, total, key)
            return total + factor * (noisy - total) if total.shape[-1] > limit else noisy

        patch.setattr(CentralGaussian, "decode", decode)

    return plant


def noise_on(kept):
    """Noise on some coordinates only; `kept(size)` is a mask."""

    def plant(patch):
        def decode(self, total, key):
            noise = random.normal(key, total.shape) * kept(total.shape[-1])
            return total + self.clip * self.noise_multiplier * noise

        patch.setattr(CentralGaussian, "decode", decode)

    return plant


def shaped(shape):
    """Noise `shape(normal draws)`: tiled, of rank one, without tails."""

    def plant(patch):
        def decode(self, total, key):
            noise = shape(random.normal(key, total.shape))
            return total + self.clip * self.noise_multiplier * noise

        patch.setattr(CentralGaussian, "decode", decode)

    return plant


def upload_keyed(path):
    """Local noise keyed by `path(round, client)` in place of both."""

    def plant(patch):
        patch.setattr(
            client_side,
            "upload_key",
            lambda keys, round, client: random.fold(keys.channel, "encode", *path(round, client)),
        )

    return plant


def decode_keyed(change):
    """Central noise whose key has lost something of its path."""

    def plant(patch):
        real = random.fold

        def fold(key, purpose, *path):
            return real(key, purpose, *(change(*path) if purpose == "decode" else path))

        patch.setattr(random, "fold", fold)

    return plant


def one_stream(patch):
    """Methods and configurations share their private draws."""
    patch.setattr(Agreement, "keys", lambda self, root=None: _same_keys(self, root))


def _same_keys(agreement, root):
    root = random.root(agreement.seed) if root is None else root
    return Keys(root, root)


def any_seed(patch):
    """The seed of a run does not reach its noise."""
    patch.setattr(random, "root", lambda seed: jax.random.key(0))


def secure_fresh(patch):
    """Every secure stream begins with the same seed."""
    patch.setattr(
        random.Secure, "random", lambda self, shape=(): np.random.default_rng(0).random(shape)
    )


def secure_in_memory(patch):
    """One generator in memory, seeded by the operating system when the program starts."""
    generator = np.random.default_rng()
    patch.setattr(random.Secure, "random", lambda self, shape=(): generator.random(shape))


def secure_coarse(patch):
    """Half of the bits of the operating system."""
    real = random.Secure.random
    patch.setattr(
        random.Secure,
        "random",
        lambda self, shape=(): np.floor(real(self, shape) * 2.0**26) / 2.0**26,
    )


def numpy_noise(patch):
    """NumPy in the place of OpenDP, with a fresh seed for each call."""

    def noised(total, clip, multiplier):
        return total + clip * multiplier * np.random.default_rng().standard_normal(total.shape)

    patch.setattr(secure, "_noised", noised)


def numpy_noise_on_the_grid(patch):
    """NumPy's noise, rounded to OpenDP's grid."""

    def noised(total, clip, multiplier):
        scale = clip * multiplier
        grid = 2.0 ** (np.floor(np.log2(scale)) - 30)
        noise = scale * np.random.default_rng().standard_normal(total.shape)
        return total + np.round(noise / grid) * grid

    patch.setattr(secure, "_noised", noised)


def less_opendp(patch):
    """OpenDP with nine tenths of the noise."""
    real = secure._gaussian
    patch.setattr(secure, "_gaussian", lambda size, clip, noise: real(size, clip, 0.9 * noise))


def after_opendp(patch):
    """OpenDP's noise, averaged with that of another draw before the release."""
    real = secure._noised

    def noised(*total):
        return (real(*total) + real(*total)) / 2

    patch.setattr(secure, "_noised", noised)


def float_sums(patch):
    """Secure sums in floating point."""
    patch.setattr(CentralGaussian, "add", lambda self, rows: rows.sum(axis=0))


def public_cohorts(patch):
    """Secure cohorts that follow from the seed."""
    patch.setattr(
        Agreement, "draw", lambda self, round: self.cohort.draw(self.seed, round, self.num_clients)
    )


def cohorts_in_memory(patch):
    """Secure cohorts of one generator in memory."""
    generator = np.random.default_rng()

    def draw(self, round):
        return self.cohort.draw(int(generator.integers(2**62)), round, self.num_clients)

    patch.setattr(Agreement, "draw", draw)


def small_seed(patch):
    """Secure cohorts with a seed of 32 bits, which can be tried one by one."""

    def draw(self, round):
        seed = int.from_bytes(os.urandom(4), "big")
        return self.cohort.draw(seed, round, self.num_clients)

    patch.setattr(Agreement, "draw", draw)


def with_replacement(patch):
    """Cohorts of a fixed size in which a client may be drawn twice."""

    def draw(self, seed, round, num_clients):
        return np.sort(random.stream(seed, "cohort", round).integers(0, num_clients, self.size))

    patch.setattr(FixedSize, "draw", draw)


def cohort_of_the_round(patch):
    """Cohorts keyed by the seed alone."""
    real = Poisson.draw
    patch.setattr(Poisson, "draw", lambda self, seed, round, number: real(self, seed, 0, number))


def priced(change):
    """An accountant that changes what it is asked; `change(spent, delta, relation)`."""

    def plant(patch):
        real = accounting.epsilon

        def epsilon(spent, *, delta, relation="add-remove", **more):
            spent, delta, relation = change(list(spent), delta, relation)
            return real(spent, delta=delta, relation=relation, **more)

        patch.setattr(accounting, "epsilon", epsilon)

    return plant


def no_overflow(patch):
    patch.setattr(Poisson, "overflow", lambda self, num_clients: 0.0)


def reserved(change):
    """A ledger that records `change(rounds)` rounds and lets all of them run."""

    def plant(patch):
        real = Ledger.reserve

        def reserve(self, event, *, first, rounds, **more):
            if changed := change(first, rounds):
                real(self, event, first=first, rounds=changed, **more)
            return rounds

        patch.setattr(Ledger, "reserve", reserve)

    return plant


def spent_less(patch):
    """A ledger whose sum forgets half of what it has on record."""
    real = charging.total

    def total(records, terms):
        half = [r for place, r in enumerate(records) if r["kind"] != "reserve" or place % 2]
        return real(half, terms)

    patch.setattr(charging, "total", total)


def free_replays(patch):
    """A round that is played again costs nothing, even with secure noise."""
    real = Ledger.reserve

    def reserve(self, event, *, first, rounds, **more):
        return rounds if self.rounds >= first + rounds else real(
            self, event, first=first, rounds=rounds, **more
        )  # fmt: skip

    patch.setattr(Ledger, "reserve", reserve)


def silent_failures(patch):
    """A client whose message is not finite sends zeros, without noise."""
    real = client_side.send

    def send(rules, message, finite, key):
        return jnp.where(finite, real(rules, message, finite, key), 0)

    patch.setattr(client_side, "send", send)


def not_a_number(patch):
    """A client whose message is not finite sends it."""

    def send(rules, message, finite, key):
        return rules.channel.encode(tree.flatten(message.value), key)

    patch.setattr(client_side, "send", send)


def clip_of(change):
    """Messages clipped by `change(message, clip)`."""

    def plant(patch):
        patch.setattr(
            CentralGaussian, "encode", lambda self, message, key: change(message, self.clip)
        )

    return plant


def realized_size(patch):
    """The sum is divided by the number of clients that took part."""
    real = round_module.receive

    def receive(rules, total, like, key, secrets):
        message, secrets = real(rules, total, like, key, secrets)
        return message._replace(weight=jnp.sum(jnp.abs(total) > 0) * 1.0), secrets

    patch.setattr(round_module, "receive", receive)


def no_noise_when_empty(patch):
    real = CentralGaussian.decode

    def decode(self, total, key):
        xp = total.__array_namespace__()
        return xp.where(xp.abs(total).max() > 0, real(self, total, key), total)

    patch.setattr(CentralGaussian, "decode", decode)


def open_door(patch):
    """A server that admits what it is sent."""
    patch.setattr(extremes, "admit", lambda agreement, upload: upload)


def no_rule(patch):
    """Nobody is turned away from a run of the matrix mechanism."""
    patch.setattr(participation.Attendance, "admit", lambda self, round, clients: clients)


def later_charged(patch):
    """The matrix mechanism is charged for each round as it comes."""
    from fedprior.privacy import events

    patch.setattr(
        MatrixGaussian, "event", lambda self, size: events.gaussian(self.noise_multiplier)
    )
    patch.setattr(
        MatrixGaussian,
        "charge",
        lambda self, cohort, number, size: (events.gaussian(10 * self.noise_multiplier), 1),
    )


def fresh_matrix_noise(patch):
    """Independent noise where correlated noise is accounted for."""

    def release(self, total, key, memory):
        return total + self.clip * self.noise_multiplier * random.normal(key, total.shape), memory

    patch.setattr(MatrixGaussian, "release", release)


def half_on_a_device(patch):
    """Half of the noise in compiled programs."""
    real = random.normal
    patch.setattr(
        random,
        "normal",
        lambda key, shape: real(key, shape) * (1 if isinstance(key, np.random.Generator) else 0.5),
    )


def rows_of_all(patch):
    """A message that is scaled by how many rows all clients have together."""
    real = client_side.learn

    def learn(rules, state, memory, data, client, round, root):
        learned = real(rules, state, memory, data, client, round, root)
        rows = jnp.sum(data.x[:, 0] != 0)
        value = jax.tree.map(lambda leaf: leaf / rows, learned.message.value)
        return learned._replace(message=learned.message._replace(value=value))

    patch.setattr(client_side, "learn", learn)


def kept_too_often(patch):
    """A symbol that is kept a little more often."""
    real = KaryResponse.keep.fget
    patch.setattr(KaryResponse, "keep", property(lambda self: real(self) + 1e-4))


def bit_of_nan(patch):
    """NaN is compared with a draw, and is never larger."""
    real = OneBit.probability

    def probability(self, share):
        return np.where(np.isnan(share), np.nan, real(self, share))

    patch.setattr(OneBit, "probability", probability)


def simulated_matrix(patch):
    """The matrix mechanism draws simulated noise, whatever it says."""
    real = MatrixGaussian.release

    def begin(self, dimension):
        return np.zeros((self.strategy.num_buffers, dimension), np.float32)

    def add(self, rows):
        return rows.sum(axis=0)

    def release(self, total, key, memory):
        simulated = replace(self, noise="simulated")
        return real(simulated, total, key, memory)

    for function in (begin, add, release):
        patch.setattr(MatrixGaussian, function.__name__, function)


def half_the_score(patch):
    """Noise for add-remove where a client is replaced."""
    patch.setattr(scores.MeanScore, "sensitivity", property(lambda self: 2**19))


def numpy_score(patch):
    patch.setattr(
        secure,
        "add_laplace",
        lambda total, *, sensitivity, epsilon: (
            total + int(np.random.default_rng().laplace(scale=sensitivity / epsilon))
        ),
    )


def amplified_uploads(patch):
    """Sampling is claimed to hide who sent a visible upload."""

    def charge(self, cohort, num_clients, dimension):
        return cohort.amplify(self.event(dimension), num_clients), None

    patch.setattr(LocalGaussian, "charge", charge)


def quiet_after(last):
    """No noise in later rounds."""

    def plant(patch):
        fold = random.fold

        def noted(key, purpose, *path):
            quiet_after.late = purpose == "decode" and bool(path) and path[0] > last
            return fold(key, purpose, *path)

        decode = CentralGaussian.decode
        patch.setattr(random, "fold", noted)
        patch.setattr(
            CentralGaussian,
            "decode",
            lambda self, total, key: jnp.where(quiet_after.late, total, decode(self, total, key)),
        )

    return plant
