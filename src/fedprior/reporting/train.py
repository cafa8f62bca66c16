"""A training run: methods x seeds, each resumable, into one folder."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedprior.core import formats
from fedprior.core.algorithm import Theta
from fedprior.core.check import PrivacyError
from fedprior.core.files import write_atomically, write_json
from fedprior.core.scores import Metric, mean_of_known
from fedprior.data.federation import Federation
from fedprior.engines.evaluate import check_defined
from fedprior.engines.guesses import guesses
from fedprior.engines.mesh import mesh_of
from fedprior.engines.metrics import Metrics
from fedprior.engines.processes import leads
from fedprior.engines.result import Result
from fedprior.engines.run import Saving
from fedprior.engines.simulate import Progress, simulate
from fedprior.exchange import checkpoint
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.facts import Facts
from fedprior.learning.catalog import METHODS
from fedprior.privacy import secure
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.terms import Terms
from fedprior.reporting import federations, ledgers, model_file, population, released
from fedprior.reporting.boosting import boosted
from fedprior.reporting.config import Config
from fedprior.reporting.finished import End, Finished
from fedprior.reporting.folder import Folder
from fedprior.reporting.record import (
    Evaluation,
    classes_of,
    following,
    largest_class,
    scores_stay,
    shown_entry,
)
from fedprior.reporting.run_ledger import open_ledger, places, room
from fedprior.reporting.summary import Scores, summarize, write_clients
from fedprior.reporting.training import Study, Training

Watch = Callable[[str], AbstractContextManager[Callable[[Progress], Any]]]


def train(
    config: Config, folder: Folder, *, resume: bool, watch: Watch, baseline: bool = False
) -> dict[str, Any]:
    """Train every method for every seed; finished trainings are read from the folder.

    Returns what summary.json holds, with `baseline` also the values of boosting on the same rows.
    Where scores are withheld, nothing in it depends on them: neither figures nor when a method that
    sends nothing ended.
    """
    if resume:
        ledgers.check_heads(folder.path)  # of what is finished, too
        ledgers.check_purpose(folder.path, folder.purpose)
    scores: dict[str, Scores] = {name: Scores() for name in config.methods}
    lines: list[dict[str, Any]] = []
    ends: list[End] = []
    means: list[dict[str, Any]] = []  # that were released
    evaluations: list[dict[str, Any]] = []
    known: dict[int, Federation] = {}
    for job in _jobs(config, folder, resume):
        name, seed, metric = job.name, job.seed, job.training.metric
        known[seed], which = job.clients, {"method": name, "seed": seed}
        done = _finish(job, watch)
        done.add_to(scores[name], seed)
        evaluations.append({**which, **done.evaluation})
        if done.released is not None:
            means.append({**which, **done.released})
        if scores_stay(config.privacy) and METHODS[name].alone:
            continue
        ends.append(done.end(name, seed))
        lines += [
            {**which, "round": number, **shown_entry(entry, config.privacy, metric)}
            for number, entry in enumerate(done.history, start=1)
        ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_atomically(folder.metrics, text.encode())
    _write_clients(config, folder, known, scores, evaluations, metric)
    if scores_stay(config.privacy):
        scores = {}
    summary = summary_of(config, folder, scores, ends, metric)
    if config.privacy.noise != "secure":
        summary["guesses"] = summarize(_guesses(known, metric), metric)
        summary["largest_class"] = largest_class(known[config.seed])
    if baseline:
        found = {seed: _boosted(config, clients, seed) for seed, clients in known.items()}
        beside = {**scores, **_measured(found, metric)}  # gains are over local
        rows = summarize(beside, metric)
        summary["baseline"] = {name: rows[name] for name in rows if name not in scores}
    elif resume and folder.summary.is_file():
        stored = json.loads(folder.summary.read_bytes())
        summary |= {"baseline": stored["baseline"]} if "baseline" in stored else {}
    if config.privacy.score_epsilon:
        summary["released_scores"] = means
    write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
    return summary


def _write_clients(
    config: Config,
    folder: Folder,
    known: dict[int, Federation],
    scores: dict[str, Scores],
    evaluations: list[dict[str, Any]],
    metric: Metric,
) -> None:
    """clients.parquet and evaluation.json, as far as the run's noise allows.

    With secure noise neither tells of sizes and classes, and scores are written if asked for.
    """
    secure = config.privacy.noise == "secure"
    classes, columns = None, dict[str, np.ndarray]()
    if not secure:
        found = {seed: classes_of(clients) for seed, clients in known.items()}
        classes = found[config.seed][0]
        columns["size"] = np.concatenate([each.train.size for each in known.values()])
        shares = [share for _, share in found.values() if share is not None]
        columns |= {"largest_class": np.concatenate(shares)} if shares else {}
    if not scores_stay(config.privacy):
        names = {seed: clients.clients for seed, clients in known.items()}
        write_clients(folder.clients, names, scores, columns, metric)
    document = {"format": formats.NUMBERS["run"], "classes": classes, "runs": evaluations}
    write_json(folder.evaluation, document)


def _guesses(known: dict[int, Federation], metric: Metric) -> dict[str, Scores]:
    """The scores of what needs no model, on the same test samples."""
    return _measured({seed: guesses(clients) for seed, clients in known.items()}, metric)


def _boosted(config: Config, clients: Federation, seed: int) -> dict[str, Metrics]:
    """Every metric of boosting, which sees all columns."""
    if config.data.most_inputs:
        clients = federations.federation(replace(config.data, most_inputs=0), seed=seed)
    return boosted(clients, seed=seed)


def _measured(found: dict[int, dict[str, Metrics]], metric: Metric) -> dict[str, Scores]:
    """What was measured by seed and name, by name."""
    names = next(iter(found.values()))
    return {
        name: Scores.measured({seed: own[name] for seed, own in found.items()}, metric)
        for name in names
    }


def summary_of(
    config: Config,
    folder: Folder,
    scores: dict[str, Scores],
    ends: list[End],
    metric: Metric,
) -> dict[str, Any]:
    """What summary.json holds: values by method, how runs ended, what was spent."""
    summary = {
        "format": formats.NUMBERS["run"],
        "run": str(folder.path),
        "metric": metric.name,
        "methods": summarize(scores, metric),
        "scores_withheld": scores_stay(config.privacy),
        "runs": [asdict(end) for end in ends],
    }
    if not config.privacy.epsilon:
        return summary
    bills = ledgers.spent(folder.path)
    summary |= {"privacy": bills, "together": ledgers.together(folder.path)}
    if config.privacy.ledger:
        summary["population"] = population.statement(*places(config.privacy))
    return summary


@dataclass(frozen=True)
class _Job:
    """One method's training for one seed, in the folder of its run."""

    training: Training
    config: Config
    folder: Folder
    seed: int
    clients: Federation
    resume: bool

    @property
    def name(self) -> str:
        return self.training.method.name

    @property
    def identity(self) -> str:
        return checkpoint.fingerprint(self.training.identity)

    @property
    def label(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.config.seeds > 1 else self.name

    @property
    def evaluation(self) -> Evaluation:
        """What is to be noted of this training at its end."""
        training, alone = self.training, METHODS[self.name].alone
        agreement = Agreement.of(
            training.algorithm, self.clients, channel=training.channel, cohort=training.cohort
        )
        return Evaluation(agreement, self.clients, self.config.privacy, alone=alone)

    def following(self, progress: Callable[[Progress], Any]) -> Callable[[Progress], Any]:
        """`progress`, which also notes in the folder how far the training is.

        Of a method that sends nothing even that tells of scores, where they are withheld.
        """
        privacy = self.config.privacy
        if scores_stay(privacy) and METHODS[self.name].alone:
            return progress
        which = {"method": self.name, "seed": self.seed}
        return following(self.folder.progress, progress, privacy, self.training.metric, **which)

    def ledger(self, terms: Terms) -> Ledger:
        """The ledger of this training."""
        place = (self.folder, self.name, self.seed)
        number = self.clients.num_clients
        return open_ledger("train", *place, terms, self.config.privacy, num_clients=number)

    def simulate(
        self, progress: Callable[[Progress], Any], keep: Callable[[int, Theta], Any]
    ) -> Result:
        """Run the training, saved in the folder; process 0 has the ledger."""
        training, name = self.training, self.name
        with ExitStack() as held:
            ledger = None
            if training.terms is not None and leads():
                ledger = held.enter_context(self.ledger(training.terms))
            return simulate(
                training.algorithm,
                self.clients,
                **training.arguments,
                seed=self.seed,
                store=self.config.training.store,
                devices=self.config.training.devices or None,
                saving=Saving(
                    folder=self.folder.part(name, self.seed),
                    every=self.config.training.checkpoint_every,
                    resume=self.resume,
                    identity=self.identity,
                ),
                ledger=ledger,
                progress=progress,
                keep=keep,
            )

    def release(self, result: Result) -> dict[str, Any] | None:
        """The mean score with noise, charged to the ledger, if the configuration asks for it."""
        privacy = self.config.privacy
        if not privacy.score_epsilon:
            return None
        with self.ledger(released.terms(self.training, privacy)) as ledger:
            return released.release(result, privacy, ledger, self.folder.part(self.name, self.seed))


def _jobs(config: Config, folder: Folder, resume: bool) -> Iterator[_Job]:
    """The trainings of a run, one seed after the other."""
    for seed in config.all_seeds:
        clients = federations.clients_of(config, seed=seed)
        study = Study(config, Facts.of(clients))
        for name in config.methods:
            yield _Job(study.training(name), config, folder, seed, clients, resume)


def _finish(job: _Job, watch: Watch) -> Finished:
    """Run a job, or read it from the folder."""
    name, seed, folder = job.name, job.seed, job.folder
    file = folder.scores(name, seed)
    if job.resume and file.exists():
        return Finished.read(file, job.clients, identity=job.identity)
    own_model, noted = folder.model(name, seed), job.evaluation
    with watch(job.label) as progress, model_file.keeping_thetas(own_model) as keep:
        result = job.simulate(job.following(progress), noted.keeping(keep))
        # Shown while other methods train; `following` would write it.
        progress(_tested(result, job.training.rounds))
    evaluation = noted.describe()
    mean = job.release(result)
    guarantee = ledgers.guarantee(folder.ledger(name, seed)) if job.training.terms else None
    model_file.save(own_model, result, job.config, job.training, guarantee=guarantee)
    done = Finished.of(
        result,
        planned=job.training.rounds,
        metrics=noted.metrics,
        evaluation=evaluation,
        released=mean,
    )
    done.save(file, identity=job.identity)
    return done


def _tested(result: Result, rounds: int) -> Progress:
    """What there is to show of a training at its end."""
    mean = mean_of_known(result.scores)
    test = np.nan if mean is None else mean
    return Progress(result.rounds, rounds, score=np.nan, clients_per_second=np.nan, test=test)


def judged(config: Config, clients: Federation) -> Config:
    """The configuration with the name of its metric, where it leaves the choice open."""
    metric: Any = Study(config, Facts.of(clients)).metric.name
    return replace(config, training=replace(config.training, metric=metric))


def follow(config: Config, folder: Folder, *, resume: bool) -> None:
    """What `train` is in all processes but process 0: the same trainings, and nothing is written.

    They must see the folder, where checkpoints are.
    """
    for job in _jobs(config, folder, resume):
        if not (resume and folder.scores(job.name, job.seed).exists()):
            job.simulate(lambda progress: None, lambda count, thetas: None)


def check_run(config: Config) -> tuple[Federation, list[str]]:
    """Raise what can be wrong before a folder is made: data, models, cohorts."""
    mesh_of(config.training.devices or None)
    clients = federations.clients_of(config)
    remarks = list(clients.remarks)
    study = Study(config, Facts.of(clients))
    for name in config.methods:
        training = study.training(name)
        if training.channel.noise == "secure" and config.privacy.secure_sums:
            raise PrivacyError(
                f"{name}: noise must be simulated to rehearse secure sums on one machine, got "
                "secure. Secure shares of the noise are drawn by real clients: deploy the run."
            )
        if training.channel.noise == "secure":
            secure.check_cohort_size(training.cohort.capacity(clients.num_clients))
        training.check_affordable(clients.num_clients)
        verdict = None
        if training.channel.private:
            agreement = Agreement.of(
                training.algorithm, clients, channel=training.channel, cohort=training.cohort
            )
            # The length raises if a message would need more than what is public.
            verdict = training.verdict(agreement.length)
        released.check_release(training, config, clients)
        if training.evaluate_every:
            check_defined("config training", training.metric, clients)
        remarks += room(training, config.privacy, clients.num_clients)
        if training.patience and not clients.valid.size.any():
            raise ValueError(
                f"{name} stops when validation scores stop rising, and the clients have no "
                "validation samples."
            )
        remarks += [f"{name}: {said}" for said in (training.method.remark, verdict) if said]
    return clients, remarks
