"""Metrics of many clients from outputs, labels and whose sample each is.

What a metric needs of samples is a tally, a few sums per client; the tallies of several clients
add up, so that values by client and those of all samples together come from one pass. Only the AUC
needs the outputs themselves.

A sample whose outputs are not finite, because its model diverged, counts as wrong with full
confidence: its log loss or squared error is infinite. A value that is not defined is NaN: every
one without samples, the AUC of samples of one class, R² of equal targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedprior.core.scores import METRICS, Target

T = TypeVar("T")
BINS = 10  # of the probability of the predicted class, of equal width
_ROUNDING = 1e-28  # of the squared distance of equal numbers from their mean, relative to it


@dataclass(frozen=True)
class ClassTally:
    """Sums over each client's samples: `labels` and `right` by class, `bins` by confidence.

    `bins` has a row for each bin of the probability of the predicted class: the number of samples,
    their confidences added up, and how many predictions were right.
    """

    loss: np.ndarray  # (clients,)
    labels: np.ndarray  # (clients, classes)
    right: np.ndarray  # (clients, classes)
    bins: np.ndarray  # (clients, BINS, 3)

    def pooled(self) -> "ClassTally":
        """The tally of all samples, as of one client."""
        parts = (self.loss, self.labels, self.right, self.bins)
        return ClassTally(*(part.sum(axis=0, keepdims=True) for part in parts))

    def joined(self, other: "ClassTally") -> "ClassTally":
        """The tally of the samples of both, client by client."""
        return ClassTally(
            self.loss + other.loss,
            self.labels + other.labels,
            self.right + other.right,
            self.bins + other.bins,
        )

    def values(self) -> dict[str, np.ndarray]:
        """Each metric but the AUC, (clients,)."""
        count = self.labels.sum(axis=1)
        present = (self.labels > 0).sum(axis=1)
        recall = _over(self.right, self.labels, nothing=0.0).sum(axis=1)
        distance = np.abs(self.bins[:, :, 1] - self.bins[:, :, 2]).sum(axis=1)
        return {
            "accuracy": _over(self.right.sum(axis=1), count),
            "balanced_accuracy": _over(recall, present),
            "log_loss": _over(self.loss, count),
            "calibration_error": _over(distance, count),
        }


@dataclass(frozen=True)
class QuantityTally:
    """The number of samples of each client, the sum of squared errors, mean and spread of y.

    `spread` is the sum of squared distances from the mean.
    """

    count: np.ndarray
    error: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def pooled(self) -> "QuantityTally":
        """The tally of all samples, as of one client."""
        count = self.count.sum(keepdims=True)
        mean = _over((self.count * self.mean).sum(keepdims=True), count, nothing=0.0)
        between = (self.count * (self.mean - mean) ** 2).sum(keepdims=True)
        error = self.error.sum(keepdims=True)
        return QuantityTally(count, error, mean, self.spread.sum(keepdims=True) + between)

    def joined(self, other: "QuantityTally") -> "QuantityTally":
        """The tally of the samples of both, client by client."""
        count = self.count + other.count
        mean = _over(self.count * self.mean + other.count * other.mean, count, nothing=0.0)
        between = self.count * (self.mean - mean) ** 2 + other.count * (other.mean - mean) ** 2
        spread = self.spread + other.spread + between
        return QuantityTally(count, self.error + other.error, mean, spread)

    def values(self) -> dict[str, np.ndarray]:
        """RMSE and R², (clients,)."""
        varies = self.spread > _ROUNDING * self.count * self.mean**2
        ratio = _over(self.error, np.where(varies, self.spread, 0))
        return {"rmse": np.sqrt(_over(self.error, self.count)), "r2": 1 - ratio}


Tally = ClassTally | QuantityTally


def tally(
    outputs: np.ndarray, y: np.ndarray, client: np.ndarray, num_clients: int, target: Target
) -> Tally:
    """Sums by client: of logits (samples, classes), or of predictions of a quantity (samples,)."""
    if target == "quantity":
        return _quantities(np.asarray(outputs, float), np.asarray(y, float), client, num_clients)
    finite, shares, loss = probabilities(outputs, y)
    number = shares.shape[1]
    confidence = np.where(finite, shares.max(axis=1), 1.0)
    right = finite & (np.argmax(outputs, axis=1) == y)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1) + BINS * client
    sums = [None, confidence, right]
    bins = [np.bincount(place, weights=each, minlength=BINS * num_clients) for each in sums]
    by_class, cells = client * number + y, num_clients * number
    return ClassTally(
        np.bincount(client, weights=loss, minlength=num_clients),
        np.bincount(by_class, minlength=cells).reshape(num_clients, number),
        np.bincount(by_class, weights=right, minlength=cells).reshape(num_clients, number),
        np.stack(bins, axis=-1).reshape(num_clients, BINS, 3),
    )


def _quantities(
    outputs: np.ndarray, y: np.ndarray, client: np.ndarray, num_clients: int
) -> QuantityTally:
    error = np.where(np.isfinite(outputs), outputs - y, np.inf) ** 2

    def added(values: Any = None) -> np.ndarray:
        return np.bincount(client, weights=values, minlength=num_clients)

    count = added()
    mean = _over(added(y), count, nothing=0.0)
    return QuantityTally(count, added(error), mean, added((y - mean[client]) ** 2))


def probabilities(outputs: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which samples are finite, probabilities of the classes, -log p of the label).

    Where a sample is not finite, its label has probability -1 and the other classes have 2: it
    ranks behind all others.
    """
    logits = np.asarray(outputs, np.float64)
    finite = np.asarray(np.isfinite(logits).all(axis=1))
    logits = np.where(finite[:, None], logits, 0.0)
    logits = logits - logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    whole = shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = np.where(finite, np.log(whole[:, 0]) - logits[rows, y], np.inf)
    shares = np.where(finite[:, None], shares / whole, 2.0)
    shares[rows[~finite], y[~finite]] = -1.0
    return finite, shares, loss


