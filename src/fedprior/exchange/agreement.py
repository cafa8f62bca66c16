"""All that a server and its clients agree on before the first round, from public facts alone."""

import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedprior.channels.identity import Identity
from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State
from fedprior.core.programs import brief
from fedprior.core.protocols import Channel, Cohort, is_private
from fedprior.data.federation import ClientData, Federation, network_input
from fedprior.exchange.checkpoint import fingerprint
from fedprior.exchange.facts import Facts
from fedprior.exchange.fits import check_fits
from fedprior.privacy import events, secure
from fedprior.privacy.cohort import Everyone
from fedprior.privacy.events import Event
from fedprior.privacy.participation import Attendance, Participation

_OWNER = "Agreement"


class Keys(NamedTuple):
    """The keys that all draws of a run are folded from: those of its channel, and all others."""

    root: Key
    channel: Key


@dataclass(frozen=True)
class Rules:
    """What a compiled round depends on besides its arrays."""

    algorithm: Algorithm
    channel: Channel
    expected_size: float  # of a cohort; the weight of a private channel's total
    most_samples: int | None = None  # the public bound under a private channel, if there is one
    at_once: int | None = None  # most clients of a cohort that train together; None: all of them

    def open(self, data: ClientData) -> ClientData:
        """What a client's message may be computed from: its samples, and no other client's size.

        Under a private channel arrays are as long as the public bound, however many rows the data
        at hand were padded to; without a bound there is no length to go by.
        """
        if not self.channel.private:
            return data
        most = self.most_samples
        return data._replace(rows=None if most is None else np.arange(most, dtype=np.int32))


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The algorithm, its channel, who takes part, and the public facts of the population.

    `identity` is any JSON value that names what decides a run's bits and the other fields do not
    show, such as an algorithm's rates. Seeded draws are for simulated noise: with secure noise the
    server draws cohorts and central noise, and a client its own noise, from the operating system,
    and neither can be derived from the agreement.
    """

    algorithm: Algorithm
    facts: Facts
    channel: Channel = field(default_factory=Identity)
    cohort: Cohort = field(default_factory=Everyone)
    seed: int = 0
    identity: Any = ""
    vetted: bool = False  # the network was checked before: what it does is not tried out again

    def __post_init__(self) -> None:
        check.seed(_OWNER, self.seed)
        known = self.algorithm.num_clients
        rule = f"{known} for {self.algorithm.name}"
        fits = known is None or known == self.num_clients
        check.require(fits, _OWNER, "number of clients", rule, self.num_clients)
        if self.secure and is_private(self.channel) and self.channel.view == "central":
            secure.check_cohort_size(self.capacity)  # before anything is recorded as spent
        if is_private(self.channel) and self.channel.view == "masked":
            self.channel.charge(self.cohort, self.num_clients, 1)  # refuses cohorts of other sizes
        if not self.channel.weighted:
            raise ValueError(
                f"{_OWNER}: channel must let the weight through, got {self.channel!r}. "
                "Set weighted=True: a message's weight is its last coordinate."
            )
        check_fits(self.algorithm, self.channel)
        bounded = self.channel.private or self.facts.most_samples is not None
        remedy = "Only under a private channel may it be unknown."
        check.require(bounded, _OWNER, "most_samples", "a number", None, remedy)
        if self._hides_by_size() and not self.algorithm.memoryless:
            raise check.PrivacyError(
                f"{_OWNER}: cohort must claim no amplification for {self.algorithm.name}, got "
                f"{self.cohort!r}. Its messages tell of earlier rounds: use Poisson sampling."
            )
        _ = self.capacity  # refuses a cohort larger than the population
        self._check_model()

    def _hides_by_size(self) -> bool:
        """Whether the cohort claims amplification for a fixed size, asked of what it claims."""
        if not self.channel.private or self.rule is not None:
            return False
        event = self.cohort.amplify(events.gaussian(1.0), self.num_clients)
        return event.sampling == "fixed" and event.amplified

    def _check_model(self) -> None:
        facts, model = self.facts, self.algorithm.model
        if model is not None and not self.vetted:
            from fedprior.models.fits import check_network

            outputs = facts.target_shape if facts.num_classes is None else (facts.num_classes,)
            inputs = network_input(np.empty(0, facts.inputs)).dtype.name
            check_network(model, facts.shape, outputs, inputs)

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        federation: Federation,
        *,
        channel: Channel | None = None,
        cohort: Cohort | None = None,
        seed: int = 0,
        identity: Any = "",
    ) -> "Agreement":
        """The agreement of a simulation, whose facts are those of the federation at hand."""
        return cls(
            algorithm=algorithm,
            facts=Facts.of(federation, private=channel is not None and channel.private),
            channel=Identity() if channel is None else channel,
            cohort=Everyone() if cohort is None else cohort,
            seed=seed,
            identity=identity,
        )

    @property
    def num_clients(self) -> int:
        return self.facts.num_clients

    @cached_property
    def capacity(self) -> int:
        """The most clients that a round can have."""
        return self.cohort.capacity(self.num_clients)

    @cached_property
    def rules(self) -> Rules:
        """What compiled programs of this agreement depend on."""
        expected_size = self.cohort.expected_size(self.num_clients)
        return Rules(self.algorithm, self.channel, expected_size, self.facts.most_samples)

    @property
    def secure(self) -> bool:
        """Whether noise and cohorts come from the operating system and can never be repeated."""
        return self.channel.noise == "secure"

    @cached_property
    def event(self) -> Event:
        """The cost of one round: the channel's event under the sampler that draws its cohorts."""
        return self.charge[0]

    @cached_property
    def charge(self) -> tuple[Event, int | None]:
        """The event, and how often a whole run composes it; None if it is charged by the round."""
        channel = self.channel
        if not is_private(channel):
            raise check.PrivacyError(f"{_OWNER}: a round of {channel!r} has no privacy event.")
        return channel.charge(self.cohort, self.num_clients, tree.size(self.message.value))

    @property
    def rule(self) -> Participation | None:
        """How often clients may take part, for channels that charge a whole run at once."""
        return self.channel.rule if is_private(self.channel) else None

    def attendance(self) -> Attendance:
        """A new list of who took part, which refuses cohorts that break the rule."""
        return Attendance(self.rule, self.num_clients)

    @cached_property
    def length(self) -> int:
        """Coordinates of an upload: the message's, and its weight unless the channel is private."""
        return tree.size(self.message.value if self.channel.private else self.message)

    def secrets(self) -> PyTree:
        """What the channel keeps at the trust boundary, before the first round."""
        if type(self.channel).begin is Channel.begin:
            return ()  # and nobody asks for the length, for which a round is traced
        return self.channel.begin(self.length)

    @cached_property
    def stream_id(self) -> str:
        """Hash that separates this run's private draws from other runs'."""
        return fingerprint([self.algorithm.name, self.channel, self.cohort, self.identity])

    @property
    def draws(self) -> str | None:
        """The name of a run's noise and cohorts on its ledger; None if they are secure."""
        return None if self.secure else f"{self.stream_id}-{self.seed}"

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what decides the bits of a run, for its checkpoints."""
        facts = self.facts.as_json()
        parts = [self.algorithm.name, self.cohort, self.channel, self.seed, facts]
        return fingerprint([self.identity, *parts])

    def keys(self, root: Key | None = None) -> Keys:
        """The run's keys, from its own root or from another seed's.

        In the clear, methods of one seed share the channel's draws, for a paired comparison. A
        private run has its own: releases that are composed must be drawn independently, or their
        difference would be free of noise.
        """
        root = random.root(self.seed) if root is None else root
        if not self.channel.private:
            return Keys(root, root)
        words = np.frombuffer(bytes.fromhex(self.stream_id), ">u4")
        return Keys(root, random.fold(root, "channel", *(np.uint32(word) for word in words)))

    def draw(self, round: int) -> np.ndarray:
        """Ids of the clients of a round, in increasing order; the server calls it once per round.

        Keyed like the channel's noise. With secure noise it is a secret of the server: sampling
        amplifies only against somebody who cannot know the draw.
        """
        seed = self.seed
        if self.secure:
            seed = secrets.randbits(128)
        elif self.channel.private:
            seed += int(self.stream_id, 16) << 31  # above every seed
        return np.asarray(self.cohort.draw(seed, round, self.num_clients))

    def initial_state(self) -> State:
        begin = brief(self.algorithm.init)
        state: State = begin(random.fold(random.root(self.seed), "init"))
        return state

    @cached_property
    def shapes(self) -> tuple[State, Memory]:
        """Shapes of the state and of one client's memory."""
        import jax

        def begin(key: Key, client: Array) -> tuple[State, Memory]:
            state = self.algorithm.init(key)
            return state, self.algorithm.enroll(state, client, key)

        key, client = random.root(0), np.zeros((), np.int32)
        return jax.eval_shape(begin, key, client)

    @cached_property
    def message(self) -> Message:
        """Shapes of one client's message."""
        import jax
        import jax.numpy as jnp

        try:
            return jax.eval_shape(self.algorithm.local, *self.inputs)[0]
        except jax.errors.ConcretizationTypeError:
            # A `local` that cannot be traced still runs operation by operation, in `debug`.
            state, memory, data = jax.tree.map(
                lambda each: jnp.zeros(each.shape, each.dtype), self.inputs[:3]
            )
            return self.algorithm.local(state, memory, data, random.root(0))[0]

    @cached_property
    def inputs(self) -> tuple[State, Memory, Any, Key]:
        """Shapes of what `algorithm.local` takes."""
        import jax

        facts = self.facts
        most = facts.most_samples or 1  # without a bound, how many rows there are has no effect

        def blank(shape: tuple[int, ...], dtype: str) -> Array:
            return jax.ShapeDtypeStruct((most, *shape), np.dtype(dtype))  # type: ignore[no-untyped-call]

        number = jax.ShapeDtypeStruct((), np.int32)  # type: ignore[no-untyped-call]
        data = ClientData(
            x=blank(facts.shape, facts.inputs),
            y=blank(facts.target_shape, facts.targets),
            start=number,
            size=number,
            rows=None if facts.most_samples is None else blank((), "int32"),
        )
        return (*self.shapes, data, jax.eval_shape(lambda: random.root(0)))
