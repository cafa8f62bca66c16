"""Cohorts: who takes part in a round. The object that samples is the one that is accounted for."""

from dataclasses import dataclass, replace

import numpy as np

from fedprior.core import check, random
from fedprior.core.protocols import Cohort
from fedprior.privacy.events import Event


@dataclass(frozen=True)
class Everyone(Cohort):
    """Every client in every round."""

    def expected_size(self, num_clients: int) -> float:
        return float(num_clients)

    def capacity(self, num_clients: int) -> int:
        return num_clients

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        return np.arange(num_clients, dtype=np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        """Nobody is left out, so there is no amplification."""
        return event


@dataclass(frozen=True, kw_only=True)
class FixedSize(Cohort):
    """`size` of the clients, sampled uniformly without replacement in every round.

    Guarantees hold under replace-one only: a client that is present or absent displaces another,
    whose message also changes the sum. No amplification is claimed by default, because with a
    memory between rounds a displaced client's later messages reveal the displacement (ERRATA
    D7(2)). `amplifies=True` claims it for algorithms whose messages do not depend on earlier
    participation (`Algorithm.memoryless`); a private run with another algorithm is refused.
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
        """The event with a fixed cohort size, amplified only if `amplifies` is set."""
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
    """Each client independently with probability `rate` in every round.

    Arrays are padded to `cap` clients. A draw above the cap stops the run: a cohort is never
    truncated, and `overflow(num_clients)`, the probability of such a draw in one round, is charged
    to delta. The default cap is the smallest one that is exceeded less than once in 1e15 rounds.
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
        """The probability that a round's draw exceeds the cap."""
        from scipy.stats import binom

        return float(binom.sf(self.capacity(num_clients), num_clients, self.rate))

    def draw(self, seed: int, round: int, num_clients: int) -> np.ndarray:
        generator = random.stream(seed, "cohort", round)
        # A binomial size and then a uniform subset of it is the same law as one coin per client.
        size = int(generator.binomial(num_clients, self.rate))
        cap = self.capacity(num_clients)
        if size > cap:
            raise check.PrivacyError(
                f"Poisson: cap must be at least the cohort drawn, got {cap} for the {size} clients "
                f"of round {round}. Raise cap; a cohort is never cut."
            )
        chosen = generator.choice(num_clients, size, replace=False, shuffle=False)
        return np.sort(chosen).astype(np.int32)

    def amplify(self, event: Event, num_clients: int) -> Event:
        """The event with Poisson sampling; the probability of an overflow is charged to delta.

        This is also sound for clients with a secret memory: given the others' draws, a round is a
        mixture of sampled mechanisms over this client's hidden past (ERRATA D7(1)).
        """
        overflow = self.overflow(num_clients)
        return replace(event, sampling="poisson", rate=self.rate, overflow=overflow)
