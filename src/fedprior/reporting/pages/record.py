"""A run folder as its page reads it, while the run goes on and after it has ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedprior.core import lock
from fedprior.core.files import read_json
from fedprior.core.scores import ACCURACY, METRICS, OWN, Metric
from fedprior.exchange.checkpoint import read_checkpoint
from fedprior.learning.catalog import METHODS
from fedprior.reporting.config import Config
from fedprior.reporting.folder import Folder
from fedprior.reporting.record import read_lines, shown_entry
from fedprior.reporting.summary import Scores, read_clients, summarize

Stage = Literal["finished", "running", "stopped"]


@dataclass(frozen=True)
class Standing:
    """How far the training of a method and seed is; `rounds` are done, None if none is known."""

    method: str
    seed: int
    rounds: int | None
    planned: int | None
    finished: bool

    @property
    def words(self) -> str:
        """How far it is, in words."""
        if self.finished:
            return "finished"
        return "waiting" if self.rounds is None else "begun"


@dataclass(frozen=True)
class RunRecord:
    """What lies in a run folder and may be shown.

    Of a run with secure noise, that is what its guarantee covers: not the scores of clients, even
    if they were written unprotected, nor their names, sizes and classes, nor cohorts and times.
    """

    folder: Folder

    @cached_property
    def config(self) -> Config:
        return self.folder.read()

    @property
    def secure(self) -> bool:
        return self.config.privacy.noise == "secure"

    @property
    def private(self) -> bool:
        return self.config.privacy.epsilon > 0

    @cached_property
    def summary(self) -> dict[str, Any]:
        """summary.json; empty before the run's first end."""
        path = self.folder.summary
        return json.loads(path.read_bytes()) if path.is_file() else {}

    @cached_property
    def metric(self) -> Metric:
        """What the run's models are scored by.

        Runs of fedprior 0.2 do not say it: accuracy of classes, minus a squared error otherwise.
        """
        name = self.summary.get("metric", self.config.training.metric)
        if name in METRICS:
            return METRICS[name]
        return OWN if self.summary and self.evaluation["classes"] is None else ACCURACY

    @cached_property
    def guesses(self) -> dict[str, dict[str, Any]]:
        """The scores of what needs no model, as in summary.json; none before a run's end."""
        return {} if self.secure else dict(self.summary.get("guesses", {}))

    @cached_property
    def baseline(self) -> dict[str, dict[str, Any]]:
        """The scores of `train --baseline`, as in summary.json."""
        return {} if self.secure else dict(self.summary.get("baseline", {}))

    @cached_property
    def stage(self) -> Stage:
        if lock.holder(self.folder.path) is not None:
            return "running"
        return "finished" if self.summary else "stopped"

    @cached_property
    def methods(self) -> dict[str, dict[str, Any]]:
        """What is known of the scores of each method that is finished, as in summary.json."""
        if self.secure:
            return {}
        if self.summary and self.stage == "finished":
            return dict(self.summary["methods"])
        found: dict[str, Scores] = {}
        for name, seed in self._trainings():
            arrays = self._scores(name, seed)
            if arrays is not None:
                found.setdefault(name, Scores()).test[seed] = arrays["test"]
        if "local" in found:  # gains are paired by seed
            seeds = found["local"].test
            found = {
                name: Scores({seed: own.test[seed] for seed in own.test if seed in seeds}, {})
                for name, own in found.items()
            }
        known = {name: own for name, own in found.items() if own.test}
        return summarize(known, self.metric)

    def _trainings(self) -> Iterator[tuple[str, int]]:
        for seed in self.config.all_seeds:
            for name in self.config.methods:
                yield name, seed

    def _scores(self, method: str, seed: int) -> dict[str, np.ndarray] | None:
        path = self.folder.scores(method, seed)
        return read_checkpoint(path).arrays if path.is_file() else None

    @cached_property
    def progress(self) -> list[dict[str, Any]]:
        """The lines of progress.jsonl; a figure that may not be shown is not among them."""
        lines = [line for line in read_lines(self.folder.progress) if self._told(line)]
        return [self._shown(line) for line in lines]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What is known of every round: metrics.jsonl, or progress.jsonl while there is none."""
        found = [line for line in read_lines(self.folder.metrics) if self._told(line)]
        return [self._shown(line) for line in found] or self.progress

    def _told(self, line: dict[str, Any]) -> bool:
        known = line.get("method") in self.config.methods and "round" in line
        return known and not (self.secure and METHODS[line["method"]].alone)

    def _shown(self, line: dict[str, Any]) -> dict[str, Any]:
        if not self.secure:
            return line
        kept = shown_entry(line, self.config.privacy)
        return {name: value for name, value in kept.items() if name not in ("valid", "seconds")}

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """evaluation.json; of a secure run, the bytes alone."""
        path = self.folder.evaluation
        found = read_json(path) if path.is_file() else {"classes": None, "runs": []}
        if not self.secure:
            return found
        kept = ("method", "seed", "upload_bytes", "download_bytes")
        runs = [{name: each[name] for name in kept if name in each} for each in found["runs"]]
        return {"classes": None, "runs": runs}

    @cached_property
    def clients(self) -> dict[str, np.ndarray]:
        """Columns of clients.parquet; empty where there is none, or nothing of it may be shown."""
        path = self.folder.clients
        return {} if self.secure or not path.is_file() else read_clients(path)

    @cached_property
    def standings(self) -> list[Standing]:
        """How far each training is; of those that may not be told, nothing."""
        ends = {(end["method"], end["seed"]): end for end in self.summary.get("runs", ())}
        latest = {(line["method"], line["seed"]): line for line in self.progress}
        found = []
        for name, seed in self._trainings():
            if self.secure and METHODS[name].alone:
                continue
            end, line = ends.get((name, seed)), latest.get((name, seed))
            finished = self.folder.scores(name, seed).is_file() or end is not None
            done, planned = (None, None) if line is None else (line["round"], line["rounds"])
            if end is not None:
                done, planned = end["rounds"], end["planned"]
            found.append(Standing(name, seed, done, planned, finished))
        return found


def folder_of(path: Path) -> Folder | None:
    """The run folder at `path`, None if it is none (a sweep's folder has a config.toml, too)."""
    folder = Folder(path)
    if not folder.config.is_file() or any(path.glob("checkpoint/*/sweep.*")):
        return None
    return folder
