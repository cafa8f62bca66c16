"""A mixed model on a federation's rows: when it predicts better, networks are the wrong tool."""

from typing import Any

import numpy as np

from fedprior.data.encoder import Category
from fedprior.data.federation import Federation, Split
from fedprior.reporting.boosting import owners

_MOST_COEFFICIENTS = 30  # of a group, beyond which its population takes long to learn
_MOST_ROWS = 50_000


def fits(clients: Federation) -> bool:
    """Whether the table has few enough columns, classes and rows for a mixed model."""
    if clients.encoder is None:
        return False
    coefficients = 1 + len(_places(clients))
    per_class = max(1, (clients.num_classes or 2) - 1)
    few = coefficients > 1 and coefficients * per_class <= _MOST_COEFFICIENTS
    return few and len(clients.train.y) <= _MOST_ROWS and clients.num_clients >= 5


def predictions(clients: Federation, split: Split) -> np.ndarray:
    """Probabilities of the classes, or values, for the rows of a split, by a fit to `train`."""
    from fedprior.regression.face.personal import PersonalClassifier, PersonalRegression

    places, train = _places(clients), clients.train
    kind = PersonalRegression if clients.classes is None else PersonalClassifier
    model: Any = kind().fit(train.x[:, places].astype(float), train.y, owners(train))
    asked = split.x[:, places].astype(float), owners(split)
    if clients.classes is None:
        return np.asarray(model.predict(*asked))
    whole = np.zeros((len(split.y), len(clients.classes)))
    whole[:, np.asarray(model.classes_, int)] = model.predict_proba(*asked)
    return whole


def _places(clients: Federation) -> list[int]:
    """Inputs of a linear model that vary: no bins, and one word of each category left out."""
    places, at = [], 0
    for column in clients.encoder.columns if clients.encoder else ():
        own = list(range(at, at + len(column.labels())))
        at += len(own)
        if isinstance(column, Category):
            places += own[1:]
        else:
            places += [own[0], *own[-1:]] if column.indicator else own[:1]
    x = clients.train.x
    return [place for place in places if (x[:, place] != x[0, place]).any()]
