"""Predictions for new rows with each client's own model; a new client begins at the population."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import random
from fedprior.data.federation import Split
from fedprior.data.partition import natural
from fedprior.engines.evaluate import Source, personal_models
from fedprior.engines.result import Result
from fedprior.engines.store import DeviceStore
from fedprior.reporting.run import TrainedRun


@dataclass(frozen=True)
class Rows:
    """New rows: inputs, label codes (-1 or NaN where there is none), clients' names."""

    x: np.ndarray
    y: np.ndarray
    clients: np.ndarray


def predict_rows(run: TrainedRun, result: Result, path: Path) -> dict[str, np.ndarray]:
    """Columns client, row, prediction, probability (of the predicted class), model.

    `model` says whose: `own` (a client of the run), `newcomer` (a new client, personalized on its
    labelled rows in this file) or `population` (a new client without any).
    """
    rows = _read(run, result, path)
    classes = result.federation.classes
    table: dict[str, list[np.ndarray]] = {
        "row": [],
        "prediction": [],
        "probability": [],
        "model": [],
    }
    thetas, kinds, groups = _models(result, rows)
    predict = jax.jit(result.algorithm.predict)
    for place, own in enumerate(groups):
        theta = jax.tree.map(lambda leaf: leaf[place], thetas)  # noqa: B023
        outputs = np.asarray(predict(theta, jnp.asarray(rows.x[own])))
        values, probability = _answer(outputs, classes)
        table["row"].append(own)
        table["prediction"].append(values)
        table["probability"].append(probability)
        table["model"].append(np.full(len(own), kinds[place], object))
    columns = {name: np.concatenate(parts) for name, parts in table.items()}
    order = np.argsort(columns["row"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    columns["row"] = columns["row"] + 1
    if classes is None:
        del columns["probability"]
    return {"client": rows.clients.astype(object), **columns}


def _models(result: Result, rows: Rows) -> tuple[Any, list[str], list[np.ndarray]]:
    """(thetas, kinds, row groups) with one entry a client of the new rows."""
    groups = natural(rows.clients)
    names = [str(rows.clients[own[0]]) for own in groups]
    known = {str(name): number for number, name in enumerate(result.federation.clients)}
    regression = result.federation.classes is None
    has_label = ~np.isnan(rows.y) if regression else rows.y >= 0
    labelled = [own[has_label[own]] for own in groups]
    newcomers = _newcomers(result, Split.gather(rows.x, rows.y, labelled))
    kinds, thetas = [], []
    for place, name in enumerate(names):
        if name in known:
            kinds.append("own")
            thetas.append(result.theta(known[name]))
        else:
            kinds.append("newcomer" if len(labelled[place]) else "population")
            thetas.append(jax.tree.map(lambda leaf: leaf[place], newcomers))  # noqa: B023
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *thetas), kinds, groups


def _newcomers(result: Result, split: Split) -> Any:
    """Models of clients that never took part, from the learned population and their own rows."""
    source = Source(split, pooled=True)
    memory = jax.eval_shape(
        lambda: result.algorithm.enroll(result.state, jnp.int32(0), random.root(0))
    )
    store = DeviceStore.empty(memory, split.num_clients)
    return personal_models(
        result.agreement.rules,
        state=result.state,
        store=store,
        source=source,
        clients=np.arange(split.num_clients),
        root=random.root(result.seed),
    )


def _answer(outputs: np.ndarray, classes: tuple[str, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    if classes is None:
        return outputs, np.ones(len(outputs))
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    best = outputs.argmax(axis=1)
    probability = shifted[np.arange(len(best)), best] / shifted.sum(axis=1)
    return np.array(classes, object)[best], probability


def _read(run: TrainedRun, result: Result, path: Path) -> Rows:
    """New rows of a table (for a run on a table) or of a folder of .npz files, one a client."""
    encoder, clients = run.encoder(result.seed), result.federation
    if encoder is not None:
        from fedprior.data.table import encode_rows

        x, y, names = encode_rows(encoder, path)
        if y is None:
            missing = -1 if clients.classes else np.nan
            y = np.full(len(x), missing, np.int32 if clients.classes else np.float32)
        return Rows(x, y, names)
    from fedprior.data.folder import read_new

    return Rows(*read_new(path, shape=clients.shape, classes=clients.classes))
