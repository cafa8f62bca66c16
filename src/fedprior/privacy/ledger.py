"""The ledger: a run's privacy loss, recorded before it is incurred.

An append-only file of JSON Lines in the run folder. Each line carries the hash of the previous
line. A chunk of rounds is reserved (the line is on disk), then run, then committed; a reservation
without a commit counts as spent. No round can run unrecorded, not even if the process crashes.
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
from fedprior.privacy.accounting import epsilon
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
    """The meaning of a ledger's epsilon: delta, neighbor relation, view, kind of noise, unit.

    `budget` is the epsilon that the run may spend; with None, rounds are only recorded. A delta of
    1 / clients or more is refused, if the number of clients is known, unless `allow_delta`; with
    delta = 0 the ledger takes randomized responses only.
    """

    delta: float
    relation: Relation
    view: str
    noise: Noise
    unit: str = "client"
    budget: float | None = None
    allow_delta: bool = False

    def __post_init__(self) -> None:
        check.share("Terms", delta=self.delta)
        check.choice("Terms", "relation", self.relation, RELATIONS)
        check.choice("Terms", "noise", self.noise, ("simulated", "secure"))
        if self.budget is not None:
            check.positive("Terms", budget=self.budget)


@dataclass(frozen=True)
class Head:
    """The length of a ledger and the hash of its last line, as recorded in checkpoints."""

    lines: int
    hash: str


class Ledger:
    """An open ledger, to which no other process can write while it is open.

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
        self._turn = RLock()  # threads take turns: one computes the cost and records it at a time
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
        """The current length and last hash, for the checkpoint."""
        return Head(len(self._records), self._records[-1]["hash"])

    @property
    def rounds(self) -> int:
        """The first round after all recorded ones."""
        return max((r["first"] + r["rounds"] for r in reservations(self._records)), default=0)

    @property
    def spent(self) -> float:
        """Epsilon of all reserved rounds."""
        return total(self._records, self.terms)

    def reserve(
        self,
        event: Event,
        *,
        first: int,
        rounds: int,
        source: str,
        draws: str | None = None,
        count: int | None = None,
    ) -> int:
        """Record and return how many of the rounds `first`, ..., `first + rounds - 1` may run.

        The result is 0 if the budget is used up. `source` identifies the run. With simulated noise,
        a round that is already on record for the same event and source is bit-for-bit the same
        release and costs nothing; with secure noise it is a new release. `draws` identifies the
        keys of the simulated noise and cohorts; a round is refused if another release used them.

        `count` is how many times the event is composed, if that is not once per round: a mechanism
        whose noise is correlated over rounds is one event for all of them. Such rounds are granted
        together or not at all.
        """
        check.count("Ledger", least=0, first=first, rounds=rounds)
        if count is not None:
            check.count("Ledger", count=count)
        with self._turn:
            return self._reserve(event, first, rounds, source, draws, count)

    def _reserve(
        self,
        event: Event,
        first: int,
        rounds: int,
        source: str,
        draws: str | None,
        count: int | None,
    ) -> int:
        known = self._known(event, source)
        at, end = first, first + rounds
        while at < end:
            if at in known:
                at += 1
                continue
            stop = next((number for number in range(at, end) if number in known), end)
            if count is not None:  # one release, of which a part cannot be charged by itself
                at, stop = first, end
            granted = self._charge(event, at, stop - at, source, draws, count)
            at += granted
            if at < stop:
                break
        return at - first

    def _charge(
        self,
        event: Event,
        first: int,
        rounds: int,
        source: str,
        draws: str | None,
        count: int | None,
    ) -> int:
        """Record as many of these rounds, none of them a replay, as the budget allows."""
        self._check_draws(draws, first, rounds)
        times, after = self._affordable(event, rounds if count is None else count)
        granted = times if count is None else rounds * (times == count)
        if not granted:
            if not any(reservations(self._records)):
                check_budget(event, self.terms, count=count or 1)
            return 0
        self._append(
            kind="reserve",
            event=event.to_json(),
            first=first,
            rounds=granted,
            count=times,
            source=source,
            draws=draws,
            epsilon=after,
            noise=self.terms.noise,
        )
        return granted

    def commit(self) -> None:
        """Record that the reserved rounds have run."""
        with self._turn:
            if self._records[-1]["kind"] == "reserve":
                self._append(kind="commit")

    def verify(self, head: Head) -> None:
        """Raise PrivacyError unless the ledger contains the lines that a checkpoint recorded."""
        verify(self._records, head, self.path)

    def _known(self, event: Event, source: str) -> set[int]:
        """The rounds that are on record for this event and source and that may be repeated."""
        if self.terms.noise != "simulated":
            return set()
        return {
            number
            for record in reservations(self._records)
            if record["event"] == event.to_json() and record["source"] == source
            for number in range(record["first"], record["first"] + record["rounds"])
        }

    def _check_draws(self, draws: str | None, first: int, rounds: int) -> None:
        """Refuse a second release with the same noise: their difference may contain none."""
        for record in reservations(self._records):
            shared = draws is not None and record["draws"] == draws
            begin, end = record["first"], record["first"] + record["rounds"]
            if shared and begin < first + rounds and first < end:
                raise PrivacyError(
                    f"ledger: the simulated noise of round {max(first, begin)} was already used "
                    f"by another run in {self.path}. Choose another seed or identity, or resume "
                    "that run."
                )

    def _affordable(self, event: Event, rounds: int) -> tuple[int, float]:
        """The number of rounds that the budget allows, and epsilon after them."""
        before = spent_rounds(self._records)

        def after(count: int) -> float:
            spent = merged([*before, (event, count)])
            lost = sum(event.overflow * rounds for event, rounds in spent)
            if lost and lost >= self.terms.delta:
                return math.inf  # the probability of a cohort above its cap has used up delta
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
        """Append one line and sync it to disk."""
        previous = self._records[-1]["hash"] if self._records else NOTHING
        record = {"number": len(self._records), **fields, "previous": previous}
        record["hash"] = digest(record)
        self._file.append(json.dumps(record).encode())
        self._records.append(record)

    def _read(self) -> list[dict[str, Any]]:
        content = self._file.read()
        whole, torn = split(content)
        if torn:  # the machine stopped during a write: the rounds of this line never ran
            self._file.cut(len(content) - len(torn))
        elif whole == content and content:
            self._file.append(b"")  # terminates the last line
        self._records = records = parse(whole, self.path)
        terms = {**asdict(self.terms), "format": FORMAT}
        if not records:
            self._append(kind="open", **terms)
            sync_folder(self.path.parent)
            return self._records
        original = _terms(records)
        if original != {**original, **asdict(self.terms), "budget": original["budget"]}:
            raise PrivacyError(
                f"ledger: {self.path} must continue under its original terms ({original}), got "
                f"{asdict(self.terms)}."
            )
        if original["budget"] != self.terms.budget:
            self._append(kind="budget", budget=self.terms.budget)
        return self._records


