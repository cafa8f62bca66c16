"""A finished run, read back from its folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprior.core import check
from fedprior.data.encoder import Encoder
from fedprior.engines.result import Result
from fedprior.exchange.facts import Facts
from fedprior.reporting import setting
from fedprior.reporting.config import Config
from fedprior.reporting.folder import Folder
from fedprior.reporting.train import run
from fedprior.reporting.training import Study


@dataclass(frozen=True)
class TrainedRun:
    """A run folder with its configuration; `result` gives a method's models back."""

    folder: Folder
    config: Config

    @property
    def summary(self) -> dict[str, Any]:
        """What `fedprior train --json` printed."""
        return json.loads(self.folder.summary.read_text())

    def encoder(self, seed: int) -> Encoder | None:
        """How the table became features under a seed; None for a dataset or a folder of arrays."""
        return setting.federation(self.config.data, seed=seed)[1]

    def result(self, method: str | None = None, *, seed: int | None = None) -> Result:
        """The result of a method (default: the run's first) for a seed (default: its first)."""
        method = self.config.methods[0] if method is None else method
        seed = self.config.seed if seed is None else seed
        check.choice("run", "method", method, self.config.methods)
        first, last = self.config.seed, self.config.seed + self.config.seeds - 1
        rule = f"a seed of the run ({first} to {last})"
        check.require(first <= seed <= last, "run", "seed", rule, seed)
        if not self.folder.scores(method, seed).exists():
            raise ValueError(
                f"run: {method} must be finished for seed {seed}, got a run that was cut off. "
                "Continue it with fedprior train --resume."
            )
        clients = setting.federation(self.config.data, seed=seed)[0]
        training = Study(self.config, Facts.of(clients)).training(method)
        return run(training, self.config, self.folder, seed, clients, resume=True)


def load(path: str | Path) -> TrainedRun:
    """The run in a folder that `fedprior train` wrote."""
    folder = Folder(Path(path))
    return TrainedRun(folder, folder.open())
