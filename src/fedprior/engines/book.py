"""The book of a sweep: the scores of its points so far, on disk after every step."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedprior.core.algorithm import Theta
from fedprior.core.scores import Metric
from fedprior.engines import source
from fedprior.engines.grid import Point
from fedprior.engines.seeds import Seeds
from fedprior.engines.trainings import Log
from fedprior.exchange import checkpoint
from fedprior.exchange.checkpoint import fingerprint

_DIGITS = 9  # of mean scores; equal accuracies summed in another order are a tie


@dataclass(frozen=True)
class Trained:
    """One point after training: its scores, its history, and its models by group of seeds."""

    valid: np.ndarray
    history: Log
    thetas: list[Theta]
    groups: list[Seeds]


class Book:
    """The results of every point so far; saved to the folder after every step of the sweep."""

    def __init__(
        self,
        folder: Path | None,
        seeds: Seeds,
        grid: list[Point],
        rounds: int,
        judges: int | None,
        metric: Metric,
    ) -> None:
        shape = (len(grid), len(seeds.numbers), seeds.num_clients)
        self.valid, self.done = np.full(shape, np.nan), np.zeros(len(grid), bool)
        self.judges, self.rounds, self.metric = judges, rounds, metric
        self.history: Log = {}
        self.thetas: list[Theta] = []  # of the best point so far, by group of seeds
        self.groups: list[Seeds] = []
        self.held = -1  # index of that point
        self._file = None if folder is None else Path(folder) / "sweep.safetensors"
        self._identity = "" if folder is None else _identity(seeds, grid, rounds, metric)
        self.scores = np.empty((0, 0))  # test scores of the best point, after all points
        if self._file is not None and self._file.exists():
            saved = checkpoint.read_checkpoint(self._file, identity=self._identity)
            like = {"valid": self.valid, "done": self.done, "scores": saved.arrays["scores"]}
            history = {name: self._blank() for name in saved.facts["history"]}
            arrays = saved.tree({**like, "history": history})
            self.valid, self.done = arrays["valid"].copy(), arrays["done"].copy()
            self.history = {name: values.copy() for name, values in arrays["history"].items()}
            if saved.facts.get("best") == self.best:  # other judges may choose another point
                self.scores = arrays["scores"]

    def _blank(self) -> np.ndarray:
        return np.full((*self.valid.shape[:2], self.rounds), np.nan)

    @property
    def best(self) -> int:
        """The index of the highest mean over clients and seeds; the first one of a tie."""
        means = np.full(len(self.done), -np.inf)
        means[self.done] = np.nanmean(self.valid[self.done, :, : self.judges], axis=2).mean(axis=1)
        return int(np.argmax(np.round(means, _DIGITS)))

    def note(self, place: int, trained: Trained) -> None:
        """Record a point's validation scores; keep its personal models while it is the best."""
        self.valid[place], self.done[place] = trained.valid, True
        for name, values in trained.history.items():
            self.history.setdefault(name, self._blank())[place] = values
        if self.best == place:
            self.hold(place, trained)
        self.save()

    def hold(self, place: int, trained: Trained) -> None:
        """Keep a point's personal models without changing its recorded validation scores."""
        self.thetas, self.groups, self.held = trained.thetas, trained.groups, place

    def save(self) -> None:
        """Save to disk if there is a folder."""
        if self._file is not None:
            arrays = {"valid": self.valid, "done": self.done, "scores": self.scores}
            checkpoint.save_checkpoint(
                self._file,
                {**arrays, "history": self.history},
                identity=self._identity,
                history=sorted(self.history),
                best=self.best,
            )


def _identity(seeds: Seeds, grid: list[Point], rounds: int, metric: Metric) -> str:
    """A hash of everything that determines the scores; it does not read the test samples."""
    drawn = seeds.federations
    data = [source.content(federation.train, federation.valid) for federation in drawn]
    tests = [[list(part.x.shape), part.size.tolist()] for part in (one.test for one in drawn)]
    agreed = [seeds.cohort, seeds.channel, seeds.identity]
    return fingerprint([grid, seeds.numbers, agreed, data, tests, rounds, metric.name])
