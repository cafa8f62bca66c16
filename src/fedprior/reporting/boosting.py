"""Gradient boosting on a federation's rows: scikit-learn's, as a baseline on the same splits.

Trees see the columns of the table as they are, whatever the encoder makes of them for networks:
missing cells and categories are theirs to handle. The validation rows of a model decide when its
boosting stops and how small a leaf may be.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.data.encoder import Category, Encoder
from fedprior.data.federation import Federation, Split
from fedprior.engines.evaluate import rows_of
from fedprior.engines.metrics import Meter, Metrics

KINDS = ("boosting-alone", "boosting-pooled", "boosting-pooled-with-id")
_LEAVES = (20, 3)  # least rows of a leaf, of which validation rows choose
_ROUNDS, _PATIENCE = 300, 20
_MOST_CODES = 255  # categories that scikit-learn's histograms can hold
_ROWS_PER_THREAD = 20_000  # more threads than this allows only wait for each other


def boosting(clients: Federation, kind: str, *, seed: int = 0) -> np.ndarray:
    """Predictions for `clients.test`, in its order: (rows, classes) probabilities, or values.

    `kind` is one of `KINDS`: a model for each client alone, one for all rows, or one for all rows
    with the client as a further category.
    """
    check.choice("boosting", "kind", kind, KINDS)
    number = clients.num_classes
    predictions = np.empty((len(clients.test.y), *(() if number is None else (number,))))
    with _threads(len(clients.train.y)):
        for part in _parts(clients, kind):
            losses = [part.loss(number, leaf, seed) for leaf in _LEAVES]
            best = _LEAVES[0 if np.isnan(losses).any() else int(np.argmin(losses))]
            predictions[part.places] = part.predict(number, best, seed, part.test)
    return predictions


def boosted(clients: Federation, *, seed: int) -> dict[str, Metrics]:
    """Every metric of boosting on the clients' test rows, by its kind."""
    return {kind: measured(clients, boosting(clients, kind, seed=seed)) for kind in KINDS}


def measured(clients: Federation, predictions: np.ndarray) -> Metrics:
    """Every metric of predictions for the clients' test rows: probabilities, or values."""
    meter, everyone = Meter(clients), np.arange(clients.num_clients)
    rows, place = rows_of(clients.test, everyone)
    outputs = predictions[rows]
    if outputs.ndim > 1:
        outputs = np.log(np.maximum(outputs, np.finfo(np.float32).tiny))
    meter.add((outputs, clients.test.y[rows], place), clients.num_clients)
    return meter.metrics()


def columns(encoder: Encoder | None, x: np.ndarray) -> tuple[np.ndarray, list[bool]]:
    """A column for each column of the table, NaN where it is missing, and which are categories."""
    if encoder is None:
        flat = np.asarray(x, np.float64).reshape(len(x), -1)
        return flat, [False] * flat.shape[1]
    found, categories, at = [], [], 0
    for column in encoder.columns:
        own = np.asarray(x[:, at : at + len(column.labels())], np.float64)
        at += own.shape[1]
        if isinstance(column, Category):
            codes = np.where(own.any(axis=1), own.argmax(axis=1), np.nan) if own.size else None
            found.append(np.full(len(x), np.nan) if codes is None else codes)
        else:
            found.append(
                np.where(own[:, -1] == 1, np.nan, own[:, 0]) if column.indicator else own[:, 0]
            )
        categories.append(isinstance(column, Category) and own.shape[1] <= _MOST_CODES)
    return np.stack(found, axis=1), categories


