"""A model that stands alone: what a run has learned, without its data and without running it."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedprior.core import check, formats, random
from fedprior.core.algorithm import Memory, PyTree, State, Theta
from fedprior.core.scores import Target
from fedprior.core.tallies import values_by_client
from fedprior.data.encoder import Encoder
from fedprior.data.federation import network_input, stored_input
from fedprior.engines import cache
from fedprior.engines.metrics import Metrics
from fedprior.exchange import trees
from fedprior.exchange.rows import RowFile
from fedprior.pages.report import ShownPage, report
from fedprior.reporting import model_file
from fedprior.reporting.folder import Folder
from fedprior.reporting.personalize import Personalizer, Progress

SITE_MODEL = Path("model") / "model.safetensors"  # in the folder of a site


class TrainedModel:
    """The state that a run has learned, with its encoder, classes and facts; see `load`.

    `classes_` are the class names in the order of `predict_proba`'s columns, None in regression.
    `guarantee` says what was spent on a private run. `clients` are the run's own clients, each with
    its final model; None for a file that `export` wrote, which holds nothing of any client.
    """

    def __init__(self, path: Path) -> None:
        packed = model_file.read(path)
        self.path = path
        self.facts: dict[str, Any] = packed.facts
        self.method: str = packed.facts["method"]
        self.seed: int = packed.facts["seed"]
        self.guarantee: dict[str, Any] | None = packed.facts["guarantee"]
        text, classes = packed.facts["encoder"], packed.facts["classes"]
        self.encoder = None if text is None else Encoder.from_json(text)
        self.classes_ = None if classes is None else np.array(classes, object)
        self.shape = tuple(packed.facts["shape"])
        self.algorithm = model_file.algorithm(packed.facts)
        like = jax.eval_shape(lambda: self.algorithm.init(random.root(0)))
        self.state: State = jax.device_put(packed.tree(like))
        folder = model_file.clients_folder(path)
        self.clients = Clients(folder, self) if (folder / "names.safetensors").is_file() else None

    def __repr__(self) -> str:
        known = "" if self.clients is None else f", {len(self.clients.names)} clients"
        return f"TrainedModel({self.method}, seed {self.seed}{known})"

    def report(self, path: str | Path | None = None) -> ShownPage:
        """Return a page about the model's run, or about the model itself.

        With `path`, an .html file, it is written there.
        """
        from fedprior.reporting.pages.model import model_page

        return report(model_page(self), path)

    def _repr_html_(self) -> str:
        from fedprior.pages.render import small
        from fedprior.reporting.pages.model import model_page

        return small(model_page(self))

    def predict(self, frame: Any, client: Any = None) -> np.ndarray:
        """The predicted class (or value) of each row, by its client's own model.

        `frame` is a data frame, a mapping of columns or the path of a table, encoded as in
        training; for a run on arrays, an array of inputs. `client` names the client of all rows, or
        of each; by default the client column says it. A client that the run does not know is
        personalized on its labeled rows in `frame`; without any, and where no client is named,
        the population's model predicts.
        """
        outputs = self.outputs(frame, client)[0]
        return outputs if self.classes_ is None else self.classes_[outputs.argmax(axis=1)]

    def predict_proba(self, frame: Any, client: Any = None) -> np.ndarray:
        """The probability of every class, (rows, classes); see `predict`."""
        if self.classes_ is None:
            raise ValueError("predict_proba: the model predicts a quantity; use predict.")
        return probabilities(self.outputs(frame, client)[0])

    def outputs(
        self, frame: Any, client: Any = None, *, progress: Progress | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(outputs, whose, clients) of each row: logits or values, whose model, and client names.

        `whose` is `own`, `newcomer` or `population`.
        """
        found = self.predicted(frame, client, progress=progress)
        return found.outputs, found.whose, found.names

    def metrics(self, frame: Any, client: Any = None) -> Metrics | None:
        """Every metric on the labeled rows of `frame`, by client and overall; None without any.

        The labeled rows of new clients do not count: their models are made from them. The others
        tell of new data if the run was not trained on them.
        """
        return self.predicted(frame, client).metrics()

    def predicted(
        self, frame: Any, client: Any = None, *, progress: Progress | None = None
    ) -> "Predicted":
        """What the models give for each row, beside its label."""
        cache.enable()
        x, y, names, unknown = self._read(frame, client)
        outputs, whose = self._personalizer.predict(x, y, names, progress=progress)
        return Predicted(outputs, whose, names, y, unknown)

    @cached_property
    def _personalizer(self) -> Personalizer:
        known: dict[str, int] = self.clients.numbers if self.clients else {}
        read = self.clients.thetas.read if self.clients else _nobody
        return Personalizer(self.algorithm, self.state, self.seed, known, read)

    def _read(
        self, frame: Any, client: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, list[str]]]:
        """(x, y, client names, unknown words by column) of new rows."""
        y: np.ndarray | None
        names: np.ndarray | None
        unknown: dict[str, list[str]] = {}
        if isinstance(frame, str | Path) and Path(frame).is_dir():
            from fedprior.data.folder import read_new

            classes = None if self.classes_ is None else tuple(self.classes_)
            x, y, names = read_new(frame, shape=self.shape, classes=classes)
        elif self.encoder is not None:
            from fedprior.data.frames import taken
            from fedprior.data.table import encoded, new_rows

            frame = taken(frame)
            named = client is None and _has_client(self.encoder, frame)
            rows = new_rows(self.encoder, frame, named=named)
            x, y, names = encoded(self.encoder, rows)
            unknown = self.encoder.unknown(rows.columns)
        else:
            if isinstance(frame, str | Path):
                raise ValueError(
                    f"predict: {frame} is not a folder. The run was trained on arrays: give a "
                    "folder of .npz files, one per client."
                )
            x, y, names = network_input(stored_input(np.asarray(frame))), None, None
            fits = x.shape[1:] == self.shape and len(x) > 0 and bool(np.isfinite(x).all())
            rule = f"finite inputs of shape (rows, {', '.join(map(str, self.shape))})"
            check.require(fits, "predict", "frame", rule, x.shape)
        if y is None:
            y = np.full(len(x), *((np.nan, np.float32) if self.classes_ is None else (-1, int)))
        if client is not None:
            names = _named(client, len(x))
        names = np.full(len(x), "", object) if names is None else names.astype(object)
        return x, y, names, unknown


