"""The files of a model that stands alone: one that may be published, the clients' own beside it.

model.safetensors holds the state and public facts: everything that `load` needs, and nothing of a
single client. clients/ holds the clients' names, final models and memories.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check, formats, random
from fedprior.core.algorithm import Algorithm, Key, Memory, PyTree, State, Theta
from fedprior.core.files import make_folder
from fedprior.data.federation import ClientData
from fedprior.engines.evaluate import chunks
from fedprior.engines.result import Result
from fedprior.exchange import rows, trees
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.reporting.config import Config
from fedprior.reporting.noise import PrivateSum, coefficients
from fedprior.reporting.tables import as_tables, build
from fedprior.reporting.training import Study, Training

_KIND, FORMAT = "model", formats.NUMBERS["model"]


def clients_folder(file: Path) -> Path:
    """Where the clients' own models lie, if they are beside `file`."""
    return file.parent / "clients"


def read(file: Path) -> trees.Packed:
    """The state and the facts of a model."""
    return trees.read(file, kind=_KIND, format=FORMAT)


@contextlib.contextmanager
def keeping_thetas(file: Path) -> Iterator[Callable[[int, Theta], None]]:
    """`add(count, thetas)` keeps the next clients' final models beside the model's `file`."""
    make_folder(clients_folder(file))
    with rows.writing(clients_folder(file) / "thetas.rows") as add:
        yield add


def save(
    file: Path,
    result: Result,
    config: Config,
    training: Training,
    *,
    guarantee: dict[str, Any] | None,
) -> None:
    """Write a finished run's model; `keeping_thetas` has written the clients' own before."""
    federation = result.federation

    def memories() -> Iterator[tuple[int, PyTree, Any]]:
        for clients, real in chunks(federation.num_clients, federation.train.largest):
            yield (real, *result.store.read(clients[:real]))

    write_clients(file, [str(name) for name in federation.clients], memories())
    write_state(
        file,
        jax.device_get(result.state),
        method=training.method.name,
        seed=result.seed,
        rounds=result.rounds,
        num_clients=federation.num_clients,
        shape=list(federation.shape),
        classes=None if federation.classes is None else list(federation.classes),
        config=public_tables(config, training),
        encoder=federation.encoder.to_json() if federation.encoder else None,
        guarantee=guarantee,
    )


def write_state(file: Path, state: State, **facts: Any) -> None:
    """The part of a model that may be published: a state, and all facts that `load` needs."""
    trees.write(file, state, kind=_KIND, format=FORMAT, **facts)


def write_clients(
    file: Path, names: list[str], memories: Iterable[tuple[int, PyTree, Any]]
) -> None:
    """Names and memories of the clients, beside the model's `file`: (count, memories, enrolled)."""
    folder = clients_folder(file)
    with rows.writing(folder / "memories.rows") as add:
        for count, own, enrolled in memories:
            add(count, {"memory": own, "enrolled": enrolled})
    encoded = [name.encode() for name in names]
    arrays = {
        "text": np.frombuffer(b"".join(encoded), np.uint8),
        "ends": np.cumsum([len(name) for name in encoded]),
    }
    trees.write(
        folder / "names.safetensors", arrays, kind="clients", format=formats.NUMBERS["clients"]
    )


def export(file: Path, out: Path) -> dict[str, Any]:
    """Write what may be published of the model in `file` to `out`; returns its facts.

    Nothing in it is of a single client. Of a private run, the guarantee covers the state, and the
    facts are public.
    """
    packed = read(file)
    facts = packed.facts
    if METHODS[facts["method"]].alone:
        raise ValueError(
            f"export: {facts['method']} learns nothing together that could be published. "
            "Choose another method with --algorithm."
        )
    if facts["config"]["privacy"]["epsilon"] and facts["guarantee"] is None:
        raise check.PrivacyError(f"export: the model of {facts['method']} states no guarantee.")
    trees.write(out, packed.arrays, kind=_KIND, format=FORMAT, **facts)
    return facts


def algorithm(facts: dict[str, Any]) -> Algorithm:
    """The method as the run was configured, built from public facts."""
    config: Config = build(Config, facts["config"], "model")
    classes = facts["classes"]
    public = Facts(
        num_clients=facts["num_clients"],
        shape=facts["shape"],
        num_classes=None if classes is None else len(classes),
        most_samples=1,  # has no effect on the algorithm
    )
    return Study(config, public).training(facts["method"]).algorithm


def shapes(algorithm: Algorithm, facts: dict[str, Any]) -> tuple[PyTree, PyTree]:
    """Shapes of a row of memories, and of a client's theta."""
    x = np.zeros((1, *facts["shape"]), np.float32)
    y = np.zeros(1, np.float32 if facts["classes"] is None else np.int32)
    zero, places = np.zeros((), np.int32), np.arange(1, dtype=np.int32)

    def once(key: Key) -> tuple[Memory, Theta]:
        state = algorithm.init(key)
        memory = algorithm.enroll(state, jnp.asarray(zero), key)
        data = ClientData(*(jnp.asarray(part) for part in (x, y, zero, zero, places)))
        return memory, algorithm.personalize(state, memory, data, key)

    memory, theta = jax.eval_shape(once, random.root(0))
    flag = jax.ShapeDtypeStruct((), np.bool_)  # type: ignore[no-untyped-call]
    return {"memory": memory, "enrolled": flag}, theta


def public_tables(config: Config, training: Training) -> dict[str, Any]:
    """What builds the algorithm again: no word of where the data lie or what they hold."""
    name, privacy = training.method.name, replace(config.privacy, ledger="", key="")
    channel = training.channel
    if isinstance(channel, PrivateSum):  # spares `load` the search for it
        noise = channel.noise_multiplier
        privacy = replace(privacy, noise_multiplier=noise, coefficients=coefficients(channel))
    shown = Config(
        methods=(name,),
        model=config.model,
        training=config.training,
        privacy=privacy,
        options={name: config.options.get(name, {})},
    )
    tables = as_tables(shown)
    return {part: tables[part] for part in ("methods", "model", "training", "privacy", "options")}
