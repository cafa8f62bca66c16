"""A finished training in a run folder: its scores, its metrics, and how it ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core.plain import picked
from fedprior.core.tallies import in_order
from fedprior.data.federation import Federation
from fedprior.engines.metrics import Metrics, finite
from fedprior.engines.result import EndedBy, Result
from fedprior.engines.run import History
from fedprior.exchange import checkpoint
from fedprior.reporting.summary import Scores


@dataclass(frozen=True)
class End:
    """How one method's run for one seed ended: after `rounds` of the `planned` ones, and why.

    `trust` is that of a private run in its population (`learning.cautious`).
    """

    method: str
    seed: int
    rounds: int
    planned: int
    ended_by: EndedBy
    trust: float | None = None

    @classmethod
    def of(cls, method: str, seed: int, history: History, planned: int, ended_by: EndedBy) -> "End":
        """The end of a run with this history."""
        trust = history[-1].get("trust") if history else None
        return cls(method, seed, len(history), planned, ended_by, trust)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """One method's training for one seed, after its end.

    `metrics` is None where scores stay, and `released` the mean score that was released, if any.
    """

    history: History
    planned: int
    ended_by: EndedBy
    test: np.ndarray
    valid: np.ndarray
    metrics: Metrics | None
    evaluation: dict[str, Any]
    released: dict[str, Any] | None = None

    @classmethod
    def of(cls, result: Result, **noted: Any) -> "Finished":
        """The training of a result, and what was noted of it."""
        return cls(
            history=result.history,
            ended_by=result.ended_by,
            test=result.scores,
            valid=result.valid_scores,
            **noted,
        )

    def end(self, method: str, seed: int) -> End:
        """How it ended."""
        return End.of(method, seed, self.history, self.planned, self.ended_by)

    def add_to(self, scores: Scores, seed: int) -> None:
        """Note the scores of this seed."""
        scores.test[seed], scores.valid[seed] = self.test, self.valid
        if self.metrics is not None:
            scores.metrics[seed] = self.metrics

    def save(self, file: Path, *, identity: str) -> None:
        """Write it whole or not at all."""
        measured = {} if self.metrics is None else self.metrics.overall
        own = {} if self.metrics is None else self.metrics.clients
        checkpoint.save_checkpoint(
            file,
            {"test": self.test, "valid": self.valid, "metrics": dict(own)},
            identity=identity,
            **picked(self, "history", "planned", "ended_by", "released", "evaluation"),
            overall={name: finite(value) for name, value in measured.items()},
        )

    @classmethod
    def read(cls, file: Path, clients: Federation, *, identity: str) -> "Finished":
        """The training in a file."""
        saved = checkpoint.read_checkpoint(file, identity=identity)
        facts, empty = saved.facts, np.empty(clients.num_clients)
        noted = facts.get("overall", {}).items()
        overall = {name: np.nan if value is None else value for name, value in noted}
        like = {"test": empty, "valid": empty, "metrics": dict.fromkeys(overall, empty)}
        arrays = saved.tree(like)
        metrics = None
        if overall:
            own = in_order(arrays["metrics"])
            metrics = Metrics(names=clients.clients, clients=own, overall=in_order(overall))
        return cls(
            history=facts["history"],
            planned=facts.get("planned", len(facts["history"])),
            ended_by=facts.get("ended_by", "rounds"),
            test=arrays["test"],
            valid=arrays["valid"],
            metrics=metrics,
            evaluation=facts.get("evaluation", {}),
            released=facts.get("released"),
        )
