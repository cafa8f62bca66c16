"""All checks of the mechanisms in fedprior."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from fedprior.audit.bound import check_confidence
from fedprior.audit.channels import (
    attack_central,
    attack_local,
    attack_one_bit,
    attack_response,
)
from fedprior.audit.cohorts import check_cohort
from fedprior.audit.compiled import Compiled
from fedprior.audit.draws import (
    check_central_clip,
    check_central_noise,
    check_chain_reach,
    check_local_clip,
    check_local_noise,
)
from fedprior.audit.finding import Finding
from fedprior.audit.pipeline import check_influence, check_noise, check_psi, check_uploads
from fedprior.audit.responses import check_one_bit, check_response
from fedprior.audit.runs import attack
from fedprior.audit.subject import (
    Subject,
    dp_adaped,
    dp_adaped_fine_tuning,
    dp_fedavg,
    dp_fedem,
)
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import KaryResponse, OneBit
from fedprior.core import check
from fedprior.engines import cache as programs
from fedprior.privacy.cohort import FixedSize, Poisson

# Fewer than one false alarm in 10,000 per check.
CONFIDENCE = 0.9999
# Attacks use a delta at which there are events to count: 1e-2 of the runs. The claim at a smaller
# delta depends on the same noise, which the conformance checks measure.
DELTA = 1e-2
RUNS = 20_000
QUICK_RUNS = 4_000
DRAWS = 1_000_000
QUICK_DRAWS = 100_000
# OpenDP draws about 50,000 numbers per second.
SECURE_DRAWS = 20_000

CENTRAL = (
    CentralGaussian(clip=0.5, noise_multiplier=1.0),
    CentralGaussian(clip=2.0, noise_multiplier=4.0),
)
LOCAL = (
    LocalGaussian(clip=1.0, scale=1.0, center=(3.0, -2.0, 0.5)),
    LocalGaussian(clip=1.0, scale=5.0),
)
ONE_BIT = (OneBit(epsilon=0.5), OneBit(epsilon=4.0, low=(-1.0, 0.0, 5.0), high=(1.0, 10.0, 6.0)))
RESPONSES = (KaryResponse(epsilon=1.0, num_symbols=2), KaryResponse(epsilon=3.0, num_symbols=7))
CHAINS = (Chain((CENTRAL[0], Quantize(bits_per_coordinate=4, low=-0.5, high=0.5))),)
COHORTS = ((Poisson(rate=0.5), 6), (Poisson(rate=0.05), 40), (FixedSize(size=3), 6))


class Task(NamedTuple):
    """One check that has not been run yet."""

    name: str
    check: Callable[[], Finding]


def tasks(
    *,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    quick: bool = False,
    runs: int | None = None,
) -> list[Task]:
    """List the checks of every channel, every cohort and complete runs.

    `runs` is the number of runs in the attack on a complete run.
    """
    check.seed("audit", seed)
    check_confidence("audit", confidence)
    if runs is not None:
        check.count("audit", least=100, runs=runs)
    draws = QUICK_DRAWS if quick else DRAWS
    number = runs if runs is not None else (QUICK_RUNS if quick else RUNS)
    options: dict[str, Any] = {"seed": seed, "confidence": confidence}
    planned = [*_channels(draws, options), *_compiled(draws, options)]
    planned += _cohorts(2000 if quick else 10_000, options)
    return planned + list(_runs(number, options))


def _channels(draws: int, options: dict[str, Any]) -> Iterator[Task]:
    many = {**options, "draws": draws}
    some = {**options, "draws": draws // 5}
    seed = options["seed"]
    for central in CENTRAL:
        yield _task("central Gaussian", attack_central, central, delta=DELTA, **many)
        yield _task("central Gaussian", check_central_noise, central, delta=DELTA, **some)
        yield _task("central Gaussian", check_central_clip, central, delta=DELTA, seed=seed)
    if find_spec("opendp") is not None:
        secure = CentralGaussian(clip=0.5, noise_multiplier=1.0, noise="secure")
        few = {**options, "draws": SECURE_DRAWS}
        yield _task("secure noise", attack_central, secure, delta=DELTA, **few)
        yield _task("secure noise", check_central_noise, secure, delta=DELTA, **few)
        yield _in_engine("secure noise", check_central_noise, secure, delta=DELTA, **few)
    for chain in CHAINS:
        yield _task("chain", check_chain_reach, chain, draws=draws // 5, delta=DELTA, seed=seed)
    for local in LOCAL:
        yield _task("local Gaussian", attack_local, local, delta=DELTA, **many)
        yield _task("local Gaussian", check_local_noise, local, delta=DELTA, **some)
        yield _task("local Gaussian", check_local_clip, local, delta=DELTA, seed=seed)
    for bit in ONE_BIT:
        yield _task("one bit", attack_one_bit, bit, **many)
        yield _task("one bit", check_one_bit, bit, **some)
    for response in RESPONSES:
        yield _task("k-ary response", attack_response, response, **many)
        yield _task("k-ary response", check_response, response, **some)


def _compiled(draws: int, options: dict[str, Any]) -> Iterator[Task]:
    """The same attacks on the channels inside compiled programs, as the engines call them."""
    some = {**options, "draws": draws // 5}
    yield _in_engine("central Gaussian", attack_central, CENTRAL[0], delta=DELTA, **some)
    yield _in_engine("local Gaussian", attack_local, LOCAL[0], delta=DELTA, **some)
    yield _in_engine("one bit", attack_one_bit, ONE_BIT[1], **some)
    yield _in_engine("k-ary response", attack_response, RESPONSES[1], **some)


def _cohorts(rounds: int, options: dict[str, Any]) -> Iterator[Task]:
    for cohort, clients in COHORTS:
        size = {"num_clients": clients, "rounds": rounds}
        yield _task("cohorts", check_cohort, cohort, delta=DELTA, **size, **options)


def _runs(runs: int, options: dict[str, Any]) -> Iterator[Task]:
    """Complete private runs; the first check of each compiles the program for all its checks."""
    programs.enable()
    some = {**options, "runs": min(runs, 5000)}
    adaped = dp_adaped()
    yield from _one_run(adaped, runs, options)
    yield _task(adaped.name, check_psi, adaped, delta=DELTA, **some)
    # An end-to-end attack would need a separate program, which takes 15 s to compile. The client
    # sends the same message through the same channel, and the proof holds for any memory.
    tuned = dp_adaped_fine_tuning()
    yield _task(tuned.name, check_uploads, tuned, delta=DELTA)
    for subject in (dp_fedavg(), dp_fedem()):
        yield from _one_run(subject, some["runs"], options)


def _one_run(subject: Subject, runs: int, options: dict[str, Any]) -> Iterator[Task]:
    name, seed, some = subject.name, options["seed"], {**options, "runs": min(runs, 5000)}
    yield _task(name, check_uploads, subject, delta=DELTA)
    yield _task(name, check_influence, subject, delta=DELTA, pairs=500, seed=seed)
    yield _task(name, check_noise, subject, delta=DELTA, **some)
    yield _task(name, attack, subject, delta=DELTA, runs=runs, **options)


def _task(name: str, check: Callable[..., Finding], subject: Any, **options: Any) -> Task:
    return Task(name, partial(check, subject, **options))


def _in_engine(name: str, inner: Callable[..., Finding], channel: Any, **options: Any) -> Task:
    def check() -> Finding:
        finding = inner(Compiled(channel), **options)
        return replace(finding, mechanism=f"{finding.mechanism}, compiled")

    return Task(f"{name}, compiled", check)
