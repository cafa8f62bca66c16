"""A training run: methods x seeds, each resumable, into one folder."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprior.core.files import write_atomically
from fedprior.data.federation import Federation
from fedprior.engines.result import EndedBy, Result
from fedprior.engines.run import Saving
from fedprior.engines.simulate import Progress, simulate
from fedprior.exchange import checkpoint
from fedprior.exchange.checkpoint import fingerprint
from fedprior.learning.catalog import METHODS
from fedprior.privacy import secure
from fedprior.privacy.ledger import Ledger
from fedprior.reporting import ledgers
from fedprior.reporting import setting as settings
from fedprior.reporting.config import Config, Privacy, as_tables
from fedprior.reporting.folder import Folder
from fedprior.reporting.summary import Scores, summarize, write_clients

Watch = Callable[[str], AbstractContextManager[Callable[[Progress], Any]]]


@dataclass(frozen=True)
class End:
    """How one method's run for one seed ended: after `rounds` of the `planned` ones, and why."""

    method: str
    seed: int
    rounds: int
    planned: int
    ended_by: EndedBy


def train(config: Config, folder: Folder, *, resume: bool, watch: Watch) -> dict[str, Any]:
    """Every method for every seed; what is finished already is read back, not run again.

    Returns what summary.json holds. Where scores stay, nothing in it depends on them: neither
    figures nor when a method that sends nothing ended.
    """
    if resume:
        ledgers.check_heads(folder.path)  # of what is finished, too
    found: dict[str, Scores] = {name: Scores({}, {}) for name in config.methods}
    lines: list[dict[str, Any]] = []
    ends: list[End] = []
    sizes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for seed in range(config.seed, config.seed + config.seeds):
        clients, _, _ = settings.federation(config.data, seed=seed, privacy=config.privacy)
        sizes[seed] = (clients.clients, clients.train.size)
        for name in config.methods:
            history, end = _one(config, folder, name, seed, clients, resume, watch, found[name])
            if scores_stay(config.privacy) and METHODS[name].alone:
                continue
            ends.append(end)
            lines += [
                {"method": name, "seed": seed, "round": number + 1, **_shown(entry, config.privacy)}
                for number, entry in enumerate(history)
            ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_atomically(folder.metrics, text.encode())
    if scores_stay(config.privacy):
        found = {}
    else:
        secure = config.privacy.noise == "secure"  # then scores were released, and nothing else
        write_clients(folder.clients, sizes, found, sizes=not secure)
    summary = _summary(config, folder, found, ends)
    write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
    return summary


def scores_stay(privacy: Privacy) -> bool:
    """Scores are not private: with noise that is valid for release they leave only if asked to."""
    return privacy.noise == "secure" and not privacy.release_scores


def _summary(
    config: Config, folder: Folder, found: dict[str, Scores], ends: list[End]
) -> dict[str, Any]:
    summary = {
        "format": 1,
        "run": str(folder.path),
        "methods": summarize(found),
        "scores_withheld": scores_stay(config.privacy),
        "runs": [asdict(end) for end in ends],
    }
    if not config.privacy.epsilon:
        return summary
    bills = ledgers.spent(folder.path)
    return {**summary, "privacy": bills, "together": ledgers.together(folder.path)}


def _shown(entry: dict[str, float], privacy: Privacy) -> dict[str, float]:
    """What a round may tell: with secure noise nothing about its cohort, and scores if released."""
    hidden = ["clients", "left_out"] if privacy.noise == "secure" else []
    hidden += ["valid"] if scores_stay(privacy) else []
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
) -> tuple[list[dict[str, float]], End]:
    """One method and seed: run it (or read it back), note its scores, tell how it went."""
    file = folder.scores(name, seed)
    if resume and file.exists():
        saved = checkpoint.read_checkpoint(file, identity=_identity(config, name))
        header = saved.facts
        like = {part: np.empty(clients.num_clients) for part in ("test", "valid")}
        arrays = saved.tree(like)
        scores.test[seed], scores.valid[seed] = arrays["test"], arrays["valid"]
        history, why = header["history"], header.get("ended_by", "rounds")
        return history, End(name, seed, len(history), header.get("planned", len(history)), why)
    label = f"{name}, seed {seed}" if config.seeds > 1 else name
    with watch(label) as progress:
        result = run_one(config, folder, name, seed, clients, resume=resume, progress=progress)
    scores.test[seed], scores.valid[seed] = result.scores, result.valid_scores
    planned = settings.setting(config, name, clients).rounds
    checkpoint.save_checkpoint(
        file,
        {"test": result.scores, "valid": result.valid_scores},
        identity=_identity(config, name),
        history=result.history,
        planned=planned,
        ended_by=result.ended_by,
    )
    return result.history, End(name, seed, result.rounds, planned, result.ended_by)


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
    clients, _, remarks = settings.federation(config.data, seed=config.seed, privacy=config.privacy)
    for name in config.methods:
        chosen = settings.setting(config, name, clients)
        if chosen.channel.noise == "secure":
            secure.check_cohort_size(chosen.cohort.capacity(clients.num_clients))
        if remark := METHODS[name].remark:
            remarks = [*remarks, f"{name}: {remark}"]
    return clients, remarks


def _identity(config: Config, name: str) -> str:
    """What decides a method's bits: not how many seeds or which other methods run beside it."""
    tables = as_tables(config)
    places = ("root", "path", "encoder")
    data = {key: value for key, value in tables["data"].items() if key not in places}
    training = {key: v for key, v in tables["training"].items() if key != "checkpoint_every"}
    own = config.options.get(name, {})
    privacy = tables["privacy"] if config.privacy.epsilon else None
    parts = [data, tables["model"], training, own]
    return fingerprint([*parts, privacy] if privacy else parts)
