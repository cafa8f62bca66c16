"""Samplers of each round's clients. The same object draws the cohort and is accounted for."""

from dataclasses import dataclass, replace

import numpy as np

from fedprior.core import check, random
from fedprior.core.protocols import Cohort
from fedprior.privacy.events import Event


@dataclass(frozen=True)
class Everyone(Cohort):
    """Every client takes part in every round."""

    def expected_size(self, num_clients: int) -> float:
        return float(num_clients)

    def capacity(self, num_clients: int) -> int:
        return num_clients

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        return np.arange(num_clients, dtype=np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        """Return `event` unchanged: without sampling there is no amplification."""
        return event


@dataclass(frozen=True, kw_only=True)
class FixedSize(Cohort):
    """`size` clients, sampled uniformly without replacement, independently in every round.

    A guarantee holds only under replace-one: adding or removing a client displaces another one,
    whose message changes the sum as well. No amplification is claimed by default, because if
    clients have a memory between rounds, the later messages of a displaced client reveal it
    (ERRATA D7(2)). `amplifies=True` claims amplification for algorithms whose messages do not
    depend on earlier participation (`Algorithm.memoryless`); private runs of others are refused.
    """

    size: int
    amplifies: bool = False

    def __post_init__(self) -> None:
        check.count("FixedSize", size=self.size)

    def _check(self, num_clients: int) -> None:
        rule = f"at most the number of clients ({num_clients})"
        check.require(self.size <= num_clients, "FixedSize", "size", rule, self.size)

    def expected_size(self, num_clients: int) -> float:
        self._check(num_clients)
        return float(self.size)

    def capacity(self, num_clients: int) -> int:
        self._check(num_clients)
        return self.size

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        self._check(num_clients)
        chosen = random.stream(seed, "cohort", round).choice(
            num_clients, self.size, replace=False, shuffle=False
        )
        return np.sort(chosen).astype(np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        """Return the event for a fixed number of clients, amplified only if `amplifies`."""
        self._check(num_clients)
        return replace(
            event,
            sampling="fixed",
            size=self.size,
            num_clients=num_clients,
            amplified=self.amplifies,
        )


@dataclass(frozen=True, kw_only=True)
class Poisson(Cohort):
    """Each client takes part with probability `rate`, independently, in every round.

    Arrays are padded to `cap` clients. A draw above the cap stops the run, because truncating the
    cohort would change its distribution; `overflow(num_clients)`, the probability of such a draw in
    one round, is charged to delta. The default cap is the smallest that is exceeded less often than
    once in 1e15 rounds.
    """

    rate: float
    cap: int | None = None

    _OVERFLOW = 1e-15

    def __post_init__(self) -> None:
        check.fraction("Poisson", rate=self.rate)
        if self.cap is not None:
            check.count("Poisson", cap=self.cap)

    def expected_size(self, num_clients: int) -> float:
        return self.rate * num_clients

    def capacity(self, num_clients: int) -> int:
        from scipy.stats import binom

        cap = self.cap
        if cap is None:
            cap = max(1, int(binom.isf(self._OVERFLOW, num_clients, self.rate)))
        return min(cap, num_clients)

    def overflow(self, num_clients: int) -> float:
        """Return the probability that the draw of one round exceeds the cap."""
        from scipy.stats import binom

        return float(binom.sf(self.capacity(num_clients), num_clients, self.rate))

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        generator = random.stream(seed, "cohort", round)
        # A binomial size followed by a uniform subset has the same distribution as independent
        # coin flips for all clients.
        size = int(generator.binomial(num_clients, self.rate))
        cap = self.capacity(num_clients)
        if size > cap:
            raise check.PrivacyError(
                f"Poisson: cap must be at least the size of every cohort, got {cap} for the {size} "
                f"clients of round {round}. Raise cap; cohorts are never truncated."
            )
        chosen = generator.choice(num_clients, size, replace=False, shuffle=False)
        return np.sort(chosen).astype(np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        """Return the Poisson-sampled event; the overflow probability is charged to delta.

        Also valid for clients with a secret memory: given the other clients' draws, a round is a
        mixture of sampled mechanisms over this client's hidden past (ERRATA D7(1)).
        """
        overflow = self.overflow(num_clients)
        return replace(event, sampling="poisson", rate=self.rate, overflow=overflow)


@dataclass(frozen=True, kw_only=True)
class Cyclic(Cohort):
    """A fixed partition of the clients into `parts` that take turns; sampled if `rate` is below 1.

    Client i belongs to part i mod `parts`, and in round t it is the turn of part t mod `parts`: a
    client takes part at most once in `parts` rounds. Of the part whose turn it is, each client
    takes part with probability `rate`, independently. Parts differ by at most one client; the
    expected size is their average.
    """

    parts: int
    rate: float = 1.0

    def __post_init__(self) -> None:
        check.count("Cyclic", parts=self.parts)
        check.fraction("Cyclic", rate=self.rate)

    @property
    def cycle(self) -> int:
        return self.parts

    @property
    def _sampler(self) -> Poisson:
        return Poisson(rate=self.rate)

    def _largest(self, num_clients: int) -> int:
        rule = f"at most the number of clients ({num_clients})"
        check.require(self.parts <= num_clients, "Cyclic", "parts", rule, self.parts)
        return -(-num_clients // self.parts)

    def expected_size(self, num_clients: int) -> float:
        return self.rate * num_clients / self.parts

    def capacity(self, num_clients: int) -> int:
        return self._sampler.capacity(self._largest(num_clients))

    def overflow(self, num_clients: int) -> float:
        """Return a bound on the probability that the draw of one round exceeds the cap."""
        return self._sampler.overflow(self._largest(num_clients))

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        part = np.arange(round % self.parts, num_clients, self.parts, dtype=np.int32)
        if self.rate == 1:
            return part
        size = self._largest(num_clients)
        drawn = self._sampler.draw(seed, round, size)
        return part[drawn[drawn < len(part)]]

    def amplify(self, event: Event, num_clients: int) -> Event:
        """Return the event of a client's turn; charging it in every round is more than it costs."""
        if self.rate == 1:
            return event
        return replace(
            event, sampling="poisson", rate=self.rate, overflow=self.overflow(num_clients)
        )
