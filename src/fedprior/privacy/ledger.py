"""The ledger: privacy loss, recorded before it is incurred.

An append-only file of JSON Lines. Each line carries the hash of the previous line. A chunk of
rounds is reserved (the line is on disk), then run, then committed; a reservation without a commit
counts as spent. No round can run unrecorded, not even if the process crashes.

A run has a ledger of its own. A population may have one, too, made by `begin_ledger`, which any
number of runs, estimates and regressions charge, from any number of processes.
"""

import secrets
import time
from dataclasses import asdict, replace
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.core.files import sync_folder
from fedprior.core.plain import picked
from fedprior.privacy import charging, fields, keys, opening
from fedprior.privacy.charging import Charge, Request, charges
from fedprior.privacy.events import Event
from fedprior.privacy.held import HeldFile
from fedprior.privacy.records import (
    Head,
    Record,
    begun,
    encoded,
    head,
    line,
    parse,
    reservations,
    split,
    verify,
)
from fedprior.privacy.terms import Terms, check_budget


class Ledger:
    """A ledger to be charged, by any number of processes and threads, which take turns.

    In a population's ledger, delta, relation and budget are those of the file. `who` names who is
    charged there, with `num_clients`. `key` is the file with the key of a ledger that has one.
    `purpose` is what a new ledger is for; with another one, it is refused. A ledger `within` a
    population's is charged together with it, and both budgets hold.

    >>> import tempfile
    >>> from fedprior.privacy.events import response
    >>> terms = Terms(delta=1e-6, relation="replace-one", view="local", noise="simulated", budget=1)
    >>> with Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl", terms) as ledger:
    ...     granted = ledger.reserve(response(0.3), first=0, rounds=5, source="a run")
    ...     ledger.commit()
    >>> granted, round(ledger.spent, 3)
    (3, 0.9)
    """

    def __init__(
        self,
        path: Path,
        terms: Terms,
        *,
        who: str = "",
        num_clients: int | None = None,
        key: Path | None = None,
        purpose: str = "",
        within: "Ledger | None" = None,
        existing: bool = False,
    ) -> None:
        check.choice("Ledger", "view", terms.view, fields.VIEWS)
        rule = "printable text of at most 200 characters"
        check.require(fields.printable(who), "Ledger", "who", rule, who)
        self.path, self.terms, self.within = Path(path), terms, within
        self._who, self._num_clients, self._purpose = who, num_clients, purpose
        self._key = None if key is None else keys.read(key)
        existing = existing or key is not None  # only `begin_ledger` makes a ledger with a key
        self._turn = RLock()  # threads take turns: one computes the cost and records it at a time
        self._records: list[Record] = []
        self._pending: list[int] = []  # lines of reservations that have not been committed
        self._length, self._open = 0, True
        if not existing:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = HeldFile(self.path, existing=existing)
        with self._turn, self._file.locked():
            self._read()
            self._file.sync()  # what a killed process wrote may not have been
            self._begin(existing)
        self._check_within()

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
        """Take no further charges."""
        self._open = False

    @property
    def head(self) -> Head:
        """The length and last hash as of the latest transaction, for the checkpoint."""
        return head(self._records)

    @property
    def rounds(self) -> int:
        """The first round after all recorded ones."""
        return max((r["first"] + r["rounds"] for r in reservations(self._records)), default=0)

    @property
    def spent(self) -> float:
        """Epsilon of all reserved rounds, as of the latest transaction."""
        return charging.total(self._records, self.terms)

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
        request = Request(
            event=event,
            first=first,
            rounds=rounds,
            source=source,
            noise=self.terms.noise,
            draws=draws,
            count=count,
        )
        with self._turn, self._file.locked():
            self._check_open()
            self._read()
            granted, found = self._affordable(request)
            if granted and self.within is not None:
                most = self.within.reserve(
                    event, first=first, rounds=granted, source=source, draws=draws, count=count
                )
                if most < granted:
                    granted, found = self._affordable(replace(request, rounds=most))
            self._pending += [self._record(request, charge) for charge in found]
            return granted

    def affords(self, event: Event, rounds: int, *, count: int | None = None) -> int:
        """Return how many of `rounds` new rounds the budget allows now; nothing is recorded."""
        request = Request(
            event=event,
            first=self.rounds,
            rounds=rounds,
            source="",
            noise=self.terms.noise,
            count=count,
        )
        with self._turn, self._file.locked():
            self._read()
            return charges(self._records, request, self.terms, self.path)[0]

    def begin(self, source: str, *, first: int, rounds: int) -> bool:
        """Record that rounds which are charged for begin; False if they may have begun before.

        One charge covers all rounds of noise that cannot be drawn again, but none of them twice:
        neither rounds that were lost, nor those that another copy of the run plays.
        """
        with self._turn, self._file.locked():
            self._check_open()
            self._read()
            within, new = self.within, begun(self._records, source) in (None, first)
            if new and (within is None or within.begin(source, first=first, rounds=rounds)):
                self._append(kind="begin", source=source, round=first + rounds)
                return True
            return False

    def commit(self) -> None:
        """Record that the reserved rounds have run."""
        with self._turn, self._file.locked():
            self._check_open()
            self._read()
            if self._pending:
                self._append(kind="commit", reserves=self._pending)
                self._pending = []
        if self.within is not None:
            self.within.commit()

    def verify(self, head: Head) -> None:
        """Raise PrivacyError unless the ledger contains the lines that a checkpoint recorded."""
        verify(self._records, head, self.path)

    def _affordable(self, request: Request) -> tuple[int, list[Charge]]:
        granted, found = charges(self._records, request, self.terms, self.path)
        if request.rounds and not granted and not any(reservations(self._records)):
            check_budget(request.event, self.terms, count=request.count or 1)
        return granted, found

    def _record(self, request: Request, charge: Charge) -> int:
        """Append a reservation and return the number of its line."""
        self._append(
            kind="reserve",
            id=secrets.token_hex(16),  # a copy that is charged alike gets another hash
            event=request.event.to_json(),
            **asdict(charge),
            source=request.source,
            draws=request.draws,
            view=self.terms.view,
            noise=self.terms.noise,
            who=self._who,
            clients=self._num_clients,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            within=None if self.within is None else asdict(self.within.head),
        )
        return len(self._records) - 1

    def _append(self, **values: Any) -> None:
        """Append one line and sync it to disk."""
        record = line(values, self._records, self._key)
        written = encoded(record)
        try:
            self._file.append(written)
        except OSError:
            self._open = False  # what is on disk is unknown; the next to open the file reads it
            raise
        self._records.append(record)
        self._length += len(written) + 1

    def _read(self) -> None:
        """Read and verify what others have appended since the latest transaction."""
        content = self._file.read(self._length)
        lines, torn = split(content)
        self._records = parse(lines, self.path, key=self._key, after=self._records)
        self._length += sum(len(text) + 1 for text in lines)
        if torn:  # the machine stopped during a write: the rounds of this line never ran
            self._file.cut(self._length)
        elif content and not content.endswith(b"\n"):
            self._file.append(b"")  # terminates the last line

    def _begin(self, existing: bool) -> None:
        """Write the terms of a new ledger; take those of a population; compare those of a run."""
        if not self._records:
            if existing:
                raise PrivacyError(f"ledger: {self.path} is empty; a ledger begins with its terms.")
            self._append(**opening.first_line(self.terms, purpose=self._purpose))
            sync_folder(self.path.parent)
            return
        if self._records[0]["shared"]:
            self.terms = opening.adopted(self.terms, self._records[0], self.path)
            return
        original = opening.stated(self._records)
        mine = picked(self.terms, *original)
        if original != {**mine, "budget": original["budget"]}:
            raise PrivacyError(
                f"ledger: {self.path} must continue under its original terms ({original}), got "
                f"{mine}."
            )
        begun = self._records[0]["purpose"]
        if begun != self._purpose:
            raise PrivacyError(
                f"ledger: {self.path} was begun for another configuration ({begun}, not "
                f"{self._purpose}). Resume without changes; what was spent still counts."
            )
        if original["budget"] != self.terms.budget:
            self._append(kind="budget", budget=self.terms.budget)

    def _check_within(self) -> None:
        """The population's ledger must still have what this one was charged together with."""
        heads = [record["within"] for record in reservations(self._records) if record["within"]]
        if not heads:
            return
        if self.within is None:
            raise PrivacyError(
                f"ledger: {self.path} was charged together with a population's ledger and must "
                "continue with it."
            )
        verify(self.within._records, Head(**heads[-1]), self.within.path, str(self.path))

    def _check_open(self) -> None:
        if not self._open:
            raise PrivacyError(
                f"ledger: {self.path} was closed or could not be written. Open it again to charge "
                "it."
            )
