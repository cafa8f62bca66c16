"""The server's side of a run: its rounds, its folder, its end; it survives kills.

A round: reserve it on the ledger, draw its clients, ask them, collect until all have answered or
the deadline has passed, admit each client by itself, add, decode, update, save, commit. The state
is on disk before anybody sees it.
"""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import numpy as np

from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.core.files import make_folder, write_atomically, write_json
from fedprior.engines import cache
from fedprior.engines.round import scalars
from fedprior.exchange import checkpoint, server
from fedprior.exchange.agreement import Agreement
from fedprior.privacy.ledger import Ledger
from fedprior.privacy.records import Head
from fedprior.reporting import ledgers, model_file, released
from fedprior.reporting.config import Config
from fedprior.reporting.finished import End
from fedprior.reporting.folder import Folder
from fedprior.reporting.record import append, scores_stay, shown_entry
from fedprior.reporting.run_ledger import open_ledger
from fedprior.reporting.summary import Scores, write_clients
from fedprior.reporting.train import summary_of
from fedprior.sites.answers import Nodes
from fedprior.sites.document import Document
from fedprior.sites.roster import Roster

_log = logging.getLogger("flwr")


class EveryoneFailed(RuntimeError):
    """No client of a clear round gave an answer that could be used."""


@dataclass
class Deployment:
    """The server's side of a run, in its folder."""

    folder: Folder
    config: Config
    document: Document
    agreement: Agreement
    nodes: Nodes
    ledger: Ledger | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    accepted: dict[int, int] = field(default_factory=dict)  # client -> last accepted round
    seconds: float = 0.0  # of the rounds that this process has played

    def __post_init__(self) -> None:
        cache.enable()
        self.state = self.agreement.initial_state()
        self.secrets = self.agreement.secrets()
        self.attendance = self.agreement.attendance()
        self.part = self.folder.part(self.document.method, self.document.seed)
        make_folder(self.part)
        self.quiet = self.agreement.secure  # of who took part: the log lands in a database

    def open(self, held: contextlib.ExitStack) -> None:
        """Open the ledger, and continue from the last checkpoint, where there is one."""
        terms, document = self.document.terms(self.agreement), self.document
        if terms is not None:
            place = (self.folder, document.method, document.seed, terms, self.config.privacy)
            number = self.agreement.num_clients
            self.ledger = held.enter_context(open_ledger("deploy", *place, num_clients=number))
        ledgers.check_heads(self.folder.path)
        file = self.part / "checkpoint.safetensors"
        if not file.is_file():
            return
        saved = checkpoint.read_checkpoint(file, identity=document.token)
        arrays = saved.tree(self._arrays())
        self.state, self.secrets = arrays["state"], arrays["secrets"]
        self.attendance.restore(arrays["participation"])
        self.attendance.paid = self.agreement.secure and self.agreement.rule is not None
        self.history = saved.facts["history"]
        self.accepted = {int(k): round for k, round in saved.facts["accepted"].items()}
        masks = {int(client): bytes.fromhex(key) for client, key in saved.facts["masks"].items()}
        self.nodes.masks |= masks
        if self.ledger is not None:
            self.ledger.verify(Head(**saved.facts["ledger"]))

    def _arrays(self) -> dict[str, Any]:
        parts = {"state": self.state, "secrets": self.secrets}
        return {**parts, "participation": self.attendance.arrays()}

    def save(self) -> None:
        """Write all that the next round, or a resumed run, begins with."""
        checkpoint.save_checkpoint(
            self.part / "checkpoint.safetensors",
            jax.device_get(self._arrays()),
            identity=self.document.token,
            round=len(self.history),
            history=self.history,
            accepted={str(client): round for client, round in self.accepted.items()},
            masks={str(client): key.hex() for client, key in self.nodes.masks.items()},
            ledger=None if self.ledger is None else asdict(self.ledger.head),
        )

    def play(self, join: float) -> None:
        """All rounds that are left, then the end."""
        rounds, ended_by = self.document.training.rounds, "rounds"
        self._gather(join)
        while len(self.history) < rounds:
            begun = time.monotonic()
            if not self.round(len(self.history)):
                ended_by = "budget"
                break
            self._progress(rounds, time.monotonic() - begun)
        self.finish(ended_by)

    def _gather(self, seconds: float, wanted: int | None = None) -> None:
        """Wait for `wanted` clients, by default for all, at most for `seconds`.

        Without any client there is nothing to charge for.
        """
        end = time.monotonic() + seconds
        wanted = len(self.nodes.roster.active) if wanted is None else wanted
        self._greet()
        while len(self.nodes.present) < wanted and time.monotonic() < end:
            time.sleep(0.2)
            self._greet()
        if not self.nodes.present:
            raise EveryoneFailed(
                f"no client is present after {seconds:g} s. See {self.part / 'faults.jsonl'}, and "
                "at the sites errors.log: has each accepted the agreement?"
            )

    def _greet(self) -> None:
        for reason in self.nodes.greet():
            self.fault(len(self.history), "a new node", reason)

    def round(self, number: int) -> bool:
        """One round; False where the budget ends."""
        source = self.document.token
        with_ledger = {"ledger": self.ledger, "source": source} if self.ledger else {}
        rule = {} if self.agreement.rule is None else {"attendance": self.attendance}
        self._gather(self.document.deadline, wanted=1)
        drawn = server.open_round(self.agreement, number, **with_ledger, **rule)  # type: ignore[arg-type]
        if drawn is None:
            return False
        if self.ledger is not None:
            write_json(self.part / "head.json", asdict(self.ledger.head))
        self._forget()
        turn = Turn(self, number, [int(client) for client in drawn])
        masked = isinstance(self.agreement.channel, DistributedGaussian)
        answered = turn.masked() if masked else turn.clear()
        self._note_answers(number, answered)
        self.accepted |= dict.fromkeys(answered, number)
        entry = {name: float(value) for name, value in scalars(self.state).items()}
        self.history.append({**entry, "clients": float(len(answered)), "left_out": 0.0})
        self.save()
        if self.ledger is not None:
            self.ledger.commit()
        return True

    def _forget(self) -> None:
        """Drop what is known of clients that have left for good."""
        roster = Roster.read(self.folder.path / "roster.json")
        self.nodes.roster = roster
        for name in roster.forgotten:
            self.accepted.pop(roster.numbers[name], None)

    def fault(self, round: int, who: str, reason: str) -> None:
        """Note a fault in the server's own files; in the log only where that tells nothing."""
        line = json.dumps({"round": round, "who": who, "reason": reason})
        with (self.part / "faults.jsonl").open("a") as file:
            file.write(f"{line}\n")
        if not self.quiet:
            _log.info("fedprior: round %s: %s: %s", round + 1, who, reason)

    def _note_answers(self, round: int, clients: list[int]) -> None:
        """Note who answered, for `debug` to repeat it; a round's last line counts.

        With secure noise nothing can be repeated, and who took part is a secret.
        """
        if not self.quiet:
            line = json.dumps({"round": round, "clients": clients})
            with (self.part / "answers.jsonl").open("a") as file:
                file.write(f"{line}\n")

    def _progress(self, rounds: int, seconds: float) -> None:
        progress: dict[str, Any] = {"round": len(self.history), "rounds": rounds}
        if not self.quiet:
            progress["seconds"] = round(seconds, 3)
            progress["answered"] = int(self.history[-1]["clients"])
            progress["present"] = len(self.nodes.present)
        write_json(self.folder.path / "progress.json", progress)
        self.seconds += seconds
        line: dict[str, Any] = {"method": self.document.method, "seed": self.document.seed}
        line |= {name: progress[name] for name in ("round", "rounds")}
        line |= {} if self.quiet else {"seconds": round(self.seconds, 3)}
        append(self.folder.progress, line | shown_entry(self.history[-1], self.config.privacy))
        _log.info("fedprior: %s", ", ".join(f"{name} {each}" for name, each in progress.items()))

    def finish(self, ended_by: Any) -> None:
        """Write the model and the summary, and let the sites make their own models."""
        document, folder, privacy = self.document, self.folder, self.config.privacy
        state, facts = jax.device_get(self.state), self._model_facts()
        file = folder.model(document.method, document.seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        model_file.write_state(file, state, **document.model_facts, **facts)
        scores = self._scores(state, facts)
        planned = document.training.rounds
        end = End.of(document.method, document.seed, self.history, planned, ended_by)
        lines = [
            {"method": document.method, "seed": document.seed, "round": number + 1}
            | shown_entry(entry, privacy)
            for number, entry in enumerate(self.history)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_atomically(folder.metrics, text.encode())
        known = {} if scores_stay(privacy) else _as_scores(scores, self.nodes.roster, document.seed)
        if known:
            names = np.array(list(self.nodes.roster.numbers), object)
            metric = document.training.metric
            write_clients(folder.clients, {document.seed: names}, known, {}, metric)
        summary = summary_of(self.config, folder, known, [end], document.training.metric)
        if privacy.score_epsilon and self.ledger is not None:
            summary["released_scores"] = [self._mean(scores)]
        write_atomically(folder.summary, json.dumps(summary, indent=2).encode())
        _log.info("fedprior: finished after %s rounds", len(self.history))

    def _model_facts(self) -> dict[str, Any]:
        """What a model's file says of the run, beside what was agreed on."""
        bill = self.folder.ledger(self.document.method, self.document.seed)
        guarantee = ledgers.guarantee(bill) if self.ledger else None
        return {"rounds": len(self.history), "guarantee": guarantee}

    def send_models(self, join: float) -> None:
        """Let the sites of a finished run make their models: one may have been away at its end."""
        self._gather(join)
        self._scores(jax.device_get(self.state), self._model_facts())

    def _scores(self, state: Any, facts: dict[str, Any]) -> dict[str, dict[str, float]]:
        """What the sites send of their scores: nothing, unless that was agreed or allowed."""
        found: dict[str, dict[str, float]] = {}
        everyone = {name: self.about(name) for name in self.nodes.present}
        asked = self.nodes.ask("finish", everyone, state, most=2**20, model=facts)
        for answer in asked:
            if answer.failed:
                self.fault(len(self.history), answer.who, answer.failed)
                continue
            for method in (self.document.method, "local"):
                found.setdefault(method, {}).update(answer.scores(method))
        return found

    def _mean(self, scores: dict[str, dict[str, float]]) -> dict[str, Any]:
        """The mean score with noise, charged to the ledger."""
        own, numbers = scores.get(self.document.method, {}), self.nodes.roster.numbers
        values = np.array([own.get(name, np.nan) for name in numbers])
        terms = released.terms(self.document.training, self.config.privacy)
        place = (self.folder, self.document.method, self.document.seed, terms, self.config.privacy)
        with open_ledger("deploy", *place, num_clients=len(values)) as ledger:
            privacy, source = self.config.privacy, f"{self.document.token} score"
            mean = released.charged_mean(
                self.agreement, privacy, ledger, source=source, scores=lambda: values
            )
        return {"method": self.document.method, "seed": self.document.seed, **mean}

    def about(self, name: str) -> dict[str, Any]:
        """What a client is told of itself with every request."""
        number = self.nodes.roster.numbers[name]
        return {"number": number, "accepted": self.accepted.get(number)}


@dataclass
class Turn:
    """One round from the draw to the next state."""

    run: Deployment
    number: int
    drawn: list[int]

    def __post_init__(self) -> None:
        names = {number: name for name, number in self.run.nodes.roster.numbers.items()}
        present = self.run.nodes.present
        self.asked = {
            names[client]: self.run.about(names[client])
            for client in self.drawn
            if names[client] in present
        }
        active = set(self.run.nodes.roster.active)
        self.awaited = sum(names[client] in active for client in self.drawn)

    def clear(self) -> list[int]:
        """Ask, admit, add and update; returns the clients whose messages are in the state."""
        run, uploads = self.run, dict[int, np.ndarray]()
        most = 4 * run.agreement.length
        for client, arrays in self._answers(most):
            try:
                uploads[client] = server.admit(run.agreement, arrays.get("upload"))
            except server.RefusedUpload as error:
                run.fault(self.number, self._name(client), f"RefusedUpload: {error}")
        if self.awaited and not uploads and not run.agreement.channel.private:
            raise EveryoneFailed(
                f"round {self.number + 1}: none of {self.awaited} clients gave an answer that "
                f"can be used. See {run.part / 'faults.jsonl'} and the sites' errors.log."
            )
        parts = (run.agreement, run.state, run.secrets, uploads, self.number)
        run.state, run.secrets = server.release_round(*parts)
        return sorted(uploads)

    def masked(self) -> list[int]:
        """The same with secure sums: two exchanges, of which the server sees the sum alone.

        A round without enough clients, or without enough of what takes off the masks, releases
        nothing. It has been charged.
        """
        from fedprior.privacy.masks import new_key, public_key
        from fedprior.sites.sums import Sum

        run, keys = self.run, self.run.nodes.masks
        # A client that has never been there is as absent as any other: nobody has its key.
        members = {k: keys.get(k) or public_key(new_key()) for k in self.drawn}
        summed = Sum(run.agreement, run.document.token, self.number, members)
        if len(self.asked) < summed.attempt.threshold:  # an upload for nothing is a turn, too
            return []
        most = 8 * run.agreement.length + 2 * (32 * len(members) + 64) * len(members)
        for client, arrays in self._answers(most, **summed.facts):
            self._note(client, summed.add(client, arrays))
        if not summed.enough:
            return []
        asked = {self._name(client): self.asked[self._name(client)] for client in summed.alive}
        second = {"alive": summed.alive, **summed.facts}
        sealed = self._sealed(summed)
        for client, arrays in self._answers(most, "unmask", asked, arrays=sealed, **second):
            self._note(client, summed.reveal(client, arrays))
        units = summed.recover()
        if units is None:
            return []
        parts = (run.agreement, run.state, run.secrets, units, self.number)
        run.state, run.secrets = server.release_sum(*parts)
        return summed.alive

    def _sealed(self, summed: Any) -> Any:
        """By node: what was sealed for each of its clients."""
        numbers = self.run.nodes.roster.numbers
        return lambda names: {
            "sealed": {str(numbers[name]): summed.for_client(numbers[name]) for name in names}
        }

    def _answers(
        self,
        most: int,
        do: str = "round",
        asked: dict[str, Any] | None = None,
        arrays: Any = None,
        **facts: Any,
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """(client, arrays) of what was answered; faults are noted."""
        run, nodes = self.run, self.run.nodes
        asked = self.asked if asked is None else asked
        sent = jax.device_get(run.state) if arrays is None else arrays
        numbers = nodes.roster.numbers
        for answer in nodes.ask(do, asked, sent, most=most, round=self.number, **facts):
            if answer.failed:
                run.fault(self.number, answer.who, answer.failed)
            for name, reason in answer.failed_clients.items():
                run.fault(self.number, name, reason)
            for number in answer.strangers(numbers):
                run.fault(self.number, answer.who, f"it answered for client {number}")
            yield from answer.by_client(numbers)

    def _note(self, client: int, fault: str | None) -> None:
        if fault:
            self.run.fault(self.number, self._name(client), fault)

    def _name(self, client: int) -> str:
        return next(n for n, k in self.run.nodes.roster.numbers.items() if k == client)


def _as_scores(found: dict[str, dict[str, float]], roster: Roster, seed: int) -> dict[str, Scores]:
    """Scores by method as the summary takes them; NaN for clients that keep theirs."""
    return {
        method: Scores({seed: np.array([own.get(name, np.nan) for name in roster.numbers])}, {})
        for method, own in found.items()
        if own
    }
