"""Conformance of the Gaussian channels: their clip, and the scale of their noise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedprior.audit.channels import FAR
from fedprior.audit.finding import Family, Finding
from fedprior.audit.losses import gaussian
from fedprior.audit.noise import detects, deviations, upper_scale
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core import random
from fedprior.core.algorithm import Array
from fedprior.privacy.accounting import epsilon

# A clipped norm may exceed the clip because of rounding: in float32, a blocked sum of d squares has
# a relative error of at most about d / 16 units of 6e-8, which is 4e-5 for the largest d below.
# Measured: under 1e-7. The relative change of epsilon is about the same.
ROUNDING = 5e-5
_LENGTHS = (1, 2, 7, 101, 10_000)
_COORDINATES = 4  # in which noise is measured


def check_central_noise(
    channel: CentralGaussian, *, draws: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Check that `decode` adds N(0, (clip * noise_multiplier)^2 I) to an empty sum."""
    nothing = np.zeros((draws, _COORDINATES))
    noise = channel.decode(nothing, random.stream(seed, "decode"))
    claimed = epsilon([(channel.event(_COORDINATES), 1)], delta=delta)

    def cost(scale: float) -> float:
        return gaussian(channel.clip / scale, delta)

    name = f"CentralGaussian, {channel.noise} noise, multiplier {channel.noise_multiplier:g}"
    scale = channel.clip * channel.noise_multiplier
    return noise_finding(name, noise, scale, claimed, cost, delta=delta, confidence=confidence)


def check_local_noise(
    channel: LocalGaussian, *, draws: int, seed: int, confidence: float, delta: float
) -> Finding:
    """Check that `encode` adds N(0, scale^2 I) to a message at the center."""
    center = np.asarray(channel.center, np.float64)
    length = center.size if center.ndim else _COORDINATES
    messages = np.tile(np.broadcast_to(center, length), (draws, 1))
    noise = channel.encode(messages, random.stream(seed, "encode")) - messages
    claimed = channel.guarantee(delta=delta).epsilon

    def cost(scale: float) -> float:
        return gaussian(2 * channel.clip / scale, delta)

    name = f"LocalGaussian, clip {channel.clip:g}, noise scale {channel.scale:.4g}"
    finding = noise_finding(
        name, noise, channel.scale, claimed, cost, delta=delta, confidence=confidence
    )
    return replace(finding, relation="replace-one")


def noise_finding(
    name: str,
    noise: np.ndarray,
    scale: float,
    claimed: float,
    cost: Callable[[float], float],
    *,
    delta: float,
    confidence: float,
    family: Family = "channels",
) -> Finding:
    """Test draws (num_draws, dimension) against `scale`; `cost(scale)` is its epsilon."""
    alarm = 1 - confidence
    limit = upper_scale(noise, alarm=alarm)
    return Finding(
        family=family,
        mechanism=name,
        detects=detects(*noise.shape, alarm=alarm),
        claimed=claimed,
        lower_bound=cost(limit) if limit > 0 else np.inf,
        delta=delta,
        relation="add-remove",
        confidence=confidence,
        detail=f"noise of the stated scale, normal, independent: {noise.size:,} draws",
        faults=deviations(noise, scale, alarm=alarm),
    )


@np.errstate(over="ignore")  # messages near the largest floats
def check_central_clip(channel: CentralGaussian, *, seed: int, delta: float) -> Finding:
    """Check that no message has a norm above the clip after `encode`."""
    claimed = epsilon([(channel.event(_COORDINATES), 1)], delta=delta)
    norms = [
        longest(channel.encode(message, random.stream(seed, "encode")))
        for message in messages(channel.clip, seed=seed)
    ]

    def cost(ratio: float) -> float:
        return gaussian(ratio / channel.noise_multiplier, delta)

    name = f"CentralGaussian, clip {channel.clip:g}"
    return clip_finding(name, max(norms) / channel.clip, claimed, cost, delta=delta)


