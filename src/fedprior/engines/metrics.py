"""Every metric of personal models, by client and of all test samples together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Theta
from fedprior.core.scores import mean_of_known, metrics_of, target_of
from fedprior.core.tallies import (
    BINS,
    ClassTally,
    Tally,
    areas,
    in_order,
    probabilities,
    tally,
)
from fedprior.data.federation import Federation
from fedprior.engines import room
from fedprior.engines.evaluate import Rows, clients_at_once, outputs_of
from fedprior.engines.pools import Source
from fedprior.exchange.agreement import Rules

_POOLED = 2**27  # outputs that are kept for the AUC of all samples together; of more it is NaN


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Every metric of the clients' models: accuracies and AUC as fractions, losses as they are.

    `clients` holds one value per client, NaN where it is not defined: without samples, the AUC of
    samples of one class, R² of equal targets. `overall` are the values of all samples together, as
    if they were of one client; `mean` is the mean over the clients for which a value is defined,
    and `defined` their number. `bins` are sums by bin of confidence: number of samples, their
    confidences, right predictions; None for a quantity.
    """

    names: np.ndarray
    clients: Mapping[str, np.ndarray]
    overall: Mapping[str, float]
    bins: np.ndarray | None = None

    @property
    def mean(self) -> dict[str, float | None]:
        """The mean of each metric over clients; None where a model diverged, or nothing is defined.

        It counts clients equally, and `overall` samples.
        """
        return {name: mean_of_known(values) for name, values in self.clients.items()}

    @property
    def defined(self) -> dict[str, int]:
        """For how many clients each metric is defined."""
        return {name: int((~np.isnan(each)).sum()) for name, each in self.clients.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per client, then those of all samples (`overall`) and of the `mean`."""
        rows: list[dict[str, Any]] = [
            {"client": str(client), **{name: float(each[k]) for name, each in self.clients.items()}}
            for k, client in enumerate(self.names)
        ]
        return [*rows, {"client": "overall", **self.overall}, {"client": "mean", **self.mean}]

    def describe(self) -> dict[str, dict[str, float | int | None]]:
        """Return for each metric the values of `overall`, `mean` and `defined`, as JSON values."""
        mean, defined = self.mean, self.defined
        return {
            name: {
                "overall": finite(self.overall[name]),
                "mean": mean[name],
                "clients": defined[name],
            }
            for name in self.clients
        }

    def __str__(self) -> str:
        head = f"{'':20}{'overall':>12}{'mean':>12}{'of clients':>12}"
        lines = [
            f"{name:20}{_text(each['overall']):>12}{_text(each['mean']):>12}{each['clients']:>12}"
            for name, each in self.describe().items()
        ]
        return "\n".join([head, *lines])


def finite(value: float) -> float | None:
    """The value, None where it is NaN or infinite: JSON has neither."""
    return float(value) if np.isfinite(value) else None


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}"


class Meter:
    """Measures models of clients in their order, chunk by chunk, on their test samples."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.target = federation, target_of(federation.classes)
        self._source = Source(federation.test, pooled=not isinstance(federation.test.x, np.memmap))
        names = [metric.key for metric in metrics_of(self.target)]
        self._clients = {name: np.full(federation.num_clients, np.nan) for name in names}
        self._whole: Tally | None = None
        self._kept: list[Rows] = []
        self._place = 0

    def keep(self, rules: Rules) -> Callable[[int, Theta], None]:
        """Return what takes the models of the next `count` clients, as `simulate` has it.

        Where there is no room for the outputs of all of them, they are computed in smaller chunks.
        """

        def keep(count: int, thetas: Theta) -> None:
            first = self._place

            def work(own: np.ndarray) -> Rows:
                some = len(own) < count
                models = jax.tree.map(lambda leaf: leaf[own], thetas) if some else thetas
                return outputs_of(rules, models, self._source, first + own)

            for own, rows in room.in_chunks(count, count, work):
                outputs, y, place = rows
                counts = place < len(own)  # the last chunk is padded
                self.add((outputs[counts], y[counts], place[counts]), len(own))

        return keep

    def add(self, rows: Rows, count: int) -> None:
        """Take the outputs of the next `count` clients."""
        outputs, y, place = rows
        whose = slice(self._place, self._place + count)
        self._place += count
        self._check(outputs)
        counted = tally(outputs, y, place, count, self.target)
        for name, values in counted.values().items():
            self._clients[name][whose] = values
        pooled: Any = counted.pooled()
        self._whole = pooled if self._whole is None else self._whole.joined(pooled)
        if self.target == "classes":
            _, shares, _ = probabilities(outputs, y)
            self._clients["auc"][whose] = areas(shares, y, place, count)
            if self.federation.test.size.sum() * shares.shape[1] <= _POOLED:
                self._kept.append((outputs, y, np.zeros_like(place)))

    def _check(self, outputs: np.ndarray) -> None:
        number = self.federation.num_classes
        wanted = () if number is None else (number,)
        rule = f"of shape {wanted} for each sample: logits of the classes, or one number"
        check.require(outputs.shape[1:] == wanted, "metrics", "outputs", rule, outputs.shape[1:])

    def metrics(self) -> Metrics:
        """Return the values of all clients that were added."""
        assert self._whole is not None
        overall = {name: float(each[0]) for name, each in self._whole.values().items()}
        bins = None
        if isinstance(self._whole, ClassTally):
            overall["auc"], bins = self._area(), self._whole.bins[0]
        return Metrics(
            names=self.federation.clients,
            clients=in_order(self._clients),
            overall=in_order(overall),
            bins=bins,
        )

    def _area(self) -> float:
        """The AUC of all samples together; NaN where they were too many to be kept."""
        if not self._kept:
            return float("nan")
        outputs, y, place = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        return float(areas(probabilities(outputs, y)[1], y, place, 1)[0])


def metrics_of_models(
    rules: Rules, federation: Federation, models: Callable[[np.ndarray], Theta]
) -> Metrics:
    """Return every metric of the models that `models(clients)` returns, chunk by chunk."""
    meter = Meter(federation)
    keep = meter.keep(rules)
    largest = max(federation.train.largest, federation.test.largest)
    length = clients_at_once(largest)
    for own, thetas in room.in_chunks(federation.num_clients, length, models):
        keep(len(own), jax.tree.map(lambda leaf: leaf[: len(own)], thetas))  # noqa: B023
    return meter.metrics()


def describe_bins(bins: np.ndarray) -> dict[str, Any]:
    """Return sums by bin of confidence as JSON values; `error` is the calibration error.

    >>> found = describe_bins(np.array([[0, 0, 0]] * 9 + [[4, 3.8, 3]]))
    >>> found["count"], found["error"]
    ([0, 0, 0, 0, 0, 0, 0, 0, 0, 4], 0.2)
    """
    count, confidence, right = bins.reshape(BINS, 3).T
    whole = count.sum()
    distance = np.abs(confidence - right).sum()

    def shares(sums: np.ndarray) -> list[float | None]:
        return [float(s / n) if n else None for s, n in zip(sums, count, strict=True)]

    return {
        "count": [int(number) for number in count],
        "confidence": shares(confidence),
        "accuracy": shares(right),
        "error": round(float(distance / whole), 6) if whole else None,
    }