class Predicted(NamedTuple):
    """Outputs of each row, whose model gave them, the client, and y: -1 or NaN without a label.

    `unknown` are words by column that the run has not seen; they count as missing.
    """

    outputs: np.ndarray
    whose: np.ndarray
    names: np.ndarray
    y: np.ndarray
    unknown: dict[str, list[str]]

    def metrics(self) -> Metrics | None:
        """Every metric on labeled rows, but for those that a newcomer's model was made from."""
        labeled = ~np.isnan(self.y) if self.y.dtype.kind == "f" else self.y >= 0
        kept = labeled & (self.whose != "newcomer")
        if not kept.any():
            return None
        target: Target = "quantity" if self.outputs.ndim == 1 else "classes"
        clients, code = np.unique(self.names[kept].astype(str), return_inverse=True)
        rows = (self.outputs[kept], self.y[kept])
        own = values_by_client(*rows, code, len(clients), target)
        whole = values_by_client(*rows, np.zeros_like(code), 1, target)
        overall = {name: float(values[0]) for name, values in whole.items()}
        return Metrics(names=clients, clients=own, overall=overall)


class Clients:
    """The clients of a run by name: each one's final model, and its memory."""

    def __init__(self, folder: Path, model: TrainedModel) -> None:
        packed = trees.read(
            folder / "names.safetensors", kind="clients", format=formats.NUMBERS["clients"]
        )
        text, ends = packed.arrays["text"].tobytes(), packed.arrays["ends"].tolist()
        self.names = [text[a:b].decode() for a, b in zip([0, *ends], ends, strict=False)]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        memory, theta = model_file.shapes(model.algorithm, model.facts)
        self.thetas = RowFile(folder / "thetas.rows", theta, len(self.names))
        self._memories = RowFile(folder / "memories.rows", memory, len(self.names))

    def theta(self, client: str) -> Theta:
        """A client's own parameters."""
        return _first(self.thetas.read(np.array([self._number(client)])))

    def memory(self, client: str) -> Memory | None:
        """What a client remembers of the rounds it took part in; None if it never did."""
        row = _first(self._memories.read(np.array([self._number(client)])))
        return row["memory"] if row["enrolled"] else None

    def _number(self, client: str) -> int:
        check.choice("model", "client", client, self.names)
        return self.numbers[client]


