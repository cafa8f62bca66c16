"""Claimed epsilons against lower bounds of their own: `python benchmarks/accounting.py`.

Writes docs/reference/accounting.md. The lower bound shares no code with fedprior or dp-accounting.
The outputs of one round are grouped into many cells, which can only lose information; the loss of a
cell is rounded down to a fine grid; and the grid is composed by a Fourier transform. The epsilon of
the result is therefore optimistic: nobody can claim less.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import Event, Relation, gaussian, laplace, response

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "accounting.md"
CELLS = 40_001
MOST_POINTS = 2**24
TEXT = """# Accounting: claimed epsilons and lower bounds

<!-- Written by benchmarks/accounting.py; do not edit. -->

Every epsilon is the smallest of the bounds that are proven for the events of a run:

- **closed forms**: Gaussians without sampling are one Gaussian (Balle and Wang 2018), and the
  epsilons of pure mechanisms add up;
- **privacy loss distributions**, for everything but sampled responses. dp-accounting supplies the
  pairs of distributions that dominate a round. Their losses are rounded to a grid by connecting the
  dots (Doroshenko et al. 2022), which never understates a divergence, and convolved after an
  exponential tilt. The grid is refined until it changes epsilon by about 0.02%. Losses that are cut
  off, the ends of the transform and its rounding errors are charged to delta;
- **Renyi divergences** from dp-accounting.

The tilt matters: without it, the rounding errors of the Fourier transform are about 5e-17 for
each round, so that at 100,000 rounds and delta 1e-11 a claim would be 1% below the truth.

**Poisson sampling.** Under add-remove, a round is (1 - q) N(0, z^2) + q N(1, z^2) against N(0,
z^2), in both directions. Under replace-one it is (1 - q) N(0, z^2) + q N(1, z^2) against (1 - q)
N(0, z^2) + q N(-1, z^2), which is the worst pair of messages u and v with norms up to 1: for a
set A with N(u, z^2)(A) = a, the smallest possible probability of A under N(0, z^2) and under N(v,
z^2) depends only on a and on the distances to u (Neyman and Pearson). These are at most 1 and 2,
and for messages on opposite sides one half-space attains both smallest probabilities at once.

**A fixed number of clients, K of m,** has no epsilon under add-remove. Under replace-one, with
messages that do not depend on earlier rounds, the divergence of a round at order alpha >= 1 is at
most q H_a(N(2, z^2), N(0, z^2)), where q = K / m and a = 1 + q (alpha - 1): the client, its
replacement, and the client that is drawn in its place differ from each other by at most two clips
(Balle, Barthe and Gaboardi 2018, Theorem 11; Zhu, Dong and Wang 2022). This is the divergence of
(1 - q) N(0, z^2) + q N(2, z^2) from N(0, z^2), and by symmetry its reverse bounds alpha < 1. The
bound is attained in a single round, when all other clients send the opposite message. Over
several rounds it is not, because no single pair of neighbors is the worst one in both directions;
this is the whole difference from the lower bound in the table. The event
`TruncatedSubsampledGaussianDpEvent(m, 1.0, K, z)` of dp-accounting also holds for this sampler,
but places the client and its replacement four clips apart: for 240 rounds of 22 of 66 clients
with noise 5 and delta 1e-4 it gives 22.66, and the Renyi bound of Wang, Balle and Kasiviswanathan
25.65. If messages depend on earlier rounds, no amplification is claimed.

