"""The privacy loss of one round, as probabilities on a grid that never understate it.

dp-accounting supplies the pairs of distributions that dominate a round and their losses. The loss
is rounded to a grid by connecting the dots (Doroshenko et al. 2022): the probability of the losses
between two points of the grid is divided between these points such that both distributions keep
their probability. The hockey-stick divergence of the result is exact on the grid and an upper bound
elsewhere, so it remains an upper bound after any number of rounds.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedprior.privacy.events import Event, Relation

Array = NDArray[np.float64]

_STEP = 0.02  # standard deviations of the noise between two losses that are computed
_FEWEST = 400  # losses
# With less noise than this nothing is hidden, and with more the losses drown in rounding errors.
_LEAST_NOISE = 1 / 2000
_MOST_NOISE = 1e12  # divided by the sampling rate
_TAIL = -60.0  # logarithm of the probability beyond which losses are counted as infinite


@dataclass(frozen=True, eq=False)
class RoundLoss:
    """Losses `multiples` * grid with `probabilities`; the rest of the probability is `infinite`."""

    multiples: NDArray[Any]
    probabilities: Array
    infinite: float


def directions(event: Event, relation: Relation) -> tuple[str, ...] | None:
    """Return the directions in which neighbors can differ, or None if no distribution is known.

    Under add-remove the client is in the first or in the second of two neighbors, and the two
    losses differ if cohorts are sampled.
    """
    if event.sampling == "fixed" and (relation == "add-remove" or event.mechanism == "response"):
        return None  # an absent client would be replaced by another one
    if event.mechanism == "response":
        # The sender of a single report is known, so sampling does not amplify.
        return ("REMOVE",) if event.sampling == "everyone" else None
    if not _LEAST_NOISE < event.noise < _MOST_NOISE * _rate(event):
        return None
    if event.sampling == "poisson" and relation == "replace-one":
        return ("REPLACE",) if event.mechanism == "gaussian" else None
    if event.sampling == "poisson":
        return ("REMOVE", "ADD")
    return ("SUBSET",) if event.sampling == "fixed" and event.amplified else ("REMOVE",)


@lru_cache(maxsize=256)
def approximate(event: Event, relation: Relation, direction: str) -> RoundLoss:
    """Return the loss of one round approximately, on points of its own: for choosing a grid."""
    if event.mechanism == "response":
        points = np.array([-event.noise, event.noise])
        return RoundLoss(points, 1 / (1 + np.exp(-points)), 0.0)
    pair = _pair(event, relation, "REMOVE" if direction == "SUBSET" else direction)
    outputs, losses = _losses(pair)
    middle = np.concatenate([losses[:1], (losses[1:] + losses[:-1]) / 2, losses[-1:]])
    probabilities = np.diff(pair.mu_upper_cdf(outputs), prepend=0.0, append=1.0)
    return RoundLoss(middle, np.maximum(probabilities, 0.0), 0.0)


@lru_cache(maxsize=256)
def rounded(event: Event, relation: Relation, direction: str, grid: float) -> RoundLoss:
    """Return the loss of one round of `event`, rounded to multiples of `grid`."""
    if event.mechanism == "response":
        return _rounded_response(event.noise, grid)
    if direction != "SUBSET":
        return _connected(*_tails(_pair(event, relation, direction), grid), grid)
    # Subsets of a fixed size under replace-one (Balle, Barthe and Gaboardi 2018; Zhu, Dong and Wang
    # 2022, Theorem 11): the divergence is at most that of the direction `remove` at epsilon >= 0,
    # and that of `add` below. The two agree at 0, where the remaining probability lies.
    multiples, upper, lower = _tails(_pair(event, relation, "REMOVE"), grid)
    keep = multiples >= 0
    above = _connected(multiples[keep], upper[keep], lower[keep], grid)
    multiples, upper, lower = _tails(_pair(event, relation, "ADD"), grid)
    keep = multiples <= 0
    below = _connected(multiples[keep], upper[keep], lower[keep], grid)
    return _joined(below, above, upper[multiples == 0][0])


def _joined(below: RoundLoss, above: RoundLoss, nonnegative: float) -> RoundLoss:
    """Join the losses below 0 of one distribution and those above 0 of another one."""
    # `_connected` counts everything below its first point as this point: 0, which is what remains.
    # It counts what is above its last point, also 0, as infinite, which is not.
    probabilities = np.concatenate([below.probabilities, above.probabilities])
    probabilities[len(below.probabilities)] -= 1 - nonnegative
    multiples = np.concatenate([below.multiples, above.multiples])
    return RoundLoss(multiples, np.maximum(probabilities, 0.0), above.infinite)


def _rounded_response(epsilon: float, grid: float) -> RoundLoss:
    """Two outputs with ratio e^epsilon, which dominate every pure epsilon-DP mechanism."""
    low, high = math.floor(-epsilon / grid), math.floor(epsilon / grid)
    multiples = np.unique([low, low + 1, high, high + 1])
    yes = 1 / (1 + math.exp(-epsilon))
    either, second = multiples * grid <= -epsilon, multiples * grid <= epsilon
    upper, lower = np.where(second, yes, 0.0), np.where(second, 1 - yes, 0.0)
    return _connected(multiples, np.where(either, 1.0, upper), np.where(either, 1.0, lower), grid)


def _rate(event: Event) -> float:
    """The probability that a client takes part, or 1 if it is not hidden whether it does."""
    if event.sampling == "fixed":
        return event.size / event.num_clients if event.amplified else 1.0
    return event.rate


def _pair(event: Event, relation: Relation, direction: str) -> Any:
    """Return dp-accounting's pair of distributions that dominates one round."""
    from dp_accounting.pld import privacy_loss_mechanism as mechanisms

    # For Poisson sampling, the two messages of replace-one are on either side of an absent one.
    moved = 2.0 if relation == "replace-one" and direction != "REPLACE" else 1.0
    options = {
        "sensitivity": moved,
        "sampling_prob": _rate(event),
        "adjacency_type": mechanisms.AdjacencyType[direction],
    }
    if event.mechanism == "laplace":
        return mechanisms.LaplacePrivacyLoss(event.noise, **options)
    return mechanisms.GaussianPrivacyLoss(event.noise, log_mass_truncation_bound=_TAIL, **options)