def load(path: str | Path, *, method: str | None = None, seed: int | None = None) -> TrainedModel:
    """The model in a run folder of `fedprior train`, in a site's folder or a file of `export`.

    Of a run, the one of a method (default: the first) and seed (default: the first). Neither the
    data nor the ledger is opened, and nothing is written.
    """
    return TrainedModel(file_of(path, method=method, seed=seed))


def file_of(path: str | Path, *, method: str | None = None, seed: int | None = None) -> Path:
    """The model file in a run folder, or the file itself."""
    path = Path(path)
    if path.is_file():
        facts, asked = model_file.read(path).facts, {"method": method, "seed": seed}
        for name, value in asked.items():
            rule = f"that of the file, {facts[name]}"
            check.require(value in (None, facts[name]), "load", name, rule, value)
        return path
    site = path / SITE_MODEL
    if site.is_file():  # a site's folder, in a deployment
        return file_of(site, method=method, seed=seed)
    folder = Folder(path)
    config = folder.read()
    method = config.methods[0] if method is None else method
    seed = config.seed if seed is None else seed
    check.choice("run", "method", method, config.methods)
    first, last = config.seed, config.seed + config.seeds - 1
    rule = f"a seed of the run ({first} to {last})"
    check.require(first <= seed <= last, "run", "seed", rule, seed)
    file = folder.model(method, seed)
    if not file.is_file():
        raise ValueError(
            f"run: {method} is not finished for seed {seed} in {path}. "
            "Continue it with fedprior train --resume."
        )
    return file


def predictions(model: TrainedModel, found: Predicted) -> dict[str, np.ndarray]:
    """Columns client, row, prediction, probability (of the predicted class), model, and each class.

    `model` says whose: `own`, `newcomer` or `population`. The column of a class is its probability.
    """
    outputs, whose, names = found.outputs, found.whose, found.names
    table = {"client": names, "row": np.arange(1, len(names) + 1)}
    if model.classes_ is None:
        return {**table, "prediction": outputs, "model": whose}
    shares = probabilities(outputs)
    table["prediction"] = model.classes_[shares.argmax(axis=1)]
    table |= {"probability": shares.max(axis=1), "model": whose}
    return table | {f"probability_{name}": shares[:, k] for k, name in enumerate(model.classes_)}


def probabilities(outputs: np.ndarray) -> np.ndarray:
    """Softmax of logits, (rows, classes)."""
    shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True)).astype(np.float64)
    return shifted / shifted.sum(axis=1, keepdims=True)


def _has_client(encoder: Encoder, frame: Any) -> bool:
    """Whether a frame has a client column (then it must have all of them); a file has to."""
    if isinstance(frame, str | Path):
        return True
    present = frame if isinstance(frame, Mapping) else getattr(frame, "columns", ())
    return any(str(name) in encoder.client for name in present)


def _named(client: Any, count: int) -> np.ndarray:
    """The given name for each row; empty where it is missing."""
    from fedprior.data.reader import names, read

    given = np.full(count, client) if np.ndim(client) == 0 else np.asarray(client)
    rule = f"a name, or one for each of the {count} rows"
    check.require(given.shape == (count,), "predict", "client", rule, given.shape)
    key = read({"client": given}, key=["client"], wanted=[]).key
    assert key is not None
    return np.where(np.ma.getmaskarray(key), "", names(key))


def _first(trees: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], trees)


def _nobody(numbers: np.ndarray) -> Theta:
    raise AssertionError("a model without clients knows none")