@dataclass(frozen=True)
class _Part:
    """Rows that share a model: (x, y) of each split, and where its test rows are in the pool."""

    train: tuple[np.ndarray, np.ndarray]
    valid: tuple[np.ndarray, np.ndarray]
    test: np.ndarray
    places: slice
    categories: list[bool]

    def predict(self, num_classes: int | None, leaf: int, seed: int, x: np.ndarray) -> np.ndarray:
        """Probabilities or values for the rows x, by the model with leaves of `leaf` rows or more.

        A class without training rows has the share of one further row, as have all such classes
        together: no prediction is certain.
        """
        y = self.train[1]
        if not len(x):
            return np.empty((0, *(() if num_classes is None else (num_classes,))))
        if num_classes is None:
            return np.full(len(x), y.mean()) if len(y) < 2 else self._fit(leaf, seed).predict(x)
        seen, counts = np.unique(y, return_counts=True)
        inside = np.ones((len(x), 1)) if len(seen) == 1 else self._fit(leaf, seed).predict_proba(x)
        unseen = num_classes - len(seen)
        share = 1 / (1 + counts.sum()) if unseen else 0.0
        whole = np.full((len(x), num_classes), share / max(unseen, 1))
        whole[:, seen] = (1 - share) * inside
        return whole

    def loss(self, num_classes: int | None, leaf: int, seed: int) -> float:
        """Mean loss of the validation rows; NaN without any."""
        x, y = self.valid
        if not len(y):
            return np.nan
        predictions = self.predict(num_classes, leaf, seed, x)
        if num_classes is None:
            return float(np.mean((predictions - y) ** 2))
        own = predictions[np.arange(len(y)), y]
        return float(-np.log(np.maximum(own, np.finfo(float).tiny)).mean())

    def _fit(self, leaf: int, seed: int) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        x, y = self.train
        # A column without a value has no histogram: nothing is known of it, as if it were constant.
        x = np.where(np.isnan(x).all(axis=0), 0.0, x)
        known = (
            np.isin(self.valid[1], y) if y.dtype.kind == "i" else np.full(len(self.valid[1]), True)
        )
        kind = (
            HistGradientBoostingClassifier if y.dtype.kind == "i" else HistGradientBoostingRegressor
        )
        model = kind(
            max_iter=_ROUNDS if known.any() else 100,
            min_samples_leaf=leaf,
            early_stopping=bool(known.any()),
            n_iter_no_change=_PATIENCE,
            categorical_features=self.categories if any(self.categories) else None,
            random_state=seed,
        )
        beside = {"X_val": self.valid[0][known], "y_val": self.valid[1][known]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of few rows for so many classes
            return model.fit(x, y, **(beside if known.any() else {}))


def _parts(clients: Federation, kind: str) -> Iterator[_Part]:
    splits = (clients.train, clients.valid, clients.test)
    tables = [columns(clients.encoder, split.x) for split in splits]
    (train, categories), (valid, _), (test, _) = tables
    if kind == "boosting-alone":
        for own in zip(*(_runs(split) for split in splits), strict=True):
            a, b, c = own
            fit = (train[a], clients.train.y[a])
            yield _Part(fit, (valid[b], clients.valid.y[b]), test[c], c, categories)
        return
    if kind == "boosting-pooled-with-id":
        train, valid, test = (
            np.column_stack([x, owners(split)])
            for x, split in zip((train, valid, test), splits, strict=True)
        )
        categories = [*categories, clients.num_clients <= _MOST_CODES]
    whole = slice(0, len(test))
    yield _Part((train, clients.train.y), (valid, clients.valid.y), test, whole, categories)


def _runs(split: Split) -> list[slice]:
    """Where each client's rows are."""
    ends = zip(split.start.tolist(), split.size.tolist(), strict=True)
    return [slice(first, first + size) for first, size in ends]


def owners(split: Split) -> np.ndarray:
    """The number of the client of each row."""
    owners = np.empty(len(split.y))
    for number, own in enumerate(_runs(split)):
        owners[own] = number
    return owners


def _threads(rows: int) -> Any:
    import sklearn.ensemble  # noqa: F401  (loads the library whose threads are limited)
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1 + rows // _ROWS_PER_THREAD, user_api="openmp")
