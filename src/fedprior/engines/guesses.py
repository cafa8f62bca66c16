"""Scores to compare with that need no model: always guessing the largest class, or the mean."""

from collections.abc import Iterator

import numpy as np

from fedprior.data.balance import class_counts
from fedprior.data.federation import Federation
from fedprior.engines.evaluate import chunks, rows_of
from fedprior.engines.metrics import Meter, Metrics

LABELS = {
    "largest-class": "largest class",
    "own-largest-class": "own largest class",
    "mean": "mean",
    "own-mean": "own mean",
}


def guesses(federation: Federation) -> dict[str, Metrics]:
    """Return the metrics of guessing the same for every sample, by what it is guessed from.

    Of classes: the probabilities are the shares of the classes among all training samples
    (`largest-class`), or among the client's own (`own-largest-class`), which count as one sample
    less than those of everybody for classes that it does not have. Of a quantity: the `mean` of
    all training samples, or the client's own (`own-mean`).
    """
    return {name: _measured(federation, outputs) for name, outputs in _outputs(federation)}


def _outputs(federation: Federation) -> Iterator[tuple[str, np.ndarray]]:
    """What is output for every sample of a client, (clients, ...)."""
    train = federation.train
    if federation.classes is None:
        rows, place = rows_of(train, np.arange(train.num_clients))
        own = np.bincount(place, weights=train.y[rows]) / train.size
        yield "mean", np.full(train.num_clients, np.average(own, weights=train.size))
        yield "own-mean", own
        return
    counts = class_counts(train, len(federation.classes))
    number = counts.shape[1]
    share = (counts.sum(axis=0) + 1 / number) / (counts.sum() + 1)
    yield "largest-class", np.broadcast_to(np.log(share), counts.shape)
    yield "own-largest-class", np.log((counts + share) / (counts.sum(axis=1, keepdims=True) + 1))


def _measured(federation: Federation, outputs: np.ndarray) -> Metrics:
    meter, test = Meter(federation), federation.test
    for clients, real in chunks(federation.num_clients, test.largest):
        rows, place = rows_of(test, clients[:real])
        meter.add((outputs[clients[:real]][place], np.asarray(test.y[rows]), place), real)
    return meter.metrics()
