"""A training run: methods x seeds, each resumable, into one folder."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprior.core.algorithm import Theta
from fedprior.core.files import write_atomically
from fedprior.data.federation import Federation
from fedprior.engines.result import EndedBy, Result
from fedprior.engines.run import Saving
from fedprior.engines.simulate import Progress, simulate
from fedprior.exchange import checkpoint
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.privacy import secure
from fedprior.privacy.ledger import Ledger
from fedprior.reporting import federations, ledgers, model_file
from fedprior.reporting.config import Config, Privacy
from fedprior.reporting.folder import Folder
from fedprior.reporting.summary import Scores, summarize, write_clients
from fedprior.reporting.training import Study, Training

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
    """Train every method for every seed; finished trainings are read from the folder.

    Returns what summary.json holds. Where scores are withheld, nothing in it depends on them:
    neither figures nor when a method that sends nothing ended.
    """
    if resume:
        ledgers.check_heads(folder.path)  # of what is finished, too
    scores: dict[str, Scores] = {name: Scores({}, {}) for name in config.methods}
    lines: list[dict[str, Any]] = []
    ends: list[End] = []
    sizes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for seed in config.all_seeds:
        clients, _, _ = federations.federation(config.data, seed=seed, privacy=config.privacy)
        sizes[seed] = (clients.clients, clients.train.size)
        study = Study(config, Facts.of(clients))
        for name in config.methods:
            one = (study.training(name), config, folder, seed, clients, resume, watch)
            history, end = _one(*one, scores[name])
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
        scores = {}
    else:
        secure = config.privacy.noise == "secure"  # then scores were released, and nothing else
        write_clients(folder.clients, sizes, scores, sizes=not secure)
    summary = _summary(config, folder, scores, ends)
    write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
    return summary


def scores_stay(privacy: Privacy) -> bool:
    """Scores are not private: with noise that is valid for release they leave only if asked to."""
    return privacy.noise == "secure" and not privacy.release_scores


def _summary(
    config: Config, folder: Folder, scores: dict[str, Scores], ends: list[End]
) -> dict[str, Any]:
    summary = {
        "format": 1,
        "run": str(folder.path),
        "methods": summarize(scores),
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
    training: Training,
    config: Config,
    folder: Folder,
    seed: int,
    clients: Federation,
    resume: bool,
    watch: Watch,
    scores: Scores,
) -> tuple[list[dict[str, float]], End]:
    """Run a method for a seed, or read it back; note its scores and how it ended."""
    name, identity = training.method.name, checkpoint.fingerprint(training.identity)
    file = folder.scores(name, seed)
    if resume and file.exists():
        saved = checkpoint.read_checkpoint(file, identity=identity)
        like = {part: np.empty(clients.num_clients) for part in ("test", "valid")}
        arrays, header = saved.tree(like), saved.facts
        scores.test[seed], scores.valid[seed] = arrays["test"], arrays["valid"]
        history, why = header["history"], header.get("ended_by", "rounds")
        return history, End(name, seed, len(history), header.get("planned", len(history)), why)
    label = f"{name}, seed {seed}" if config.seeds > 1 else name
    own_model = folder.model(name, seed)
    with watch(label) as progress, model_file.keeping_thetas(own_model) as keep:
        result = _run(training, config, folder, seed, clients, resume, progress, keep)
    guarantee = ledgers.guarantee(folder.ledger(name, seed)) if training.terms else None
    model_file.save(own_model, result, config, training, guarantee=guarantee)
    scores.test[seed], scores.valid[seed] = result.scores, result.valid_scores
    checkpoint.save_checkpoint(
        file,
        {"test": result.scores, "valid": result.valid_scores},
        identity=identity,
        history=result.history,
        planned=training.rounds,
        ended_by=result.ended_by,
    )
    return result.history, End(name, seed, result.rounds, training.rounds, result.ended_by)


def _run(
    training: Training,
    config: Config,
    folder: Folder,
    seed: int,
    clients: Federation,
    resume: bool,
    progress: Callable[[Progress], Any],
    keep: Callable[[int, Theta], Any],
) -> Result:
    """Simulate a training for one seed, saved in the run folder."""
    name = training.method.name
    with ExitStack() as held:
        ledger = None
        if training.terms is not None:
            ledger = held.enter_context(Ledger(folder.ledger(name, seed), training.terms))
        return simulate(
            training.algorithm,
            clients,
            **training.arguments,
            seed=seed,
            store=config.training.store,
            saving=Saving(
                folder=folder.part(name, seed),
                every=config.training.checkpoint_every,
                resume=resume,
                identity=checkpoint.fingerprint(training.identity),
            ),
            ledger=ledger,
            progress=progress,
            keep=keep,
        )


def check_run(config: Config) -> tuple[Federation, list[str]]:
    """Raise what can be wrong before a folder is made: data, models, cohorts."""
    clients, _, remarks = federations.federation(
        config.data, seed=config.seed, privacy=config.privacy
    )
    study = Study(config, Facts.of(clients))
    for name in config.methods:
        training = study.training(name)
        if training.channel.noise == "secure":
            secure.check_cohort_size(training.cohort.capacity(clients.num_clients))
        training.check_affordable(clients.num_clients)
        if training.patience and not clients.valid.size.any():
            raise ValueError(
                f"{name} stops when validation scores stop rising, and the clients have no "
                "validation samples."
            )
        if training.method.remark:
            remarks = [*remarks, f"{name}: {training.method.remark}"]
    return clients, remarks