def check_budget(event: Event, terms: Terms, *, count: int = 1) -> None:
    """Raise PrivacyError if the budget does not cover the event, composed `count` times, once."""
    cost = epsilon([(event, count)], delta=terms.delta, relation=terms.relation)
    if terms.budget is not None and cost > terms.budget:
        what = "one round" if count == 1 else f"{count} events"
        raise PrivacyError(
            f"ledger: budget must cover the cost of {what} (epsilon {cost:.4g}), got "
            f"{terms.budget:g}. Raise the noise or the budget, or lower the sampling rate."
        )


def read(path: Path) -> tuple[Terms, list[dict[str, Any]]]:
    """Return the terms and the verified lines of a ledger, without an incomplete last line."""
    path = Path(path)
    check.expect(path.exists(), "ledger", f"{path} does not exist.")
    records = parse(split(path.read_bytes())[0], path)
    if not records:
        raise PrivacyError(f"ledger: {path} is empty; a ledger begins with its terms.")
    fields = {name: value for name, value in _terms(records).items() if name != "format"}
    return Terms(**fields), records


def verify(records: list[dict[str, Any]], head: Head, path: Path) -> None:
    """Raise PrivacyError unless the lines begin with those that a checkpoint recorded."""
    known = records[: head.lines]
    if len(known) < head.lines or known[-1]["hash"] != head.hash:
        raise PrivacyError(
            f"ledger: {path} has {len(records)} lines that do not begin with the {head.lines} "
            "lines recorded in the checkpoint. It was truncated or replaced; the run cannot "
            "continue under its guarantee."
        )


def total(records: list[dict[str, Any]], terms: Terms) -> float:
    """Recompute epsilon of all reserved rounds from their events."""
    return epsilon(merged(spent_rounds(records)), delta=terms.delta, relation=terms.relation)


def _terms(records: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("delta", "relation", "view", "noise", "unit", "budget", "allow_delta")
    terms = {name: records[0].get(name) for name in names}
    for record in records:
        if record["kind"] == "budget":
            terms["budget"] = record["budget"]
    return terms
