"""The ledger of a run's privacy budget, written before the budget is spent.

An append-only JSON Lines file beside the run; each line contains the hash of the previous line. A
chunk of rounds is reserved (the line is on disk), then run, then committed; a reservation without a
commit counts as spent. So nothing, not even a crash, can spend budget that is not recorded.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.core.files import sync_folder
from fedprior.privacy.accounting import check_delta, epsilon
from fedprior.privacy.events import RELATIONS, Event, Relation
from fedprior.privacy.guarantee import Noise
from fedprior.privacy.held import HeldFile
from fedprior.privacy.records import (
    FORMAT,
    NOTHING,
    digest,
    merged,
    parse,
    reservations,
    spent_rounds,
    split,
)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The meaning of a ledger's epsilon: delta, relation, view and kind of noise.

    `budget` is the epsilon that the run may spend; with None it is only recorded. If the number of
    clients is known, a delta of 1 / clients or more is refused unless `allow_delta`.
    """

    delta: float
    relation: Relation
    view: str
    noise: Noise
    unit: str = "client"
    budget: float | None = None
    allow_delta: bool = False

    def __post_init__(self) -> None:
        check_delta("Terms", self.delta)
        check.choice("Terms", "relation", self.relation, RELATIONS)
        check.choice("Terms", "noise", self.noise, ("simulated", "secure"))
        if self.budget is not None:
            check.positive("Terms", budget=self.budget)


@dataclass(frozen=True)
class Head:
    """The length of a ledger and the hash of its last line, as stored in a checkpoint."""

    lines: int
    hash: str


class Ledger:
    """An open ledger, to which only this process can write.

    >>> import tempfile
    >>> from fedprior.privacy.events import response
    >>> terms = Terms(delta=1e-6, relation="replace-one", view="local", noise="simulated", budget=1)
    >>> with Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl", terms) as ledger:
    ...     granted = ledger.reserve(response(0.3), first=0, rounds=5, source="a run")
    ...     ledger.commit()
    >>> granted, round(ledger.spent, 3)
    (3, 0.9)
    """

    def __init__(self, path: Path, terms: Terms) -> None:
        self.path, self.terms = Path(path), terms
        self._turn = RLock()  # of the process's threads: one counts and records, then the next
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = HeldFile(self.path)
        try:
            self._records = self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    @property
    def head(self) -> Head:
        """The current head, for a checkpoint."""
        return Head(len(self._records), self._records[-1]["hash"])

    @property
    def rounds(self) -> int:
        """The first round without a record."""
        return max((r["first"] + r["rounds"] for r in reservations(self._records)), default=0)

    @property
    def spent(self) -> float:
        """Epsilon of all reserved rounds."""
        return total(self._records, self.terms)

    def reserve(
        self, event: Event, *, first: int, rounds: int, source: str, draws: str | None = None
    ) -> int:
        """Reserve rounds from number `first` on; return how many of `rounds` may run.

        `source` identifies the run. With simulated noise, a round that was already recorded for the
        same event and source is the same release, to the bit, and costs nothing; with secure noise
        it is a new release. `draws` identifies the keys of simulated noise and cohorts: a round in
        which another release used the same keys is refused. 0 means that the budget is exhausted.
        """
        check.count("Ledger", least=0, first=first, rounds=rounds)
        with self._turn:
            return self._reserve(event, first, rounds, source, draws)

    def _reserve(
        self, event: Event, first: int, rounds: int, source: str, draws: str | None
    ) -> int:
        again = self._repeated(event, first, rounds, source)
        new, first = rounds - again, first + again
        self._check_draws(draws, first, new)
        granted, after = self._affordable(event, new)
        if new and not granted and not any(reservations(self._records)):
            check_budget(event, self.terms)
        if granted:
            self._append(
                kind="reserve",
                event=event.to_json(),
                first=first,
                rounds=granted,
                source=source,
                draws=draws,
                epsilon=after,
                noise=self.terms.noise,
            )
        return rounds - new + granted

    def commit(self) -> None:
        """Record that the reserved rounds have run."""
        with self._turn:
            if self._records[-1]["kind"] == "reserve":
                self._append(kind="commit")

    def verify(self, head: Head) -> None:
        """Raise unless the ledger begins with the lines that a checkpoint saw."""
        verify(self._records, head, self.path)

    def _repeated(self, event: Event, first: int, rounds: int, source: str) -> int:
        """The number of leading rounds that are already recorded for this event and source."""
        if self.terms.noise != "simulated":
            return 0
        known = {
            number
            for record in reservations(self._records)
            if record["event"] == event.to_json() and record["source"] == source
            for number in range(record["first"], record["first"] + record["rounds"])
        }
        asked = range(first, first + rounds)
        return next((place for place, number in enumerate(asked) if number not in known), rounds)

    def _check_draws(self, draws: str | None, first: int, rounds: int) -> None:
        """Refuse two releases with the same noise, whose difference may be free of noise."""
        for record in reservations(self._records):
            shared = draws is not None and record["draws"] == draws
            begin, end = record["first"], record["first"] + record["rounds"]
            if shared and begin < first + rounds and first < end:
                raise PrivacyError(
                    f"ledger: simulated noise of round {max(first, begin)} must be drawn "
                    f"for one release, got a second run with it in {self.path}. "
                    "Choose another seed or identity, or resume the first."
                )

    def _affordable(self, event: Event, rounds: int) -> tuple[int, float]:
        """The number of rounds that the budget allows, and epsilon after them."""
        before = spent_rounds(self._records)

        def after(count: int) -> float:
            spent = merged([*before, (event, count)])
            if sum(each.overflow * times for each, times in spent) >= self.terms.delta:
                return math.inf  # the chance of a cohort above its cap has used up delta
            return epsilon(spent, delta=self.terms.delta, relation=self.terms.relation)

        budget = math.inf if self.terms.budget is None else self.terms.budget
        if rounds == 0:
            return 0, 0.0
        whole = after(rounds)
        if whole <= budget:
            return rounds, whole
        low, high, spent = 0, rounds, 0.0
        while high - low > 1:
            middle = (low + high) // 2
            cost = after(middle)
            if cost <= budget:
                low, spent = middle, cost
            else:
                high = middle
        return low, spent

    def _append(self, **fields: Any) -> None:
        """One line, on disk when this returns."""
        previous = self._records[-1]["hash"] if self._records else NOTHING
        record = {"number": len(self._records), **fields, "previous": previous}
        record["hash"] = digest(record)
        self._file.append(json.dumps(record).encode())
        self._records.append(record)

    def _read(self) -> list[dict[str, Any]]:
        content = self._file.read()
        whole, torn = split(content)
        if torn:  # the machine stopped inside a write: what the line would allow never ran
            self._file.cut(len(content) - len(torn))
        elif whole == content and content:
            self._file.append(b"")  # the end of the last line
        self._records = records = parse(whole, self.path)
        terms = {**asdict(self.terms), "format": FORMAT}
        if not records:
            self._append(kind="open", **terms)
            sync_folder(self.path.parent)
            return self._records
        begun = _terms(records)
        if begun != {**begun, **asdict(self.terms), "budget": begun["budget"]}:
            raise PrivacyError(
                f"ledger: {self.path} must go on under the terms it was begun with ({begun}), got "
                f"{asdict(self.terms)}."
            )
        if begun["budget"] != self.terms.budget:
            self._append(kind="budget", budget=self.terms.budget)
        return self._records


