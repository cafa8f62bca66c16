"""How often personal models are right, by how confident they are."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core.algorithm import Array, Theta
from fedprior.data.federation import ClientData, Federation
from fedprior.engines.batch import over_clients
from fedprior.engines.evaluate import Source, axes, chunks
from fedprior.exchange.agreement import Rules

BINS = 10  # of the probability of the predicted class, of equal width
_BLOCK = 256  # rows at a time


@dataclass(kw_only=True)
class Calibration:
    """Sums over the test samples of all clients, by bin of confidence.

    `sums` has a row for each bin: the number of samples, their confidences added up, and how many
    predictions were right. Confidence is the probability of the predicted class.
    """

    sums: np.ndarray = field(default_factory=lambda: np.zeros((BINS, 3)))

    def describe(self) -> dict[str, Any]:
        """Return the bins as JSON values; `error` is the mean distance, None without samples.

        >>> right = Calibration(sums=np.array([[0, 0, 0]] * 9 + [[4, 3.8, 3]]))
        >>> {name: value for name, value in right.describe().items() if name in ("error", "count")}
        {'count': [0, 0, 0, 0, 0, 0, 0, 0, 0, 4], 'error': 0.2}
        """
        count, confidence, right = self.sums.T
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


def collector(
    rules: Rules, federation: Federation, calibration: Calibration
) -> Callable[[int, Theta], None]:
    """Return what adds the models of the next clients, in order, to `calibration`."""
    source = Source(federation.test, pooled=not isinstance(federation.test.x, np.memmap))
    place = 0

    def add(count: int, thetas: Theta) -> None:
        nonlocal place
        clients = np.arange(place, place + count)
        place += count
        data = source.take(clients)
        found = _sums(thetas, data, rules=rules, pooled=source.pooled)
        calibration.sums += np.asarray(found, np.float64).sum(axis=0)

    return add


def of_models(
    rules: Rules, federation: Federation, models: Callable[[np.ndarray], Theta]
) -> Calibration:
    """Return the calibration of the models that `models(clients)` returns, chunk by chunk."""
    calibration = Calibration()
    add = collector(rules, federation, calibration)
    largest = max(federation.train.largest, federation.test.largest)
    for clients, real in chunks(federation.num_clients, largest):
        thetas = models(clients)
        add(real, jax.tree.map(lambda leaf: leaf[:real], thetas))  # noqa: B023
    return calibration


def binned(thetas: Theta, data: ClientData, *, rules: Rules, pooled: bool) -> Array:
    """Return `Calibration.sums` of each client, (num_clients, BINS, 3)."""

    def one(theta: Theta, own: ClientData, _: tuple[()]) -> Array:
        def added(x: Array, y: Array, mask: Array) -> Array:
            shares = jax.nn.softmax(rules.algorithm.predict(theta, x), axis=-1)
            confidence, right = shares.max(axis=-1), shares.argmax(axis=-1) == y
            known = mask & ~jnp.isnan(confidence)  # of a diverged model nothing is known
            confidence = jnp.where(known, confidence, 0)
            bins = jnp.minimum((confidence * BINS).astype(jnp.int32), BINS - 1)
            parts = jnp.stack([jnp.ones_like(confidence), confidence, right], axis=-1)
            return jnp.zeros((BINS, 3)).at[bins].add(jnp.where(known[:, None], parts, 0))

        return own.sum_in_turn(added, _BLOCK)

    return over_clients(one, thetas, data, (), axes=axes(pooled))


_sums = jax.jit(binned, static_argnames=("rules", "pooled"))
