"""All attacks on the mechanisms in fedprior, and what they cannot see."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from fedprior.audit import (
    channels,
    cohorts,
    correlated,
    counting,
    draws,
    extremes,
    keys,
    law,
    pipeline,
    prices,
    randomness,
    responses,
    subject,
)
from fedprior.audit.bound import check_confidence
from fedprior.audit.compiled import Compiled
from fedprior.audit.finding import Finding
from fedprior.audit.runs import attack
from fedprior.audit.subject import Subject
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import check
from fedprior.core.algorithm import Algorithm
from fedprior.engines import cache as programs
from fedprior.learning.adamap import adamap
from fedprior.learning.adaped import adaped
from fedprior.learning.adaptive_clip import adaptive_clip
from fedprior.learning.baselines.fedavg import fedavg
from fedprior.learning.batches import Batches
from fedprior.learning.steps import Steps
from fedprior.models.network import logistic
from fedprior.privacy.cohort import FixedSize, Poisson
from fedprior.privacy.scores import MeanScore

# Fewer than one false alarm in 10,000 per attack.
CONFIDENCE = 0.9999
# Attacks on epsilon use a delta at which there are events to count: 1e-2 of the runs. The claim at
# a smaller delta depends on the same noise, which is measured, and on its price, which is compared.
DELTA = 1e-2
RUNS = 10_000
QUICK_RUNS = 4_000
DRAWS = 1_000_000
QUICK_DRAWS = 100_000
# OpenDP draws about 50,000 numbers per second.
SECURE_DRAWS = 20_000

CENTRAL = (
    CentralGaussian(clip=0.5, noise_multiplier=1.0),
    CentralGaussian(clip=2.0, noise_multiplier=4.0),
)
SECURE: dict[str, Any] = {"clip": 0.5, "noise": "secure"}
DISTRIBUTED = (DistributedGaussian(clip=0.5, noise_multiplier=1.0, size=3, missing=1),)
LOCAL = (
    LocalGaussian(clip=1.0, scale=1.0, center=(3.0, -2.0, 0.5)),
    LocalGaussian(clip=1.0, scale=5.0),
)
ONE_BIT = (OneBit(epsilon=0.5), OneBit(epsilon=4.0, low=(-1.0, 0.0, 5.0), high=(1.0, 10.0, 6.0)))
RESPONSES = (KaryResponse(epsilon=1.0, num_symbols=2), KaryResponse(epsilon=3.0, num_symbols=7))
MANY_SYMBOLS = tuple(KaryResponse(epsilon=3.0, num_symbols=k) for k in (7, 1100, 4099))
SCORES = (
    MeanScore(epsilon=1.0, relation="add-remove"),
    MeanScore(epsilon=1.0, relation="replace-one"),
)
CHAINS = (Chain((CENTRAL[0], Quantize(bits_per_coordinate=4, low=-0.5, high=0.5))),)
MATRICES = (correlated.BANDED, correlated.BUFFERED)
COHORTS = ((Poisson(rate=0.5), 6), (Poisson(rate=0.05), 40), (FixedSize(size=3), 6))

# What no attack above can tell from a sound mechanism.
CANNOT_SEE = (
    "A generator that only someone with its state can tell from the operating system's: OpenDP, "
    "the system's randomness and the compiler are trusted.",
    "Noise that is right in the dimensions, scales and clips that were tried and wrong in others "
    "(up to 262,145 coordinates on the host and compiled).",
    "A fault that needs a trigger: one client, one round or one value among those not tried.",
    "Your own methods, models and clients: only the law of messages can be checked for them, with "
    "fedprior.audit.law.check_replacement, and a fault of a method is covered by clip and noise.",
    "An epsilon that is less than one percent too small, except for closed forms.",
    "Deltas below 1e-7, and whether a proof behind the accountant is right.",
    "Timing, memory, swap, logs, files that are copied, and what a person publishes beside a run.",
    "Runs in other folders: their losses add up, and no ledger here knows of them unless it is a "
    "population's.",
    "Flower, its transport and its secure aggregation; the exchange that they carry is attacked.",
    "Private estimates beyond their batch of rounds and its charge: what they print of it.",
)


class Task(NamedTuple):
    """One attack that has not been run yet."""

    name: str
    check: Callable[[], Finding]


def tasks(
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    quick: bool = False,
    runs: int | None = None,
) -> list[Task]:
    """List the attacks, cheap ones first; `runs` is the number of runs in attacks on complete runs.

    `quick` leaves out nothing but draws and runs.
    """
    check.seed("audit", seed)
    check_confidence("audit", confidence)
    if runs is not None:
        check.count("audit", least=100, runs=runs)
    number = QUICK_DRAWS if quick else DRAWS
    times = runs if runs is not None else (QUICK_RUNS if quick else RUNS)
    options: dict[str, Any] = {"seed": seed, "confidence": confidence}
    return [
        *_channels(number, options),
        *_compiled(number, options),
        *_dimensions(options),
        *_keys(options),
        *_randomness(options),
        *_special(options),
        *_cohorts(2000 if quick else 10_000, options),
        *_prices(),
        *_counting(options),
        *_law(),
        *_runs(times, options),
    ]


def _channels(number: int, options: dict[str, Any]) -> Iterator[Task]:
    many = {**options, "draws": number}
    some = {**options, "draws": number // 5}
    seed = options["seed"]
    for central in CENTRAL:
        yield _task(channels.attack_central, central, delta=DELTA, **many)
        yield _task(draws.check_central_noise, central, delta=DELTA, **some)
        yield _task(draws.check_central_clip, central, delta=DELTA, seed=seed)
    for chain in CHAINS:
        yield _task(draws.check_chain_reach, chain, draws=number // 5, delta=DELTA, seed=seed)
    for shared in DISTRIBUTED:
        yield _task(channels.attack_distributed, shared, delta=DELTA, **some)
    for local in LOCAL:
        yield _task(channels.attack_local, local, delta=DELTA, **many)
        yield _task(draws.check_local_noise, local, delta=DELTA, **some)
        yield _task(draws.check_local_clip, local, delta=DELTA, seed=seed)
    for bit in ONE_BIT:
        yield _task(channels.attack_one_bit, bit, **many)
        yield _task(responses.check_one_bit, bit, **some)
    for mean in SCORES:
        yield _task(channels.attack_score, mean, **{**options, "draws": SECURE_DRAWS})
    for response in RESPONSES:
        yield _task(channels.attack_response, response, **many)
        yield _task(responses.check_response, response, **some)


def _compiled(number: int, options: dict[str, Any]) -> Iterator[Task]:
    """Reports of compiled programs, as the engines draw them."""
    some = {**options, "draws": number // 5}
    yield _in_engine(channels.attack_one_bit, ONE_BIT[1], **some)
    for response in MANY_SYMBOLS:
        yield _task(responses.check_compiled_response, response)


def _dimensions(options: dict[str, Any]) -> Iterator[Task]:
    for channel in (CENTRAL[0], LOCAL[1]):
        for compiled in (False, True):
            yield _task(extremes.check_sizes, channel, compiled=compiled, **options)
    yield _task(extremes.check_blocks, CENTRAL[0], **options)


def _keys(options: dict[str, Any]) -> Iterator[Task]:
    at = {"confidence": options["confidence"]}
    yield _task(keys.check_central_keys, CENTRAL[0], **at)
    yield _task(keys.check_local_keys, LOCAL[1], **at)
    yield _task(keys.check_answer_keys, KaryResponse(epsilon=0.5, num_symbols=600), **at)
    yield _task(keys.check_answer_keys, OneBit(epsilon=0.5), **at)
    yield _task(keys.check_cohort_keys, **at)


def _randomness(options: dict[str, Any]) -> Iterator[Task]:
    at = {"confidence": options["confidence"]}
    yield _task(randomness.check_stream, **at)
    yield _task(randomness.check_local_source)
    if find_spec("opendp") is None:
        return
    secure = CentralGaussian(noise_multiplier=1.0, **SECURE)
    few = {**options, "draws": SECURE_DRAWS}
    yield _task(draws.check_central_noise, secure, delta=DELTA, **few)
    shared, fewer = replace(DISTRIBUTED[0], noise="secure"), {**few, "draws": SECURE_DRAWS // 4}
    yield _task(channels.attack_distributed, shared, delta=DELTA, **fewer)
    yield _task(randomness.check_noise_source)
    yield _task(randomness.check_score_source)
    yield _task(randomness.check_cohort_source)
    yield _task(randomness.check_exact_sums, seed=options["seed"])
    yield _task(randomness.check_secure_run, **at)
    yield _task(correlated.check_secure_matrix, **at)


def _special(options: dict[str, Any]) -> Iterator[Task]:
    yield _task(extremes.check_admission)
    quiet = CentralGaussian(clip=0.5, noise_multiplier=0.02)
    yield _task(extremes.check_specials, quiet, size=1000, **options)
    yield _task(extremes.check_specials, LocalGaussian(clip=0.5, scale=0.01), size=1000, **options)
    if find_spec("opendp") is not None:
        secure = CentralGaussian(noise_multiplier=0.02, **SECURE)
        yield _task(extremes.check_specials, secure, size=300, **options)


def _cohorts(rounds: int, options: dict[str, Any]) -> Iterator[Task]:
    for cohort, clients in COHORTS:
        size = {"num_clients": clients, "rounds": rounds}
        yield _task(cohorts.check_cohort, cohort, delta=DELTA, **size, **options)
    for cohort in (Poisson(rate=0.3), FixedSize(size=7)):
        size = {"num_clients": 20, "rounds": 512}
        yield _task(cohorts.check_engine_cohorts, cohort, **size, **options)


def _prices() -> Iterator[Task]:
    for name in prices.CASES:
        yield _task(prices.check_prices, name)
    yield _task(prices.check_caps)
    yield _task(prices.check_stated)


def _counting(options: dict[str, Any]) -> Iterator[Task]:
    yield _task(counting.check_ledger)
    yield _task(counting.check_budget, seed=options["seed"])
    for store in ("device", "disk"):
        yield _task(counting.check_whole_run, store, **options)


def _law() -> Iterator[Task]:
    """Methods that read their clock, their batches and their clip in different ways."""
    some = Steps(local_steps=2, batches=Batches(size=2))
    passes = Steps(local_epochs=2, decay=0.9, steps_per_epoch=3, batches=Batches(size=2))
    cases: dict[str, Callable[[], Algorithm]] = {
        "AdaMAP": lambda: adamap(logistic(2), steps=some, judge_every=0),
        "AdaPeD by epochs, decaying": lambda: adaped(logistic(2), steps=passes),
        "FedAvg with an adaptive clip": lambda: adaptive_clip(fedavg(logistic(2), steps=some)),
    }
    for name, make in cases.items():
        yield _task(law.check_replacement, name, make)


def _runs(runs: int, options: dict[str, Any]) -> Iterator[Task]:
    """Complete private runs; the first attack on each compiles the program for all of them."""
    programs.enable()
    yield _task(counting.check_canaries, delta=DELTA, **options)
    for channel in MATRICES:
        yield _task(correlated.check_matrix, channel, **options)
    yield from _one_run(subject.dp_adaped(), runs, options)
    # End-to-end attacks would need separate programs, which take 15 s to compile. The clients send
    # the same messages through the same channel, and the proof holds for any memory.
    for other in (subject.dp_adaped_fine_tuning(), subject.dp_adaptive_clip(), subject.dp_fedem()):
        yield _task(pipeline.check_uploads, other, delta=DELTA)
    for other in (subject.dp_adamap(), subject.dp_fedavg()):
        yield from _one_run(other, min(runs, 5000), options)


def _one_run(run: Subject, runs: int, options: dict[str, Any]) -> Iterator[Task]:
    seed, some = options["seed"], {**options, "runs": min(runs, 5000)}
    yield _task(pipeline.check_uploads, run, delta=DELTA)
    yield _task(pipeline.check_influence, run, delta=DELTA, pairs=500, seed=seed)
    yield _task(pipeline.check_noise, run, delta=DELTA, **some)
    yield _task(attack, run, delta=DELTA, runs=runs, **options)


def _task(check: Callable[..., Finding], *subject: Any, **options: Any) -> Task:
    return Task(check.__name__.replace("_", " "), partial(check, *subject, **options))


def _in_engine(inner: Callable[..., Finding], channel: Any, **options: Any) -> Task:
    def check() -> Finding:
        finding = inner(Compiled(channel), **options)
        return replace(finding, mechanism=f"{finding.mechanism}, compiled")

    return Task(f"{inner.__name__.replace('_', ' ')}, compiled", check)
