"""The common part of the engines: a run's agreement, data, cohorts, history and checkpoints."""

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import PyTree
from fedprior.core.files import read_json, write_json
from fedprior.core.protocols import is_private
from fedprior.core.scores import OWN, Metric
from fedprior.data.federation import Federation
from fedprior.engines import source as sources
from fedprior.engines.mesh import ONE, Mesh
from fedprior.exchange import checkpoint
from fedprior.exchange.agreement import Agreement
from fedprior.exchange.checkpoint import fingerprint
from fedprior.exchange.facts import check_public
from fedprior.exchange.server import check_ledger, reserve
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.participation import Attendance
from fedprior.privacy.records import Head

History = list[dict[str, float]]
_OWNER = "simulate"
_STEPS = 32  # slots of a shard are a multiple of this part of its share of a cohort


@dataclass(frozen=True, kw_only=True)
class Saving:
    """The folder and the interval (in rounds) for saving a run, and whether to resume it.

    `identity` is any JSON value that identifies what affects the results but is not visible in the
    arguments, such as the rates of an algorithm; resuming with a different one is refused. The
    noise and cohorts of a private run are keyed by it, so runs with different identities have
    independent draws.
    """

    folder: Path
    every: int = 100
    resume: bool = False
    identity: Any = ""

    def __post_init__(self) -> None:
        check.count("Saving", every=self.every)

    @property
    def file(self) -> Path:
        return Path(self.folder) / "checkpoint.safetensors"

    @property
    def token(self) -> Path:
        """The file with the random token by which a ledger recognizes the run."""
        return Path(self.folder) / "token"

    @property
    def head(self) -> Path:
        """The file with the ledger's head, from before the first round that it recorded."""
        return Path(self.folder) / "head.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """The checked arguments of a simulation."""

    agreement: Agreement
    federation: Federation
    rounds: int
    saving: Saving | None = None
    ledger: Ledger | None = None
    store: str = "device"
    metric: Metric = OWN
    mesh: Mesh = ONE

    def __post_init__(self) -> None:
        check.count(_OWNER, least=0, rounds=self.rounds)
        channel = self.agreement.channel
        if self.agreement.secure and self.mesh.devices:
            raise check.PrivacyError(
                f"{_OWNER}: devices must be 1, in one process, with secure noise, got "
                f"{self.mesh.shards} in {self.mesh.processes}. Its exact sum and its noise are "
                "formed in one place."
            )
        if self.agreement.secure and is_private(channel) and channel.view != "central":
            raise check.PrivacyError(
                f"{_OWNER}: a {channel.view} channel must have simulated noise, got {channel!r}. "
                "Its secure noise is drawn on the client: call exchange.client.take_part there."
            )
        if channel.private:
            check_public(self.federation)
        bound, stated = self.federation.most_samples, self.agreement.facts.most_samples
        if channel.private and stated != bound:
            raise check.PrivacyError(
                f"{_OWNER}: most_samples of a private run must be the federation's public bound, "
                f"{bound}, got {stated}. Use Agreement.of, or Facts.of(federation, private=True)."
            )
        check_ledger(self.agreement, self.ledger)
        rule = self.agreement.rule
        if rule is not None and self.rounds > rule.rounds:
            raise check.PrivacyError(
                f"{_OWNER}: rounds must be at most {rule.rounds}, for which the channel's noise "
                f"was planned, got {self.rounds}. Start a new run with another participation."
            )

    @property
    def num_clients(self) -> int:
        return self.federation.num_clients

    def cohorts(self, first: int, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids (length, slots) and presence for `count` rounds starting with `first`.

        There are `width` slots on each shard, for the clients that live there.
        """
        rounds = range(first, first + count)
        draw = self.attendance.checked(self.agreement.draw)
        capacity = self.mesh.shards * self.width
        return stack(
            draw,
            rounds,
            capacity=capacity,
            length=length,
            slots=partial(self.mesh.slots, width=self.width),
        )

    @cached_property
    def width(self) -> int:
        """Slots of a cohort on each shard: as many as any of the planned rounds needs, or a few
        more, so that other seeds need no other program.
        """
        agreement, mesh = self.agreement, self.mesh
        if not mesh.devices:
            return agreement.capacity
        most = max((mesh.most(agreement.draw(number)) for number in range(self.rounds)), default=1)
        step = max(1, agreement.capacity // (_STEPS * mesh.shards))
        return min(-(-max(1, most) // step) * step, mesh.num_rows(self.num_clients))

    @cached_property
    def attendance(self) -> Attendance:
        """Who took part so far, where the channel has a rule for it."""
        return self.agreement.attendance()

    @cached_property
    def identity(self) -> str:
        """A hash of everything that determines the results of this run, for its checkpoints."""
        parts = [self.agreement.fingerprint, self.store, len(self.federation.train.x)]
        parts += [] if self.metric is OWN else [self.metric.name]  # which decides when a run ends
        return fingerprint([*parts, *(self._shape if self.mesh.devices else ())])

    @property
    def _shape(self) -> list[int]:
        """What the order of a sum depends on: how many shards there are, in how many processes."""
        return [self.mesh.shards, self.mesh.processes]

    @cached_property
    def source(self) -> str:
        """The name under which a ledger records the releases of this run.

        Only the run that started in a folder can repeat a round there without a new charge, with
        the same program and the same data; any other run is a new one.
        """
        if self.saving is None:
            return secrets.token_hex(16)
        parts = [self.identity, sources.token(self.saving.token, resume=self.saving.resume)]
        if not self.agreement.secure:  # which cannot be repeated
            parts += [
                sources.program(self.agreement),
                sources.content(self.federation.train),
            ]
        return fingerprint(parts)

    def reserve(self, first: int, count: int) -> int:
        """Return how many of the next `count` rounds may run, after recording them.

        The run's folder knows the ledger's head before a round runs. A ledger that is emptied or
        cut later does not look like a new one.
        """
        return self.mesh.agree(self._reserved(first, count))

    def _reserved(self, first: int, count: int) -> int:
        if self.ledger is None or not self.mesh.lead:
            return count
        granted = reserve(
            self.agreement,
            self.ledger,
            self.attendance,
            first=first,
            rounds=count,
            source=self.source,
        )
        if granted and self.saving is not None:
            write_json(self.saving.head, asdict(self.ledger.head))
        return granted

    @property
    def unrepeatable(self) -> bool:
        """Whether rounds depend on each other by noise that cannot be drawn again."""
        return self.agreement.secure and self.agreement.rule is not None

    def save(self, history: History, arrays: PyTree, secrets: PyTree, **facts: Any) -> None:
        """Save a checkpoint after len(history) rounds, with the channel's `secrets`.

        Of several processes, process 0 does.
        """
        assert self.saving is not None
        if not self.mesh.lead:
            return
        names = sorted({name for entry in history for name in entry})
        columns = {name: np.array([entry.get(name, np.nan) for entry in history]) for name in names}
        checkpoint.save_checkpoint(
            self.saving.file,
            {**arrays, **self._kept(secrets), "history": columns},
            identity=self.identity,
            round=len(history),
            columns=names,
            mesh=self._shape,
            ledger=asdict(self.ledger.head) if self.ledger else None,
            **facts,
        )

    def _kept(self, secrets: PyTree) -> dict[str, PyTree]:
        """What a checkpoint keeps for the channel; nothing if its rounds are independent."""
        if self.agreement.rule is None:
            return {}
        return {"secrets": secrets, "participation": self.attendance.arrays()}

    def resume(
        self, like: PyTree, secrets: PyTree
    ) -> tuple[PyTree, History, dict[str, Any]] | None:
        """Return (arrays, history, facts) of the last checkpoint, or None for a new run."""
        if self.saving is None or not self.saving.resume:
            return None
        if self.saving.head.exists():
            self._check_ledger(read_json(self.saving.head))
        if not self.saving.file.exists():
            return None
        saved = checkpoint.read_checkpoint(self.saving.file)
        facts = saved.facts
        self._check_mesh(*facts.get("mesh", [1, 1]))
        checkpoint.check_identity(self.saving.file, saved, self.identity)
        self._check_ledger(facts.get("ledger"))
        columns = dict.fromkeys(facts["columns"], np.empty(facts["round"]))
        arrays = saved.tree({**like, **self._kept(secrets), "history": columns})
        self.attendance.restore(arrays.pop("participation", {}))
        arrays.setdefault("secrets", secrets)
        self.attendance.paid = self.unrepeatable  # if it has begun no further round: see reserve
        values = arrays.pop("history")
        history = [
            {name: float(values[name][r]) for name in values if not np.isnan(values[name][r])}
            for r in range(facts["round"])
        ]
        return arrays, history, facts

    def _check_mesh(self, shards: int, processes: int) -> None:
        """Raise unless the run goes on with as many devices as it began with."""
        if [shards, processes] != self._shape:
            raise ValueError(
                f"{_OWNER}: a run must be resumed on as many devices as it began with, {shards} in "
                f"{processes} process{'es' if processes > 1 else ''}, got {self._shape[0]} in "
                f"{self._shape[1]}. Sums are formed in another order there; start a new run."
            )

    def _check_ledger(self, recorded: dict[str, Any] | None) -> None:
        """Raise unless the run goes on with the ledger, or without one, as it began."""
        if not self.mesh.lead:  # process 0 has it
            return
        if (recorded is None) != (self.ledger is None):
            raise check.PrivacyError(
                f"{_OWNER}: a run that started {'with' if recorded else 'without'} a ledger must "
                "be resumed in the same way."
            )
        if self.ledger is not None and recorded is not None:
            self.ledger.verify(Head(**recorded))


def stack(
    draw: Callable[[int], np.ndarray],
    rounds: range,
    *,
    capacity: int,
    length: int,
    slots: Callable[[np.ndarray], np.ndarray] = ONE.slots,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids (length, capacity) and presence of the cohorts of at most `length` `rounds`.

    `slots` gives the places of the clients of a cohort.
    """
    clients = np.zeros((length, capacity), np.int32)
    present = np.zeros((length, capacity), bool)
    for place, round in enumerate(rounds):
        drawn = draw(round)
        seats = slots(drawn)
        clients[place, seats] = drawn
        present[place, seats] = True
    return clients, present
