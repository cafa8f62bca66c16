"""Faults planted in the program, by class: the attack that should see each of them does.

Every fault is found with probability 1 or nearly so: FALSE_ALARM bounds what a sound program is
refused, and each attack says in `detects` what it finds with probability 0.999.
"""

from dataclasses import replace
from functools import partial

import faults
import jax.numpy as jnp
import pytest

from fedprior.audit import (
    channels,
    cohorts,
    correlated,
    counting,
    extremes,
    keys,
    law,
    pipeline,
    prices,
    randomness,
    responses,
    subject,
    suite,
)
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.batches import Batches
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.events import gaussian
from fedprior.privacy.scores import MeanScore

FALSE_ALARM = 1e-6
CONFIDENCE = 1 - FALSE_ALARM
AT = {"confidence": CONFIDENCE, "seed": 0}
CENTRAL = CentralGaussian(clip=0.5, noise_multiplier=1.0)
LOCAL = LocalGaussian(clip=1.0, scale=5.0)
QUIET = CentralGaussian(clip=0.5, noise_multiplier=0.02)


def half(size):
    return jnp.arange(size) < size // 2


def tiled(noise):
    middle = noise.shape[-1] // 2
    return jnp.concatenate([noise[..., :middle]] * 2 + [noise[..., 2 * middle :]], axis=-1)


def mirrored(noise):
    return (noise + noise[..., ::-1]) / jnp.sqrt(2.0)


def per_block(message, clip):
    """Two halves, each clipped by itself."""
    middle = message.shape[-1] // 2
    parts = (message[..., :middle], message[..., middle:])
    xp = message.__array_namespace__()
    return xp.concatenate([clipped(part, clip) for part in parts], axis=-1)


def clipped(message, clip):
    xp = message.__array_namespace__()
    norm = xp.linalg.vector_norm(message, axis=-1, keepdims=True)
    return message * (clip / xp.maximum(norm, clip))


def small_only(message, clip):
    return clipped(message, clip) if message.shape[-1] <= 100 else message


def small_fedavg():
    return fedavg(logistic(2), steps=Steps(local_steps=2, batches=Batches(size=2)))


SIZES = partial(extremes.check_sizes, CENTRAL, compiled=False, **AT, most=5000)
BLOCKS = partial(extremes.check_blocks, CENTRAL, **AT)
KEYS = partial(keys.check_central_keys, CENTRAL, confidence=CONFIDENCE)
LOCAL_KEYS = partial(keys.check_local_keys, LOCAL, confidence=CONFIDENCE)
SPECIAL = partial(extremes.check_specials, QUIET, size=300, **AT)
LOCAL_SPECIAL = partial(
    extremes.check_specials, LocalGaussian(clip=0.5, scale=0.01), size=300, **AT
)
STREAM = partial(randomness.check_stream, confidence=CONFIDENCE)
EVERYONE = partial(prices.check_prices, "Gaussian noise, everyone")
SAMPLED = partial(prices.check_prices, "Gaussian noise, Poisson sampling")
CAPPED = partial(prices.check_prices, "cohorts that may exceed their cap")
RUN = partial(counting.check_whole_run, "device", **AT)
DRAWN = partial(cohorts.check_engine_cohorts, num_clients=12, rounds=256, **AT)

