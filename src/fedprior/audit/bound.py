"""A lower confidence bound on epsilon from the scores of an attack."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedprior.audit.finding import POWER
from fedprior.audit.losses import gaussian
from fedprior.core import check

_CANDIDATES = 400  # candidate events on the first half of the runs; even


class Bound(NamedTuple):
    """With probability `confidence`, the mechanism's epsilon at delta is at least `epsilon`."""

    epsilon: float
    confidence: float
    event: str


def lower_bound(
    present: np.ndarray, absent: np.ndarray, *, delta: float, confidence: float
) -> Bound:
    """Epsilon >= log((P(E | present) - delta) / P(E | absent)), or with the two exchanged.

    `present` and `absent` hold one score per run with and without the canary; a higher score means
    that the attacker believes the canary is present. The event E, {score >= t} or {score <= t}, and
    the direction are chosen on the first half of the runs and tested on the second half, by two
    Clopper-Pearson limits at level (1 - confidence) / 2 each. The runs of one world must be
    independent of each other; the two worlds may share their draws.
    """
    check_confidence("lower_bound", confidence)
    check.share("lower_bound", delta=delta)
    worlds = [np.asarray(scores, np.float64) for scores in (present, absent)]
    for name, scores in zip(("present", "absent"), worlds, strict=True):
        rule = "at least 2 scores, none of them NaN"
        good = scores.ndim == 1 and len(scores) >= 2 and not np.isnan(scores).any()
        check.require(good, "lower_bound", name, rule, scores.shape)
    first, second = zip(*(_halves(scores) for scores in worlds), strict=True)
    alarm = 1 - confidence
    thresholds = _thresholds(np.concatenate(first))
    candidates = [
        _bounds(first, thresholds, above, delta=delta, alarm=alarm) for above in (True, False)
    ]
    above = bool(candidates[0].max() >= candidates[1].max())
    threshold = thresholds[np.argmax(candidates[0 if above else 1])]
    bound = _bounds(second, np.array([threshold]), above, delta=delta, alarm=alarm)[0]
    sign = ">=" if above else "<="
    return Bound(max(0.0, float(bound)), confidence, f"score {sign} {threshold:.4g}")


def detects(runs: int, claimed: float, *, delta: float, confidence: float) -> str:
    """Say which true epsilon is found with probability `POWER` by `lower_bound` in `runs` runs.

    Computed for a Gaussian mechanism, or for a randomized response if delta is 0, and for the best
    event, which the first half of the runs finds but for a little.
    """
    from scipy.stats import binom, norm

    tested, miss, alarm = runs // 2, (1 - POWER) / 2, 1 - confidence
    for factor in np.geomspace(1.02, 50, 120):
        if delta:
            distance = factor * _distance(claimed, delta)
            threshold = np.linspace(-1, distance + 4, 60)
            likely, rare = norm.sf(threshold - distance), norm.sf(threshold)
            true = gaussian(distance, delta)
        else:
            true = factor * claimed
            rare = np.array([1 / (1 + math.exp(true))])
            likely = 1 - rare
        low = lower_limit(binom.ppf(miss, tested, likely), tested, alarm / 2) - delta
        high = upper_limit(binom.isf(miss, tested, rare), tested, alarm / 2)
        if (np.log(np.maximum(low, 1e-300)) - np.log(high)).max() > claimed:
            return f"a true epsilon of {true:.2g}"
    return "a mechanism that hides nothing"


def _distance(epsilon: float, delta: float) -> float:
    """The distance of two normals with this epsilon at delta."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian(middle, delta) < epsilon else (low, middle)
    return high


def check_confidence(owner: str, confidence: float) -> None:
    """Check that a confidence lies in (0, 1)."""
    check.positive(owner, confidence=confidence)
    check.require(confidence < 1, owner, "confidence", "below 1", confidence)


def lower_limit(hits: np.ndarray, runs: int, alarm: float) -> np.ndarray:
    """Return the Clopper-Pearson limit that exceeds the true rate with probability <= `alarm`."""
    from scipy.special import betaincinv

    hits = np.asarray(hits, np.float64)
    return np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, alarm), 0.0)


def upper_limit(hits: np.ndarray, runs: int, alarm: float) -> np.ndarray:
    """Return the Clopper-Pearson limit that is below the true rate with probability <= `alarm`."""
    return 1 - lower_limit(runs - np.asarray(hits), runs, alarm)


def two_sided(hits: np.ndarray, runs: int, rate: float) -> float:
    """Return the p-value of the most extreme of `hits` ~ Binomial(runs, rate), with Bonferroni."""
    from scipy.stats import binom

    hits = np.atleast_1d(hits)
    tail = np.minimum(binom.cdf(hits, runs, rate), binom.sf(hits - 1, runs, rate))
    return float(min(1.0, 2 * hits.size * tail.min()))


def _halves(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = len(scores) // 2
    return np.sort(scores[:middle]), np.sort(scores[middle:])


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Observed scores, dense toward both ends, because rare events are the most informative."""
    ordered = np.sort(scores)
    most = (len(ordered) + 1) // 2
    places = np.geomspace(1, most, _CANDIDATES // 2).astype(np.int64) - 1
    return np.unique(np.concatenate([ordered[places], ordered[-1 - places]]))


def _bounds(
    worlds: Sequence[np.ndarray],
    thresholds: np.ndarray,
    above: bool,
    *,
    delta: float,
    alarm: float,
) -> np.ndarray:
    """The bound of each event {score >= threshold} or {score <= threshold}, for sorted scores."""
    present, absent = worlds
    if above:
        likely, rare = (
            len(scores) - np.searchsorted(scores, thresholds, side="left")
            for scores in (present, absent)
        )
        sizes = len(present), len(absent)
    else:
        rare, likely = (
            np.searchsorted(scores, thresholds, side="right") for scores in (present, absent)
        )
        sizes = len(absent), len(present)
    gain = lower_limit(likely, sizes[0], alarm / 2) - delta
    cost = upper_limit(rare, sizes[1], alarm / 2)
    positive = np.maximum(gain, math.ulp(0.0))
    return np.where(gain > 0, np.log(positive) - np.log(cost), -np.inf)
