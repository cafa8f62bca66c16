"""Discrete mixtures by EM whose messages are private or quantized (ERRATA 24, D4)."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.quantize import Quantize
from fedprior.core import check, random
from fedprior.estimation.intervals import normal_score
from fedprior.estimation.mixture.em import DiscreteMixture, responsibilities
from fedprior.estimation.mixture.estimate import MixtureEstimates
from fedprior.estimation.mixture.summary import pooled_error, separation, summarize_mixture
from fedprior.estimation.private.em import (
    learn,
    lemma_radius,
    message_channel,
    simulated_center_errors,
)
from fedprior.estimation.private.guard import Guard, changes, guarded, last_channel
from fedprior.estimation.private.result import NOT_PRIVATE, unit_of
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Means
from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy.guarantee import Guarantee
from fedprior.privacy.ledger import Ledger

_OWNER = "estimate_mixture_privately"


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateMixtureEstimates:
    """A mixture learned through a channel: `bits` a client over all rounds, and the guarantee.

    `centers` and `probabilities` of `fitted` come from what the clients sent; everything that is
    one row per group in it is the group's own and is not private.
    """

    fitted: MixtureEstimates
    rounds: int
    bits: float
    guarantee: Guarantee | None  # None where the channel only saves bits


def estimate_mixture_privately(
    statistics: Means,
    *,
    num_components: int,
    radius: float,
    noise_variance: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    bits: int | None = None,
    rounds: int = 3,
    center: float = 0.0,
    centers: np.ndarray | None = None,
    seed: int = 0,
    level: float = 0.95,
    allow_delta: bool = False,
    ledger: Ledger | None = None,
) -> PrivateMixtureEstimates:
    """EM of D4 for a fixed number of rounds, with messages (alpha, alpha mean) through a channel.

    The centers are within `radius` of the public `center` (the same in each coordinate); means are
    moved into the ball that contains all of them except with probability 1 / (m n) (Lemma 1, by the
    chi quantile: ERRATA 24). With `epsilon` and `delta` the channel adds Gaussian noise, and all
    messages of a client are accounted for together (local model, simulated noise); with `bits` it
    is the stochastic quantizer with that many bits per coordinate. EM starts at public `centers`,
    or at points that do not depend on the data: evenly spaced in one dimension, random in more. A
    center whose noisy mass is below 4 standard deviations does not move.

    In a last message each group sends Stein's unbiased estimate of the change in its squared error
    due to the mixture. Unless an upper bound (99%) on the mean change is below 0, every group keeps
    its raw mean. The mean change is the returned `gain_over_raw`.

    The standard errors of the centers come from the same procedure run on simulated groups
    (`em.simulated_center_errors`); the intervals are widened by them.

    `noise_variance` is that of one value, known, unless the statistics have variances of their own.
    All messages are charged to `ledger` (view `local`, noise `simulated`) before the first is sent.
    A delta of 1 / groups or more is refused unless `allow_delta`.
    """
    check.count(_OWNER, num_components=num_components, rounds=rounds)
    check.positive(_OWNER, radius=radius)
    check.share(_OWNER, delta=delta)
    chosen = (epsilon is None) != (bits is None)
    check.require(chosen, _OWNER, "epsilon or bits", "one of the two", (epsilon, bits))
    remedy = "The quantizer has no privacy guarantee."
    check.require(bits is None or delta == 0, _OWNER, "delta", "0 with bits", delta, remedy)
    seed = check.seed(_OWNER, seed)
    size, noise = _sizes(statistics, noise_variance)
    there = size > 0
    means = np.asarray(statistics.mean, np.float64).reshape(len(size), -1)[there] - center
    dimension = means.shape[1]
    least = int(np.min(np.asarray(statistics.n)[there]))
    ball = lemma_radius(radius, noise / size[there], least, dimension)
    channel = message_channel(num_components, dimension, rounds, epsilon, delta, bits)
    last, width = last_channel(channel), num_components * (dimension + 1)
    start = _start(centers, num_components, dimension, radius, center, seed)
    start = DiscreteMixture(start.centers / ball, start.probabilities)
    inside = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), ball)
    arguments = (noise / ball**2, radius / ball, channel, rounds)
    agreed = {"num_clients": len(means), "delta": delta, "rounds": rounds + 1, "seed": seed}
    agreed |= {"allow_delta": allow_delta}
    content = (size, means, *start, *arguments, center)
    with _charged(channel, last, width, ledger, content, agreed) as sending:
        unit = learn(inside, size[there], start, *arguments, sending)
        mixture = DiscreteMixture(unit.centers * ball + center, unit.probabilities)
        key = sending.key("encode", rounds)
        change = changes(means + center, noise / size[there], mixture)
        guard = guarded(sending.gather(last, change, key))
    errors = ball * simulated_center_errors(size[there], start, unit, *arguments, seed)
    sent = rounds * channel.bits(width) + last.bits(1)
    guarantee = None
    if sending.batch is not None and isinstance(channel, LocalGaussian):
        guarantee = sending.batch.guarantee(
            unit=unit_of(errors_are_public=statistics.variance is not None),
            mechanism=f"analytic Gaussian mechanism on a ball of radius {channel.clip:g}, noise "
            f"scale {channel.scale:g}, {rounds + 1} messages",
            bits=sent,
        )
    with np.errstate(divide="ignore"):
        sampling = noise / size
    return PrivateMixtureEstimates(
        fitted=_fitted(
            statistics, mixture, errors, noise_variance, sampling, guard, guarantee, level
        ),
        rounds=rounds,
        bits=sent,
        guarantee=guarantee,
    )


def _charged(
    channel: LocalGaussian | Quantize,
    last: LocalGaussian | Quantize,
    width: int,
    ledger: Ledger | None,
    content: Iterable[Any],
    agreed: dict[str, Any],
) -> AbstractContextManager[Rounds]:
    """The rounds: private ones at the cost of the dearer channel each, or quantized ones."""
    if isinstance(channel, LocalGaussian) and isinstance(last, LocalGaussian):
        dearer = min(channel, last, key=lambda each: each.event(width).noise)
        return Batch.of(_OWNER, dearer, width, **agreed).charged(ledger, content=content)
    rule, remedy = "None with bits", "Quantized messages have no privacy cost that it could record."
    check.require(ledger is None, _OWNER, "ledger", rule, ledger, remedy)
    return nullcontext(Rounds(None, agreed["seed"]))


def _sizes(statistics: Means, noise_variance: float | None) -> tuple[np.ndarray, float]:
    """(size, noise) with sampling variances noise / size; size 0 without data."""
    n = np.asarray(statistics.n, np.float64)
    check.require(bool((n > 0).sum() > 1), _OWNER, "statistics", "2 groups with data", len(n))
    if statistics.variance is not None:
        rule = "None where statistics.variance is given"
        check.require(noise_variance is None, _OWNER, "noise_variance", rule, noise_variance)
        return np.where(n > 0, 1 / np.where(n > 0, statistics.variance, 1.0), 0.0), 1.0
    remedy = "It enters the clients' messages and has to be public."
    check.require(noise_variance is not None, _OWNER, "noise_variance", "given", None, remedy)
    check.positive(_OWNER, noise_variance=noise_variance)
    return n, float(noise_variance or 0.0)


def _start(
    centers: np.ndarray | None,
    count: int,
    dimension: int,
    radius: float,
    center: float,
    seed: int,
) -> DiscreteMixture:
    """Public centers, relative to `center`, with equal probabilities."""
    if centers is not None:
        points = np.asarray(centers, np.float64).reshape(len(centers), -1) - center
        rule = f"of shape ({count}, {dimension})"
        check.require(points.shape == (count, dimension), _OWNER, "centers", rule, points.shape)
    elif dimension == 1:
        points = radius * ((2 * np.arange(count) + 1) / count - 1)[:, None]
    else:
        draws = random.stream(seed, "init").standard_normal((count, dimension))
        points = radius * draws / np.linalg.norm(draws, axis=1, keepdims=True)
    return DiscreteMixture(points, np.full(count, 1 / count))


def _fitted(
    statistics: Means,
    mixture: DiscreteMixture,
    errors: np.ndarray,
    noise_variance: float | None,
    sampling: np.ndarray,
    guard: Guard,
    guarantee: Guarantee | None,
    level: float,
) -> MixtureEstimates:
    """Each group's own estimate under the learned mixture, or its raw mean if the guard says so.

    Population, gains and notes are functions of what was sent and of what is public.
    """
    raw = np.asarray(statistics.mean, np.float64).reshape(len(sampling), -1)
    table, _ = responsibilities(raw, sampling, mixture)
    variance = sampling[np.isfinite(sampling)]
    noise = np.nan if noise_variance is None else noise_variance
    how = "quantized EM" if guarantee is None else "private EM"
    common: dict[str, Any] = {
        "noise": noise,
        "level": level,
        "fitted_by": how,
        "notes": _apart(mixture, variance),
    }
    estimates = summarize_mixture(statistics, sampling, mixture, table, errors, **common)
    change = max(guard.change, -1.0)
    if guard.most >= 0:
        estimates, change = _local(estimates, variance), 0.0
    between = pooled_error(mixture, variance)
    error = (1 + change) * float(variance.mean())
    estimates = replace(
        estimates,
        gain_over_raw=-100 * change,
        gain_over_pooled=0.0 if estimates.fell_back else 100 * (1 - error / between),
        notes=(*estimates.notes, NOT_PRIVATE) if guarantee else estimates.notes,
        guarantee=guarantee,
    )
    return MixtureEstimates(
        estimates=estimates,
        responsibilities=table,
        centers=mixture.centers if np.ndim(statistics.mean) == 2 else mixture.centers[:, 0],
        probabilities=mixture.probabilities,
        noise_variance=noise,
        log_likelihood=float("nan"),
    )


def _apart(mixture: DiscreteMixture, variance: np.ndarray) -> tuple[str, ...]:
    if len(mixture.centers) == 1:
        return ()
    distance = separation(mixture, variance)
    return (f"Nearest two centers: {distance:.2f} standard deviations of a typical mean apart.",)


def _local(estimates: Estimates, variance: np.ndarray) -> Estimates:
    """Every group with data keeps its raw mean."""
    there = estimates.n > 0
    scale = estimates.scale.copy()
    scale[there] = np.sqrt(variance if scale.ndim == 1 else variance[:, None])
    personal = np.where(
        there.reshape(-1, *[1] * (scale.ndim - 1)), estimates.raw, estimates.personal
    )
    reach = normal_score(estimates.level) * scale
    note = (
        "The reports do not show that the mixture lowers the error: every group keeps its raw "
        "value (fallback to local). The population shown is then not a finding."
    )
    return replace(
        estimates,
        personal=personal,
        weight=there.astype(np.float64),
        scale=scale,
        lower=personal - reach,
        upper=personal + reach,
        notes=(*estimates.notes, note),
        fell_back=True,
    )