def check_budget(event: Event, terms: Terms) -> None:
    """Raise if the budget does not cover a single round."""
    cost = epsilon([(event, 1)], delta=terms.delta, relation=terms.relation)
    if terms.budget is not None and cost > terms.budget:
        raise PrivacyError(
            f"ledger: budget must be at least what one round costs, epsilon {cost:.4g}, got "
            f"{terms.budget:g}. Raise the noise or the budget, or lower the sampling rate."
        )


def read(path: Path) -> tuple[Terms, list[dict[str, Any]]]:
    """Read and check the terms and records of a ledger; a torn last line is ignored."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"ledger: {path} must be a ledger, got no file there.")
    records = parse(split(path.read_bytes())[0], path)
    if not records:
        raise PrivacyError(f"ledger: {path} must begin with its terms, got no line.")
    fields = {name: value for name, value in _terms(records).items() if name != "format"}
    return Terms(**fields), records


def verify(records: list[dict[str, Any]], head: Head, path: Path) -> None:
    """Raise unless the records begin with those that a checkpoint saw."""
    known = records[: head.lines]
    if len(known) < head.lines or known[-1]["hash"] != head.hash:
        raise PrivacyError(
            f"ledger: {path} must hold the {head.lines} lines that the checkpoint saw, got "
            f"{len(records)} lines that differ. It was cut or replaced; the run cannot go on under "
            "its guarantee."
        )


def total(records: list[dict[str, Any]], terms: Terms) -> float:
    """Epsilon of all reserved rounds, recomputed from the events."""
    return epsilon(merged(spent_rounds(records)), delta=terms.delta, relation=terms.relation)


def _terms(records: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("delta", "relation", "view", "noise", "unit", "budget", "allow_delta")
    terms = {name: records[0].get(name) for name in names}
    for record in records:
        if record["kind"] == "budget":
            terms["budget"] = record["budget"]
    return terms
