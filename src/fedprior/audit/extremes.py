"""Attacks by size and by value: noise in high dimensions, and clients that send anything at all.

The probe sends vectors whose release is known except for the noise, which is what remains.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.audit.finding import Finding
from fedprior.audit.noise import detects, deviations
from fedprior.audit.probe import NOBODY, Released, in_turn, probe, release, senders
from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.core import random
from fedprior.core.algorithm import Array
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.client import take_part
from fedprior.exchange.server import RefusedUpload, admit

Gaussian = CentralGaussian | LocalGaussian
# Coordinates around which an implementation may change: blocks, powers of two, real networks.
SIZES = (1, 2, 16, 99, 101, 128, 129, 1000, 1025, 4097, 44_426, 70_000, 262_145)
_COMPILED = (7, 101, 44_426, 262_145)  # each takes a second to compile
_NUMBERS = 60_000  # of noise in each dimension, or one release where that is more
_FAR = 1e4  # in clips; where a clip is forgotten, nothing else matters
_TOLERANCE = 1e-4  # of the clip, for float32; secure sums are truncated by 2^-22


def scale_of(channel: Gaussian) -> float:
    """Return the standard deviation of the channel's noise."""
    if isinstance(channel, LocalGaussian):
        return channel.scale
    return channel.clip * channel.noise_multiplier


