"""A training run: methods x seeds, each resumable, into one folder."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

from fedprior.core.files import write_atomically
from fedprior.data.federation import Federation
from fedprior.engines import checkpoint
from fedprior.engines.result import Result
from fedprior.engines.run import Saving
from fedprior.engines.simulate import Progress, simulate
from fedprior.privacy.ledger import Ledger
from fedprior.reporting import setting as settings
from fedprior.reporting.config import Config, Privacy, as_tables
from fedprior.reporting.folder import Folder
from fedprior.reporting.summary import Scores, summarize, write_clients

Watch = Callable[[str], AbstractContextManager[Callable[[Progress], Any]]]


def train(config: Config, folder: Folder, *, resume: bool, watch: Watch) -> dict[str, Scores]:
    """Every method for every seed; what is finished already is read back, not run again."""
    found: dict[str, Scores] = {name: Scores({}, {}) for name in config.methods}
    lines: list[dict[str, Any]] = []
    sizes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for seed in range(config.seed, config.seed + config.seeds):
        clients, _, _ = settings.federation(config.data, seed=seed)
        sizes[seed] = (clients.clients, clients.train.size)
        for name in config.methods:
            history = _one(config, folder, name, seed, clients, resume, watch, found[name])
            lines += [
                {"method": name, "seed": seed, "round": number + 1, **_shown(entry, config.privacy)}
                for number, entry in enumerate(history)
            ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_atomically(folder.metrics, text.encode())
    if scores_stay(config.privacy):
        found = {}
    else:
        write_clients(folder.clients, sizes, found)
    summary = {"format": 1, "run": str(folder.path), "methods": summarize(found)}
    write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
    return found


def scores_stay(privacy: Privacy) -> bool:
    """Scores are not private: with noise that is valid for release they leave only if asked to."""
    return privacy.noise == "secure" and not privacy.release_scores


def _shown(entry: dict[str, float], privacy: Privacy) -> dict[str, float]:
    """What a round may tell: with secure noise neither scores nor anything about its cohort."""
    hidden = ("clients", "left_out", "valid") if scores_stay(privacy) else ()
    return {name: value for name, value in entry.items() if name not in hidden}


def _one(
    config: Config,
    folder: Folder,
    name: str,
    seed: int,
    clients: Federation,
    resume: bool,
    watch: Watch,
    scores: Scores,
) -> list[dict[str, float]]:
    """One method and seed: run it (or read it back), note its scores, return its history."""
    file = folder.scores(name, seed)
    if resume and file.exists():
        header = checkpoint.read_header(file, identity=_identity(config, name))
        like = {part: np.empty(clients.num_clients) for part in ("test", "valid")}
        arrays = checkpoint.load_arrays(file, like)
        scores.test[seed], scores.valid[seed] = arrays["test"], arrays["valid"]
        return header["history"]
    label = f"{name}, seed {seed}" if config.seeds > 1 else name
    with watch(label) as progress:
        result = run_one(config, folder, name, seed, clients, resume=resume, progress=progress)
    scores.test[seed], scores.valid[seed] = result.scores, result.valid_scores
    checkpoint.save_checkpoint(
        file,
        {"test": result.scores, "valid": result.valid_scores},
        identity=_identity(config, name),
        history=result.history,
    )
    return result.history


def run_one(
    config: Config,
    folder: Folder,
    name: str,
    seed: int,
    clients: Federation,
    *,
    resume: bool,
    progress: Callable[[Progress], Any] | None = None,
    test: bool = True,
) -> Result:
    """One method's simulation for one seed, saved in the run folder."""
    chosen = settings.setting(config, name, clients)
    with ExitStack() as held:
        ledger = None
        if chosen.terms is not None:
            ledger = held.enter_context(Ledger(folder.ledger(name, seed), chosen.terms))
        return simulate(
            chosen.algorithm,
            clients,
            rounds=chosen.rounds,
            cohort=chosen.cohort,
            channel=chosen.channel,
            seed=seed,
            evaluate_every=chosen.evaluate_every,
            patience=chosen.patience,
            store=config.training.store,
            saving=Saving(
                folder=folder.part(name, seed),
                every=config.training.checkpoint_every,
                resume=resume,
                identity=_identity(config, name),
            ),
            ledger=ledger,
            progress=progress,
            test=test,
        )


def check_run(config: Config) -> tuple[Federation, list[str]]:
    """Everything that can be wrong is found before a folder is made: data, models, cohorts."""
    clients, _, remarks = settings.federation(config.data, seed=config.seed)
    for name in config.methods:
        settings.setting(config, name, clients)
    return clients, remarks


def _identity(config: Config, name: str) -> str:
    """What decides a method's bits: not how many seeds or which other methods run beside it."""
    tables = as_tables(config)
    data = {key: value for key, value in tables["data"].items() if key not in ("root", "path")}
    training = {key: v for key, v in tables["training"].items() if key != "checkpoint_every"}
    own = config.options.get(name, {})
    privacy = tables["privacy"] if config.privacy.epsilon else None
    parts = [data, tables["model"], training, own]
    return checkpoint.fingerprint([*parts, privacy] if privacy else parts)