The table compares claims with lower bounds that share no code with them: outputs are grouped into
cells, which can only lose information, and the losses of the cells are rounded *down*. The truth
is between the two figures. The lower bounds are themselves between 0.2% and 1.5% too small, so
the ratios are mostly theirs; against a numerical inversion of the characteristic function, claims
are at most 0.1% too large."""
Array = NDArray[np.float64]
Pair = tuple[Array, Array]  # probabilities of the cells under two neighbors


@dataclass(frozen=True)
class Setting:
    """Events with their numbers of rounds, a relation and a delta."""

    spent: tuple[tuple[Event, int], ...]
    delta: float
    relation: Relation = "add-remove"

    def __str__(self) -> str:
        return " + ".join(_words(event, rounds) for event, rounds in self.spent)


def poisson(noise: float, rate: float) -> Event:
    """One round of the Gaussian mechanism with Poisson sampling."""
    return Event(mechanism="gaussian", noise=noise, sampling="poisson", rate=rate)


def fixed(noise: float, size: int, num_clients: int, *, amplified: bool = True) -> Event:
    """One round of the Gaussian mechanism on a fixed number of clients."""
    sizes = {"size": size, "num_clients": num_clients}
    return Event(mechanism="gaussian", noise=noise, sampling="fixed", amplified=amplified, **sizes)


def settings() -> Iterator[Setting]:
    """Rates from 1e-4 to 1, noise from 0.3 to 50, 1 to 20,000 rounds, delta from 1e-4 to 1e-10."""
    for noise, rate, rounds, delta in (
        *((1.5, 1e-3, 5_000, 1e-5), (3.0, 1e-3, 20_000, 1e-5), (5.0, 1e-4, 10_000, 1e-5)),
        *((1.0, 1e-4, 20_000, 1e-6), (0.5, 1e-3, 100, 1e-6), (0.3, 1e-3, 20, 1e-8)),
        *((1.0, 0.01, 1_000, 1e-10), (0.7, 0.01, 1, 1e-6), (2.0, 0.05, 300, 1e-5)),
        *((6.4, 1 / 3, 240, 1e-4), (50.0, 0.5, 2_000, 1e-7), (0.8, 0.2, 10, 1e-6)),
        *((20.0, 0.1, 20_000, 1e-10), (50.0, 1e-3, 10_000, 1e-5)),
    ):
        yield Setting(((poisson(noise, rate), rounds),), delta)
    for noise, rate, rounds, delta in (
        *((1.5, 1e-3, 5_000, 1e-5), (3.0, 1e-3, 20_000, 1e-5), (5.0, 1e-4, 10_000, 1e-5)),
        *((12.6, 1 / 3, 240, 1e-4), (0.5, 0.01, 10, 1e-6), (20.0, 0.1, 2_000, 1e-10)),
    ):
        yield Setting(((poisson(noise, rate), rounds),), delta, "replace-one")
    yield Setting(((gaussian(0.3), 1),), 1e-5)
    yield Setting(((gaussian(50.0), 20_000),), 1e-6, "replace-one")
    yield Setting(((response(0.1), 400),), 1e-5)
    yield Setting(((response(3.0), 5),), 1e-6, "replace-one")
    yield Setting(((laplace(2.0), 100),), 1e-6)
    yield Setting(((poisson(1.0, 0.01), 1_000), (poisson(4.0, 0.1), 100)), 1e-6)
    yield Setting(((poisson(2.0, 0.01), 500), (gaussian(8.0), 3), (response(0.2), 5)), 1e-6)
    yield Setting(((fixed(5.0, 22, 66), 240),), 1e-4, "replace-one")
    yield Setting(((fixed(2.0, 10, 1_000), 1_000),), 1e-6, "replace-one")
    yield Setting(((fixed(5.0, 22, 66, amplified=False), 240),), 1e-4, "replace-one")


def optimistic(setting: Setting, near: float) -> float:
    """Return a lower bound on epsilon, within a percent of the largest one if that is `near`."""
    directions = [_pairs(event, setting.relation) for event, _ in setting.spent]
    number = max(len(pairs) for pairs in directions)
    rounds = [count for _, count in setting.spent]
    return max(
        _composed([pairs[min(at, len(pairs) - 1)] for pairs in directions], rounds, setting, near)
        for at in range(number)
    )


def _pairs(event: Event, relation: Relation) -> Sequence[Pair]:
    """Neighbors that occur, in each direction, as probabilities of cells."""
    if event.mechanism == "response":
        yes = 1 / (1 + math.exp(-event.noise))
        return [(np.array([yes, 1 - yes]), np.array([1 - yes, yes]))]
    noise = stats.norm if event.mechanism == "gaussian" else stats.laplace
    moved = 2.0 if relation == "replace-one" else 1.0
    width = 12.0 if event.mechanism == "gaussian" else 40.0
    cuts = np.linspace(-moved - width * event.noise, moved + width * event.noise, CELLS)

    def cells(shift: float) -> Array:
        law = noise(shift, event.noise)
        below = np.diff(law.cdf(cuts), prepend=0.0)
        above = -np.diff(law.sf(cuts), append=0.0)
        # Differences of the smaller of the two tails, so that small probabilities are accurate.
        joined = np.append(below, 0.0)
        upper = np.append(0.0, above)
        return np.where(np.append(cuts, np.inf) <= shift, joined, upper)

    if event.sampling == "everyone" or (event.sampling == "fixed" and not event.amplified):
        return [(cells(0.0), cells(moved))]
    if event.sampling == "fixed":
        # One client sends +1 and everybody else -1, or it sends -1 as well.
        rate = event.size / event.num_clients
        mixed = (1 - rate) * cells(0.0) + rate * cells(2.0)
        return [(mixed, cells(0.0)), (cells(0.0), mixed)]
    absent, rate = cells(0.0), event.rate
    mixed = (1 - rate) * absent + rate * cells(1.0)
    if relation == "replace-one":
        return [(mixed, (1 - rate) * absent + rate * cells(-1.0))]
    return [(mixed, absent), (absent, mixed)]


def _composed(pairs: Sequence[Pair], rounds: Sequence[int], setting: Setting, near: float) -> float:
    """Return the epsilon of composed cells, with losses rounded down."""
    total = sum(rounds)
    losses = []
    for first, second in pairs:
        keep = (first > 1e-300) & (second > 1e-300)
        losses.append((first[keep], np.log(first[keep] / second[keep])))
    spread = math.sqrt(
        sum(
            count * float(first @ (loss - first @ loss) ** 2)
            for (first, loss), count in zip(losses, rounds, strict=True)
        )
    )
    mean = sum(
        count * float(first @ loss) for (first, loss), count in zip(losses, rounds, strict=True)
    )
    # Losses above the cut are improbable and rounded down to it; those far below 0 are dropped.
    cut = max(
        _quantile(first, loss, 1e-4 * setting.delta / count)
        for (first, loss), count in zip(losses, rounds, strict=True)
    )
    width = 4 * (near + abs(mean) + 12 * spread + max(cut, 0.0))
    grid = max(0.005 * near / total, width / MOST_POINTS)
    size = fft.next_fast_len(math.ceil(width / grid), real=True)
    transform = np.ones(size // 2 + 1, complex)
    for (first, loss), count in zip(losses, rounds, strict=True):
        keep = loss > -width / 4
        index = np.floor(np.minimum(loss[keep], cut) / grid).astype(np.int64)
        transform *= fft.rfft(np.bincount(index % size, first[keep], minlength=size)) ** count
    mass = np.maximum(fft.irfft(transform, size), 0.0)
    points = np.arange(size)
    value = grid * np.where(points > size // 2, points - size, points)
    order = np.argsort(value)[::-1]
    value, mass = value[order], mass[order]
    return _epsilon(value, mass, setting.delta)


def _quantile(probability: Array, loss: Array, above: float) -> float:
    """Return the smallest loss that is exceeded with at most this probability."""
    order = np.argsort(loss)[::-1]
    return float(loss[order][np.searchsorted(np.cumsum(probability[order]), above)])


def _epsilon(value: Array, mass: Array, delta: float) -> float:
    """Return the smallest epsilon >= 0 whose divergence is at most delta, for decreasing values."""
    positive = value > 0
    value, mass = value[positive], mass[positive]
    upper, lower = np.cumsum(mass), np.cumsum(mass * np.exp(-value))
    reached = np.flatnonzero(upper - np.exp(value) * lower > delta)
    last = int(reached[0]) - 1 if len(reached) else len(value) - 1
    if last < 0 or upper[last] <= delta:
        return 0.0
    return max(0.0, math.log((upper[last] - delta) / lower[last]))


def _words(event: Event, rounds: int) -> str:
    kind = {"gaussian": "Gaussian", "laplace": "Laplace", "response": "response"}[event.mechanism]
    sampled = {
        "everyone": "",
        "poisson": f", Poisson {event.rate:.3g}",
        "fixed": f", {event.size} of {event.num_clients}"
        + ("" if event.amplified else ", not amplified"),
    }[event.sampling]
    return f"{rounds:,} x {kind} {event.noise:g}{sampled}"


def table() -> list[tuple[Setting, float, float]]:
    """Return each setting with its claimed and its optimistic epsilon."""
    rows = []
    for setting in settings():
        claimed = epsilon(setting.spent, delta=setting.delta, relation=setting.relation)
        rows.append((setting, claimed, optimistic(setting, claimed)))
        print(f"{setting}: {claimed:.6g} / {rows[-1][2]:.6g}", file=sys.stderr, flush=True)
    return rows


def page(rows: Sequence[tuple[Setting, float, float]]) -> str:
    """Return the reference page with the table."""
    lines = [TEXT, "", "| rounds | relation | delta | claimed | optimistic | ratio |"]
    lines.append("|---|---|---|---|---|---|")
    for setting, claimed, lower in rows:
        figures = f"{claimed:.5g} | {lower:.5g} | {claimed / lower:.4f}"
        lines.append(f"| {setting} | {setting.relation} | {setting.delta:g} | {figures} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(table()))