def check_sizes(
    channel: Gaussian, *, compiled: bool, confidence: float, seed: int, most: int = SIZES[-1]
) -> Finding:
    """Check the clip and the noise of one message in every dimension."""
    alarm = (1 - confidence) / len(SIZES)
    sizes = [size for size in (_COMPILED if compiled else SIZES) if size <= most]
    faults, longest, scales = [], 0.0, []
    call = _compiled(channel) if compiled else _on_the_host(channel)
    for size in sizes:
        number = max(3, _NUMBERS // size)
        noise = call(np.zeros((number, size)), seed) / scale_of(channel)
        scales.append(float(np.sqrt((noise**2).mean())))
        words = deviations(noise, 1.0, alarm=alarm)
        faults += [f"{size:,} coordinates: {fault}" for fault in words]
        direction = np.resize([1.0, -1.0, 0.5], size)
        direction /= np.linalg.norm(direction)
        sent = np.tile(_FAR * channel.clip * direction, (number, 1))
        moved = call(sent, seed) / scale_of(channel) - noise  # equal draws: the noise cancels
        length = float(np.linalg.norm(moved, axis=1).max()) * scale_of(channel) / channel.clip
        longest = max(longest, length)
        if length > 1 + 1e-3:
            faults.append(f"{size:,} coordinates: a message of {length:.4g} clips is released")
    how = "compiled" if compiled else "on the host"
    found = detects(_NUMBERS, 1, alarm=alarm)
    return Finding(
        family="dimensions",
        mechanism=f"{type(channel).__name__}, {how}",
        detail=f"noise and clip of messages of {sizes[0]} to {sizes[-1]:,} coordinates",
        detects=f"{found} in any of these dimensions, a message of 1.001 clips",
        confidence=confidence,
        claim="the stated scale and clip",
        measured=f"scale {min(scales):.3f} to {max(scales):.3f}, at most {longest:.4f} clips",
        faults=tuple(faults[:6]),
    )


def _on_the_host(channel: Gaussian) -> Callable[[np.ndarray, int], np.ndarray]:
    def call(messages: np.ndarray, seed: int) -> np.ndarray:
        key = random.stream(seed, "encode", messages.shape[1])
        sent = channel.encode(messages, key)
        return np.asarray(channel.decode(sent, key))

    return call


def _compiled(channel: Gaussian) -> Callable[[np.ndarray, int], np.ndarray]:
    def one(message: Array, key: Array) -> Array:
        sent = channel.encode(message, random.fold(key, "encode"))
        return channel.decode(channel.add(sent[None]), random.fold(key, "decode"))

    program = jax.jit(jax.vmap(one))

    def call(messages: np.ndarray, seed: int) -> np.ndarray:
        keys = jax.random.split(jax.random.key(seed), len(messages))
        return np.asarray(program(jnp.asarray(messages, jnp.float32), keys), np.float64)

    return call


def specials(size: int, clip: float) -> dict[str, tuple[np.ndarray, float]]:
    """Return what clients send, by name, with the number that each remembers."""
    unit = np.resize([1.0, -2.0, 0.5], size)
    unit /= np.linalg.norm(unit)
    broken = clip * unit
    cases: dict[str, Any] = {
        "zero": 0 * unit,
        "half a clip": 0.5 * clip * unit,
        "one clip": clip * unit,
        "far outside": _FAR * clip * unit,
        "far outside, one block": _FAR * clip * (np.arange(size) < size // 4),
        "the largest floats": np.full(size, 3e38),
        "a negative one": -1e30 * np.eye(size)[-1],
        "subnormal": np.full(size, 1e-42),
        "NaN": np.full(size, np.nan),
        "one NaN": np.where(np.arange(size) == 3, np.nan, broken),
        "infinity": np.full(size, np.inf),
        "minus infinity in one place": np.where(np.arange(size) == size - 1, -np.inf, broken),
    }
    rows = {name: (row, 0.0) for name, row in cases.items()}
    rows["a memory that is NaN"] = (broken, np.nan)
    return rows


def expected(row: np.ndarray, memory: float, clip: float) -> np.ndarray:
    """Return what a message adds to the sum: clipped to `clip`, zero unless all is finite."""
    if not (np.isfinite(row).all() and np.isfinite(memory)):
        return np.zeros(len(row))
    largest = np.abs(row).max(initial=0)
    norm = largest * np.linalg.norm(row / largest) if largest > 0 else 0.0
    return row * min(1.0, clip / norm) if norm > 0 else np.zeros(len(row))


def check_specials(channel: Gaussian, *, size: int, confidence: float, seed: int) -> Finding:
    """Check that every client, and an empty cohort, releases the stated noise and nothing more.

    Each client takes part alone, so that what is released is its clipped message, or zero if it is
    not finite, and the noise.
    """
    cases = specials(size, channel.clip)
    rows = np.array([row for row, _ in cases.values()])
    memories = np.array([memory for _, memory in cases.values()])
    turns = [*range(len(cases)), NOBODY]
    rounds = len(turns) if channel.noise == "secure" else 3 * len(turns)
    run = release(channel, rows, rounds=rounds, cohort=in_turn(turns), seed=seed, memories=memories)
    names = [*cases, "nobody"]
    adds = [expected(row, memory, channel.clip) for row, memory in cases.values()]
    adds.append(np.zeros(size))
    scale = scale_of(channel)
    alarm = (1 - confidence) / len(names)
    faults, scales = [], []
    for place, (name, most) in enumerate(zip(names, adds, strict=True)):
        noise = run.totals[place :: len(names)]
        if name == "nobody" and isinstance(channel, LocalGaussian):
            faults += ["an empty cohort releases something"] if noise.any() else []
            continue
        noise, excess = _without(noise, most, scale)
        faults += [f"a client that sends {name} adds {excess}"] if excess else []
        scales.append(float(np.sqrt((noise**2).mean())) / scale)
        words = deviations(noise, scale, alarm=alarm)
        faults += [f"a client that sends {name}: {fault}" for fault in words]
    faults += _weights(run)
    found = detects(rounds * size // len(names), 1, alarm=alarm)
    if isinstance(channel, LocalGaussian):
        faults += _alone(channel, run, rows, memories, turns, seed)
    return Finding(
        family="special values",
        mechanism=f"{type(channel).__name__}, {channel.noise} noise, in the engine",
        detail=f"{len(cases)} clients from zero to NaN and an empty cohort, {size:,} coordinates",
        detects=f"{found}; a message {10 * scale / channel.clip:.2g} clips too long",
        confidence=confidence,
        claim="the stated noise whatever is sent; a constant weight",
        measured=f"scale {min(scales):.3f} to {max(scales):.3f} of the stated one",
        faults=tuple(faults[:6]),
    )


def _without(released: np.ndarray, most: np.ndarray, scale: float) -> tuple[np.ndarray, str]:
    """The noise, and how much more than `most` was released, in words, if it is 6 deviations.

    A client sends the whole message, or nothing where its norm exceeds the largest float.
    """
    length = float(np.linalg.norm(most))
    if length == 0:
        return released, ""
    sent = float((released @ most).mean()) / length
    excess = max(sent - length, -sent) / scale * len(released) ** 0.5
    words = f"{sent / length:.3g} times what it may" if excess > 6 else ""
    return released - (most if sent > length / 2 else 0.0), words


def _weights(run: Released) -> list[str]:
    """The probe's cohorts have a public expected size of 2, and 0 or 1 members."""
    told = np.unique(run.weights)
    return [] if np.array_equal(told, [2.0]) else ["the divisor tells how many clients took part"]


def _alone(
    channel: LocalGaussian,
    run: Released,
    rows: np.ndarray,
    memories: np.ndarray,
    turns: list[int],
    seed: int,
) -> list[str]:
    """Compare with the uploads of the same clients on their own machines, which a server admits."""
    federation = senders(rows, memories)
    method = probe(rows.shape[1], len(run.totals))
    agreement = Agreement.of(method, federation, channel=channel, cohort=in_turn(turns), seed=seed)
    state = agreement.initial_state()
    faults = []
    for round, client in enumerate(turns[:-1]):
        own = federation.train.client(client)
        upload, _ = take_part(agreement, state, None, own, client, round)
        gap = np.abs(np.asarray(upload, np.float64) - run.totals[round]).max()
        if not gap <= _TOLERANCE * scale_of(channel) + 1e-6 * channel.clip:
            faults.append(f"client {client} sends something else on its own machine")
    return faults


def check_admission(*, clip: float = 0.5, size: int = 300) -> Finding:
    """Check that a server admits no upload beyond the clip, whatever a client sends."""
    channel = CentralGaussian(clip=clip, noise_multiplier=1.0)
    agreement = Agreement.of(probe(size, 1), senders(np.zeros((2, size))), channel=channel)
    worst, faults = 0.0, []
    for name, (row, _) in specials(size, clip).items():
        with np.errstate(over="ignore"):
            upload = row.astype(np.float32)
        try:
            admitted = np.asarray(admit(agreement, upload), np.float64)
        except RefusedUpload:
            continue
        largest = float(np.linalg.norm(admitted)) / clip
        worst = max(worst, largest) if np.isfinite(largest) else np.inf
        if not largest <= 1 + 1e-4:
            faults.append(f"a server admits an upload of {largest:.4g} clips: {name}")
    return Finding(
        family="special values",
        mechanism="uploads that a server admits",
        detail="uploads from zero to NaN, sent past the client's own clip",
        detects="an upload of 1.0001 clips",
        confidence=1.0,
        claim="at most one clip",
        measured=f"{worst:.6f} clips",
        faults=tuple(faults),
    )


def check_blocks(channel: CentralGaussian, *, confidence: float, seed: int) -> Finding:
    """Check the covariance of the noise over many rounds of the engine, in all directions."""
    size, rounds = 96, 1024
    noise = release(channel, np.zeros((2, size)), rounds=rounds, seed=seed).totals
    noise /= scale_of(channel)
    values = np.linalg.eigvalsh(noise.T @ noise / rounds)
    # The extreme eigenvalues of a Wishart matrix (Davidson and Szarek 2001).
    width = np.sqrt(2 * np.log(4 / (1 - confidence)) / rounds)
    low = max(0.0, 1 - np.sqrt(size / rounds) - width) ** 2
    high = (1 + np.sqrt(size / rounds) + width) ** 2
    faults = list(deviations(noise, 1.0, alarm=(1 - confidence) / 2))
    if values[0] < low or values[-1] > high:
        faults.append(
            f"noise of {np.sqrt(max(values[0], 0)):.3g} to {np.sqrt(values[-1]):.3g} times the "
            "stated scale in some direction"
        )
    return Finding(
        family="dimensions",
        mechanism=f"{type(channel).__name__}, in the engine",
        detail=f"covariance of the noise of {rounds:,} rounds in {size} dimensions, three blocks",
        detects=f"a direction with a scale below {np.sqrt(low) * 0.9:.2f} of the stated one",
        confidence=confidence,
        claim="a multiple of the identity",
        measured=f"scale {np.sqrt(max(values[0], 0)):.3f} to {np.sqrt(values[-1]):.3f}",
        faults=tuple(faults),
    )
