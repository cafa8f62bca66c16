"""What the engines share: checked arguments, cohorts, the history and its checkpoints."""

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Key, Memory, PyTree, State
from fedprior.core.protocols import Channel, Cohort
from fedprior.data.federation import Federation
from fedprior.engines import source as sources
from fedprior.exchange import checkpoint
from fedprior.privacy import secure
from fedprior.privacy.cohort import Everyone
from fedprior.privacy.events import Event
from fedprior.privacy.ledger import Head, Ledger, Terms
from fedprior.privacy.plan import check_delta_below

History = list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """Where and how often (in rounds) a run is saved, and whether it goes on from there.

    `identity` is any JSON value that names what decides the run's bits and its arguments do not
    show, such as an algorithm's rates; resuming with another one is refused. It also keys noise and
    cohorts of a private run, which those of another identity are independent of.
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
        """Names the run that was begun here, for its ledger."""
        return Path(self.folder) / "token"


def check_fits(algorithm: Algorithm, channel: Channel, owner: str = "simulate") -> None:
    """Refuses a channel that what the algorithm sends, or its server, does not bear."""
    got = "a private one" if channel.private else repr(channel)
    if channel.private and not algorithm.unit_weight:
        raise check.PrivacyError(
            f"{owner}: weight must be 'uniform' under a private channel, got another for "
            f"{algorithm.name}. A weight that depends on the data would pass the clip."
        )
    if algorithm.pools == "gather" and not isinstance(channel, Identity):
        kind = check.PrivacyError if channel.private else ValueError
        raise kind(
            f"{owner}: channel must be Identity() for {algorithm.name}, got {got}. The "
            "method needs every message by itself, to the bit."
        )
    if channel.private and not algorithm.bears_noise:
        raise check.PrivacyError(
            f"{owner}: channel must be clear for {algorithm.name} as it is set, got {got}. "
            "It inverts what noise would spoil: take curvature='diagonal'."
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A simulation's arguments, checked once."""

    algorithm: Algorithm
    federation: Federation
    rounds: int
    seed: int = 0
    cohort: Cohort = field(default_factory=Everyone)
    channel: Channel = field(default_factory=Identity)
    saving: Saving | None = None
    ledger: Ledger | None = None
    store: str = "device"

    def __post_init__(self) -> None:
        owner = "simulate"
        check.count(owner, least=0, rounds=self.rounds)
        check.seed(owner, self.seed)
        known = self.algorithm.num_clients
        rule = f"a federation of {known} clients for {self.algorithm.name}"
        fits = known is None or known == self.num_clients
        check.require(fits, owner, "federation", rule, self.num_clients)
        capacity = self.cohort.capacity(self.num_clients)  # refuses one larger than the federation
        if self.secure:
            secure.check_cohort_size(capacity)  # before anything is recorded as spent
        if not getattr(self.channel, "weighted", True):
            raise ValueError(
                f"{owner}: channel must let the weight through, got {self.channel!r}. "
                "Say weighted=True: a message's weight is its last coordinate."
            )
        check_fits(self.algorithm, self.channel)
        hides = self.channel.private and getattr(self.cohort, "amplifies", False)
        if hides and not self.algorithm.memoryless:
            raise check.PrivacyError(
                f"{owner}: cohort must claim no amplification for {self.algorithm.name}, got "
                f"{self.cohort!r}. Its messages tell of earlier rounds: use Poisson sampling."
            )
        if self.ledger is not None:
            self._check_ledger(self.ledger.terms)
        elif self.secure:
            raise check.PrivacyError(
                "simulate: secure noise must be recorded, got no ledger. Give simulate a Ledger."
            )

    def _check_ledger(self, terms: Terms) -> None:
        """A ledger records a private channel, under the view that the channel protects from."""
        check_delta_below(terms.delta, self.num_clients, allowed=terms.allow_delta)
        if not self.channel.private:
            raise check.PrivacyError(
                f"simulate: channel must be private for a ledger, got {self.channel!r}."
            )
        view = getattr(self.channel, "view", None)
        if terms.view != view:
            raise check.PrivacyError(
                f"simulate: ledger's view must be the channel's, {view}, got {terms.view}."
            )
        if view == "local" and terms.relation != "replace-one":
            raise check.PrivacyError(
                "simulate: relation must be replace-one for a local channel, got "
                f"{terms.relation}. A message that is seen tells that its client is there."
            )
        if terms.noise != ("secure" if self.secure else "simulated"):
            raise check.PrivacyError(
                f"simulate: ledger's noise must be the channel's, got {terms.noise}."
            )

    @cached_property
    def event(self) -> Event:
        """What one round costs: the channel's event, under the sampler that draws its cohorts."""
        message, _ = jax.eval_shape(self.algorithm.local, *self.shapes(), *self._inputs())
        event: Event = self.channel.event(tree.size(message.value))  # type: ignore[attr-defined]
        central = self.channel.view == "central"  # type: ignore[attr-defined]
        return self.cohort.amplify(event, self.num_clients) if central else event

    @property
    def num_clients(self) -> int:
        return self.federation.num_clients

    @property
    def secure(self) -> bool:
        """Whether noise and cohorts come from the operating system, never the same again."""
        return getattr(self.channel, "noise", "simulated") == "secure"

    @property
    def expected_size(self) -> float:
        return self.cohort.expected_size(self.num_clients)

    @cached_property
    def own(self) -> str:
        """Names what keys a private run's noise and cohorts beside its seed."""
        identity = self.saving.identity if self.saving else ""
        return checkpoint.fingerprint([self.algorithm.name, self.channel, self.cohort, identity])

    @property
    def draws(self) -> str | None:
        """Names a run's noise and cohorts on its ledger; secure ones are nobody else's."""
        return None if self.secure else f"{self.own}-{self.seed}"

    def root(self) -> Key:
        return random.root(self.seed)

    def channel_root(self, root: Key | None = None) -> Key:
        """The key of what the channel draws, from the run's root (or another seed's).

        In the clear, methods of one seed have it in common, for a paired comparison. A private run
        has its own: what is composed must be drawn apart, or the difference of two releases would
        be free of noise.
        """
        root = self.root() if root is None else root
        if not self.channel.private:
            return root
        words = np.frombuffer(bytes.fromhex(self.own), ">u4")
        return random.fold(root, "channel", *(np.uint32(word) for word in words))

    def draw(self, round: int) -> np.ndarray:
        """Who takes part in a round; keyed like the channel, and secret with secure noise.

        Sampling amplifies only against somebody who cannot know the draw.
        """
        seed = self.seed
        if self.secure:
            seed = secrets.randbits(128)
        elif self.channel.private:
            seed += int(self.own, 16) << 31  # above every seed
        return np.asarray(self.cohort.draw(seed, round, self.num_clients))

    def initial_state(self) -> State:
        return jax.jit(self.algorithm.init)(random.fold(self.root(), "init"))

    def shapes(self) -> tuple[State, Memory]:
        """Shapes of the state and of one client's memory."""
        state = jax.eval_shape(lambda: self.algorithm.init(random.root(0)))
        client = jnp.zeros((), jnp.int32)
        memory = jax.eval_shape(lambda s: self.algorithm.enroll(s, client, random.root(0)), state)
        return state, memory

    def _inputs(self) -> tuple[PyTree, Key]:
        """Shapes of one client's data and of a key."""
        data = jax.eval_shape(lambda: self.federation.train.client(0))
        return data, jax.eval_shape(lambda: random.root(0))

    def cohorts(self, first: int, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids (length, capacity) and presence of the cohorts of `count` rounds from `first`."""
        capacity = self.cohort.capacity(self.num_clients)
        return stack(self.draw, range(first, first + count), capacity=capacity, length=length)

    @cached_property
    def identity(self) -> str:
        """Names what decides the bits of this run, for its checkpoints."""
        assert self.saving is not None
        federation = [self.federation.name, self.num_clients, list(self.federation.train.x.shape)]
        parts = [self.algorithm.name, self.cohort, self.channel, self.seed, self.store, federation]
        return checkpoint.fingerprint([self.saving.identity, *parts])

    @cached_property
    def source(self) -> str:
        """Names what releases the rounds of a ledger: the same bits again, or nobody twice.

        Only the run that was begun in a folder may repeat a round there, with the program and the
        data that it had; every other one is new.
        """
        if self.saving is None:
            return secrets.token_hex(16)
        parts = [self.identity, sources.token(self.saving.token, resume=self.saving.resume)]
        if not self.secure:  # which repeats nothing
            shapes = (*self.shapes(), *self._inputs())
            parts += [
                sources.program(self.algorithm, *shapes),
                sources.content(self.federation.train),
            ]
        return checkpoint.fingerprint(parts)

    def save(self, history: History, arrays: PyTree, **facts: Any) -> None:
        """A checkpoint after len(history) rounds."""
        assert self.saving is not None
        names = sorted({name for entry in history for name in entry})
        columns = {name: np.array([entry.get(name, np.nan) for entry in history]) for name in names}
        checkpoint.save_checkpoint(
            self.saving.file,
            {**arrays, "history": columns},
            identity=self.identity,
            round=len(history),
            columns=names,
            ledger=asdict(self.ledger.head) if self.ledger else None,
            **facts,
        )

    def resume(self, like: PyTree) -> tuple[PyTree, History, dict[str, Any]] | None:
        """(arrays, history, facts) of the last checkpoint, or None where the run begins."""
        if self.saving is None or not self.saving.resume or not self.saving.file.exists():
            return None
        saved = checkpoint.read_checkpoint(self.saving.file, identity=self.identity)
        facts = saved.facts
        seen = facts.get("ledger")
        if (seen is None) != (self.ledger is None):
            raise check.PrivacyError(
                "simulate: a run must go on as it began, with its ledger or without one, got "
                f"{'no ledger' if seen else 'a ledger that it did not have'}."
            )
        if self.ledger is not None:
            self.ledger.verify(Head(**facts["ledger"]))
        columns = dict.fromkeys(facts["columns"], np.empty(facts["round"]))
        arrays = saved.tree({**like, "history": columns})
        found = arrays.pop("history")
        history = [
            {name: float(found[name][r]) for name in found if not np.isnan(found[name][r])}
            for r in range(facts["round"])
        ]
        return arrays, history, facts


def stack(
    draw: Callable[[int], np.ndarray], rounds: range, *, capacity: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (length, capacity) and presence of the cohorts of `rounds`, at most `length` of them."""
    clients = np.zeros((length, capacity), np.int32)
    present = np.zeros((length, capacity), bool)
    for place, round in enumerate(rounds):
        drawn = draw(round)
        clients[place, : len(drawn)] = drawn
        present[place, : len(drawn)] = True
    return clients, present