def _losses(pair: Any) -> tuple[Array, Array]:
    """Evenly spaced outputs, except for negligible tails, and their losses, which decrease."""
    tail = pair.privacy_loss_tail()
    low, high = tail.lower_x_truncation, tail.upper_x_truncation
    scale = getattr(pair, "standard_deviation", None) or pair.parameter
    number = math.ceil((high - low) / (_STEP * scale)) + 2
    outputs = np.linspace(low, high, max(number, _FEWEST))
    return outputs, np.array([pair.privacy_loss(at) for at in outputs])


def _tails(pair: Any, grid: float) -> tuple[NDArray[np.int64], Array, Array]:
    """Multiples of the grid, and the probabilities of losses as large under both distributions."""
    _, losses = _losses(pair)
    nearest = np.rint(losses / grid)
    ends = [math.floor(losses[-1] / grid), 0, math.floor(losses[0] / grid) + 1]
    multiples = np.unique(np.concatenate([nearest, ends])).astype(np.int64)
    lowest, highest = -math.inf, math.inf  # the range of losses
    if pair.sampling_prob < 1 and pair.adjacency_type.name == "REMOVE":
        lowest = math.log1p(-pair.sampling_prob)
    if pair.sampling_prob < 1 and pair.adjacency_type.name == "ADD":
        highest = -math.log1p(-pair.sampling_prob)
    outputs = np.array(
        [
            math.inf
            if at <= lowest
            else -math.inf
            if at >= highest
            else pair.inverse_privacy_loss(at)
            for at in (multiples * grid).tolist()
        ]
    )
    return multiples, pair.mu_upper_cdf(outputs), np.exp(pair.mu_lower_log_cdf(outputs))


def _connected(multiples: NDArray[np.int64], upper: Array, lower: Array, grid: float) -> RoundLoss:
    """Connect the dots: `upper` and `lower` are the probabilities of losses >= multiples * grid.

    Losses below the first multiple are rounded up to it, those above the last one to infinity.
    """
    first, second = -np.diff(upper), -np.diff(lower)  # between two neighboring multiples
    with np.errstate(divide="ignore", over="ignore"):
        scaled = np.exp(np.log(np.maximum(second, 0.0)) + multiples[:-1] * grid)
    right = (first - scaled) / -np.expm1(-np.diff(multiples) * grid)
    right = np.clip(right, 0.0, np.maximum(first, 0.0))
    probabilities = np.append(1 - upper[0], right)
    probabilities[:-1] += np.maximum(first, 0.0) - right
    return RoundLoss(multiples, probabilities, float(upper[-1]))