HALF = faults.reserved(lambda first, rounds: rounds // 2)
NO_FIFTH = faults.reserved(lambda first, rounds: rounds if first % 5 != 4 else 0)

# The nine that an audit missed before, one by one, and others of their classes.
PLANTED = {
    "keys: local noise keyed by client only": (
        faults.upload_keyed(lambda round, client: (client,)), LOCAL_KEYS),
    "randomness: a seeded generator": (faults.secure_fresh, STREAM),
    "randomness: NumPy in the place of OpenDP": (
        faults.numpy_noise, randomness.check_noise_source),
    "randomness: secure cohorts from the public seed": (
        faults.public_cohorts, randomness.check_cohort_source),
    "prices: replace-one at sensitivity 1": (
        faults.priced(lambda spent, delta, relation: (spent, delta, "add-remove")), EVERYONE),
    "prices: caps not charged by the accountant": (
        faults.priced(lambda spent, delta, relation: (
            [(replace(event, overflow=0.0), rounds) for event, rounds in spent],
            delta, relation)), CAPPED),
    "prices: caps not charged by the cohort": (faults.no_overflow, prices.check_caps),
    "counting: half of the rounds": (HALF, counting.check_ledger),
    "special values: a client that is not finite sends no noise": (
        faults.silent_failures, LOCAL_SPECIAL),
    "dimensions: 0.8 of the noise above 100": (faults.scaled_above(100, 0.8), SIZES),
    # keys
    "keys: local noise keyed by round only": (
        faults.upload_keyed(lambda round, client: (round,)), LOCAL_KEYS),
    "keys: central noise keyed by nothing": (faults.decode_keyed(lambda *path: ()), KEYS),
    "keys: central noise with a period of 1,000": (
        faults.decode_keyed(lambda round: (round % 1000,)), KEYS),
    "keys: no noise after round 500": (faults.quiet_after(500), KEYS),
    "keys: methods share their noise": (faults.one_stream, KEYS),
    "keys: seeds share their noise": (faults.any_seed, KEYS),
    "keys: answers keyed by client only": (
        faults.upload_keyed(lambda round, client: (client,)),
        partial(keys.check_answer_keys, KaryResponse(epsilon=0.5, num_symbols=600),
                confidence=CONFIDENCE)),
    "keys: one cohort for all rounds": (
        faults.cohort_of_the_round, partial(keys.check_cohort_keys, confidence=CONFIDENCE)),
    # randomness
    "randomness: a generator in memory": (faults.secure_in_memory, STREAM),
    "randomness: half of the bits": (faults.secure_coarse, STREAM),
    "randomness: NumPy on OpenDP's grid": (
        faults.numpy_noise_on_the_grid, randomness.check_noise_source),
    "randomness: two draws of OpenDP averaged": (
        faults.after_opendp, randomness.check_noise_source),
    "randomness: OpenDP asked for less": (faults.less_opendp, randomness.check_noise_source),
    "randomness: float sums": (
        faults.float_sums, partial(randomness.check_exact_sums, seed=0)),
    "randomness: cohorts of a generator in memory": (
        faults.cohorts_in_memory, randomness.check_cohort_source),
    "randomness: cohorts of a small seed": (faults.small_seed, randomness.check_cohort_source),
    "randomness: seeded reports of a client": (
        faults.secure_fresh, randomness.check_local_source),
    "randomness: a secure run from its seed": (
        faults.public_cohorts, partial(randomness.check_secure_run, confidence=CONFIDENCE)),
    # dimensions
    "dimensions: noise on half of the coordinates": (faults.noise_on(half), BLOCKS),
    "dimensions: noise repeated along the vector": (faults.shaped(tiled), BLOCKS),
    "dimensions: noise of half the rank": (faults.shaped(mirrored), BLOCKS),
    "dimensions: no clip above 100": (faults.clip_of(small_only), SIZES),
    # special values
    "special values: no noise on an empty sum": (faults.no_noise_when_empty, SPECIAL),
    "special values: NaN is sent": (faults.not_a_number, SPECIAL),
    "special values: halves clipped by themselves": (
        faults.clip_of(per_block), SPECIAL),
    "special values: the realized number of clients": (faults.realized_size, SPECIAL),
    "special values: a server that admits anything": (
        faults.open_door, extremes.check_admission),
    # sampling
    "sampling: a fixed size with replacement": (
        faults.with_replacement, partial(DRAWN, FixedSize(size=6))),
    "sampling: one cohort for all rounds": (
        faults.cohort_of_the_round, partial(DRAWN, Poisson(rate=0.5))),
    # prices
    "prices: a tenth more noise": (
        faults.priced(lambda spent, delta, relation: (
            [(replace(event, noise=1.1 * event.noise), rounds) for event, rounds in spent],
            delta, relation)), SAMPLED),
    "prices: half of the rate": (
        faults.priced(lambda spent, delta, relation: (
            [(replace(event, rate=event.rate / 2), rounds) for event, rounds in spent],
            delta, relation)), SAMPLED),
    "prices: delta for each round": (
        faults.priced(lambda spent, delta, relation: (spent, min(10 * delta, 0.5), relation)),
        EVERYONE),
    "prices: one round fewer": (
        faults.priced(lambda spent, delta, relation: (
            [(event, max(rounds - 1, 1)) for event, rounds in spent], delta, relation)),
        partial(prices.check_prices, "Laplace noise")),
    "prices: the first event only": (
        faults.priced(lambda spent, delta, relation: (spent[:1], delta, relation)),
        partial(prices.check_prices, "different events together")),
    "prices: a guarantee at sensitivity 1": (
        lambda patch: patch.setattr(
            LocalGaussian, "event", lambda self, size: gaussian(2 * self.scale / self.clip)),
        prices.check_stated),
    # counting
    "counting: every fifth reservation is dropped": (NO_FIFTH, counting.check_ledger),
    "counting: half of the record is summed": (faults.spent_less, counting.check_ledger),
    "counting: secure replays are free": (faults.free_replays, counting.check_ledger),
    "counting: half of the rounds of a run": (HALF, RUN),
    "counting: a budget that nobody watches": (
        faults.reserved(lambda first, rounds: 1), partial(counting.check_budget, seed=0)),
    "counting: half of the rounds of a run on disk": (
        HALF, partial(counting.check_whole_run, "disk", **AT)),
    # other classes
    "dimensions: half the noise of a device": (
        faults.half_on_a_device,
        partial(extremes.check_sizes, CENTRAL, compiled=True, **AT, most=2000)),
    "law of messages: the rows of all clients": (
        faults.rows_of_all, partial(law.check_replacement, "FedAvg", small_fedavg)),
    "channels: a symbol of 1,100 that is kept too often": (
        faults.kept_too_often,
        partial(responses.check_compiled_response, KaryResponse(epsilon=3.0, num_symbols=1100))),
    "channels: a bit of NaN": (
        faults.bit_of_nan,
        partial(responses.check_one_bit, OneBit(epsilon=1.0), draws=2000, **AT)),
    "runs: little noise under canaries": (
        faults.shaped(lambda noise: 0.3 * noise),
        partial(counting.check_canaries, **AT, delta=0.01)),
    "runs: no clip in AdaMAP": (
        faults.clip_of(lambda message, clip: message),
        lambda: pipeline.check_uploads(subject.dp_adamap(), delta=0.01)),
    # correlated noise
    "runs: a rule that nobody enforces": (
        faults.no_rule, partial(correlated.check_matrix, correlated.BANDED, **AT)),
    "runs: a matrix that is charged later": (
        faults.later_charged, partial(correlated.check_matrix, correlated.BANDED, **AT)),
    "randomness: a secure matrix whose noise is simulated": (
        faults.simulated_matrix,
        partial(correlated.check_secure_matrix, confidence=CONFIDENCE)),
    "channels: a score at half the sensitivity": (
        faults.half_the_score,
        partial(channels.attack_score, MeanScore(epsilon=1.0, relation="replace-one"),
                draws=8000, **AT)),
    "randomness: a score with NumPy's noise": (
        faults.numpy_score, randomness.check_score_source),
    "counting: sampling amplifies local uploads": (
        faults.amplified_uploads, counting.check_ledger),
    "runs: independent noise under a matrix": (
        faults.fresh_matrix_noise, partial(correlated.check_matrix, correlated.BANDED, **AT)),
}  # fmt: skip


# One fault for each attack, beside the nine: the rest is planted with `-m evidence`.
_FEW = (
    "keys: methods share their noise",
    "keys: answers keyed by client only",
    "keys: one cohort for all rounds",
    "randomness: a generator in memory",
    "randomness: float sums",
    "randomness: seeded reports of a client",
    "randomness: a secure run from its seed",
    "dimensions: noise of half the rank",
    "dimensions: half the noise of a device",
    "special values: the realized number of clients",
    "special values: a server that admits anything",
    "sampling: a fixed size with replacement",
    "prices: a guarantee at sensitivity 1",
    "counting: half of the rounds of a run",
    "counting: a budget that nobody watches",
    "law of messages: the rows of all clients",
    "channels: a symbol of 1,100 that is kept too often",
    "channels: a bit of NaN",
    "runs: little noise under canaries",
    "runs: a matrix that is charged later",
    "channels: a score at half the sensitivity",
    "randomness: a score with NumPy's noise",
    "randomness: a secure matrix whose noise is simulated",
    "runs: no clip in AdaMAP",
)
_NINE = tuple(PLANTED)[:10]


def _marked(names):
    kept = {*_NINE, *_FEW}
    return [pytest.param(n, marks=() if n in kept else pytest.mark.evidence) for n in names]


@pytest.mark.parametrize("name", _marked(PLANTED))
def test_a_planted_fault_is_found(name, monkeypatch):
    plant, attack = PLANTED[name]
    plant(monkeypatch)
    found = attack()
    assert not found.passed, found
    assert name.startswith(found.family)


def test_every_attack_has_a_planted_fault():
    """Every function of the suite: here, or in the tests of channels, cohorts and runs."""
    planted = {
        attack.func if isinstance(attack, partial) else attack for _, attack in PLANTED.values()
    }
    elsewhere = {
        "attack_central", "attack_distributed", "attack_local", "attack_one_bit", "attack_response",
        "check_central_noise", "check_local_noise", "check_central_clip", "check_local_clip",
        "check_chain_reach", "check_response", "check_cohort",
        "check_uploads", "check_influence", "check_noise", "attack",
    }  # fmt: skip
    known = {each.__name__ for each in planted} | elsewhere
    asked = {task.check.func.__name__ for task in suite.tasks() if isinstance(task.check, partial)}
    assert asked <= known, asked - known


@pytest.mark.evidence
def test_what_is_sound_is_not_accused():
    """The same attacks on the program as it is; at most one false alarm in 20,000."""
    for _, attack in PLANTED.values():
        found = attack()
        assert found.passed, found