def check_chain_reach(channel: Chain, *, draws: int, seed: int, delta: float) -> Finding:
    """Check that no message exceeds the sensitivity stated by the members after the clip."""
    event = channel.event(_COORDINATES)
    member: Any = next(member for member in channel.members if member.private)
    reach = member.clip * member.event(_COORDINATES).noise / event.noise
    stream = random.stream(seed, "encode", 1)
    rows = FAR * member.clip * stream.standard_normal((draws, _COORDINATES))
    ratio = longest(channel.encode(rows, random.stream(seed, "encode"))) / reach

    def cost(excess: float) -> float:
        return gaussian(excess / event.noise, delta)

    names = " and ".join(type(member).__name__ for member in channel.members)
    claimed = epsilon([(event, 1)], delta=delta)
    what = f"{draws:,} messages far outside the clip, within the stated sensitivity"
    return clip_finding(f"Chain of {names}", ratio, claimed, cost, delta=delta, what=what)


@np.errstate(over="ignore")  # messages near the largest floats
def check_local_clip(channel: LocalGaussian, *, seed: int, delta: float) -> Finding:
    """Check that no message is further than the clip from the center; equal draws cancel noise."""
    claimed = channel.guarantee(delta=delta).epsilon
    center = np.asarray(channel.center, np.float64)
    lengths = (center.size,) if center.ndim else _LENGTHS

    def encoded(message: Array) -> Array:
        return channel.encode(message, random.stream(seed, "encode"))

    norms = []
    for message in messages(channel.clip, seed=seed, lengths=lengths, kinds=(np.float64,)):
        origin = np.broadcast_to(center, message.shape)
        norms.append(longest(encoded(origin + message) - encoded(origin.copy())))

    def cost(ratio: float) -> float:
        return gaussian(2 * channel.clip * ratio / channel.scale, delta)

    name = f"LocalGaussian, clip {channel.clip:g}, noise scale {channel.scale:.4g}"
    finding = clip_finding(name, max(norms) / channel.clip, claimed, cost, delta=delta)
    return replace(finding, relation="replace-one")


def clip_finding(
    name: str,
    ratio: float,
    claimed: float,
    cost: Callable[[float], float],
    *,
    delta: float,
    what: str = "messages from zero to the largest floats, clipped",
    family: Family = "special values",
) -> Finding:
    """Report a largest norm of `ratio` clips; `cost(ratio)` is the corresponding epsilon."""
    excess = ratio * (1 - ROUNDING)
    bound = 0.0 if excess == 0 else cost(excess) if np.isfinite(excess) else np.inf
    return Finding(
        family=family,
        mechanism=name,
        detects=f"a message of {1 + 2 * ROUNDING:g} clips",
        claimed=claimed,
        lower_bound=bound,
        delta=delta,
        relation="add-remove",
        confidence=1.0,
        detail=f"{what}: at most {ratio:.6g} times the clip",
        faults=(f"{what}: {ratio:.4g} clips",) if excess > 1 else (),
    )


def messages(
    clip: float,
    *,
    seed: int,
    lengths: tuple[int, ...] = _LENGTHS,
    kinds: tuple[Any, ...] = (np.float32, np.float64),
) -> list[np.ndarray]:
    """Return finite edge cases: zero, subnormal, near the clip, and the largest numbers."""
    stream = random.stream(seed, "encode", 1)
    cases = []
    for kind in kinds:
        most, least = np.finfo(kind).max, np.finfo(kind).smallest_subnormal
        sizes = [0, least, 1e-20, 0.5, 1 - 1e-6, 1, 1 + 1e-6, 1.5, 10, 1e15]
        for length in lengths:
            unit = stream.standard_normal(length)
            unit /= np.linalg.norm(unit)
            cases += [(size * clip * unit).astype(kind) for size in sizes]
            cases.append(np.full(length, most, kind))
            # One number whose square overflows or underflows, next to ordinary ones.
            for extreme in (most, most**0.5, least):
                spiked = (clip * unit).astype(kind)
                spiked[0] = -extreme
                cases.append(spiked)
    return cases


@np.errstate(over="ignore")
def longest(vectors: Array) -> float:
    """Return the largest norm of vectors (..., dimension); infinite if one is not finite."""
    rows = np.asarray(vectors, np.float64)
    if not np.isfinite(rows).all():
        return np.inf
    return float(np.linalg.norm(rows, axis=-1).max())