def areas(shares: np.ndarray, y: np.ndarray, client: np.ndarray, num_clients: int) -> np.ndarray:
    """Area under the ROC curve by client: of class 1 if there are two classes.

    Of more classes, the mean over those that the client has of one class against the rest. NaN
    where all samples have one class.
    """
    total, number = np.zeros(num_clients), np.zeros(num_clients)
    size = np.bincount(client, minlength=num_clients)
    for label in (1,) if shares.shape[1] == 2 else range(shares.shape[1]):
        positive = np.bincount(client[y == label], minlength=num_clients)
        negative = size - positive
        both = (positive > 0) & (negative > 0)
        kept = np.flatnonzero(both[client])
        if not len(kept):
            continue
        own, is_label = client[kept], y[kept] == label
        rank = _ranks(own, shares[kept, label])
        sums = np.bincount(own[is_label], weights=rank[is_label], minlength=num_clients)
        least, pairs = positive * (positive + 1) / 2, positive * negative
        total += np.where(both, (sums - least) / np.maximum(pairs, 1), 0)
        number += both
    return _over(total, number)


def _ranks(client: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Ranks 1, 2, ... of values within each client; equal values share their mean rank."""
    order = np.lexsort((value, client))
    own, sorted_values = client[order], value[order]
    first_of_client = np.r_[True, own[1:] != own[:-1]]
    first = first_of_client | np.r_[True, sorted_values[1:] != sorted_values[:-1]]
    begin = np.flatnonzero(first)
    length = np.diff(np.r_[begin, len(order)])
    middle = np.repeat(begin + (length - 1) / 2, length)
    clients = np.flatnonzero(first_of_client)
    offset = np.repeat(clients, np.diff(np.r_[clients, len(order)]))
    ranks = np.empty(len(order))
    ranks[order] = middle - offset + 1
    return ranks


def values_by_client(
    outputs: np.ndarray, y: np.ndarray, client: np.ndarray, num_clients: int, target: Target
) -> dict[str, np.ndarray]:
    """Every metric of the target, (num_clients,), NaN where it is not defined.

    `outputs` are logits (samples, classes) with codes of classes `y`, or predictions (samples,) of
    a quantity; `client` is the number of each sample's client.

    >>> logits, own = np.array([[2.0, 0], [0, 1], [1, 0]]), np.array([0, 0, 1])
    >>> found = values_by_client(logits, np.array([0, 1, 1]), own, 2, "classes")
    >>> found["accuracy"].tolist(), found["auc"].tolist()
    ([1.0, 0.0], [1.0, nan])
    """
    found = tally(outputs, y, client, num_clients, target).values()
    if target == "quantity":
        return found
    _, shares, _ = probabilities(outputs, y)
    return in_order({**found, "auc": areas(shares, y, client, num_clients)})


def in_order(values: Mapping[str, T]) -> dict[str, T]:
    """The values in the order of `METRICS`."""
    return {each.key: values[each.key] for each in METRICS.values() if each.key in values}


def defined(y: np.ndarray, client: np.ndarray, num_clients: int, metric: str) -> np.ndarray:
    """Which clients have samples for which the metric, by its key, is defined, (num_clients,)."""
    count = np.bincount(client, minlength=num_clients)
    if metric not in ("auc", "r2"):
        return count > 0
    low, high = np.full(num_clients, np.inf), np.full(num_clients, -np.inf)
    np.minimum.at(low, client, y)
    np.maximum.at(high, client, y)
    return high > low


def _over(above: np.ndarray, below: np.ndarray, nothing: float = np.nan) -> np.ndarray:
    """Return above / below, and `nothing` where below is 0."""
    with np.errstate(invalid="ignore"):
        return np.where(below > 0, above / np.where(below > 0, below, 1), nothing)
