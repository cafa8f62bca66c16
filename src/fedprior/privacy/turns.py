"""The matrix mechanism beside Poisson sampling, at equal rounds, cohorts and epsilon."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprior.privacy.cohort import Cyclic, Poisson
from fedprior.privacy.events import Event, gaussian
from fedprior.privacy.participation import Participation
from fedprior.privacy.planning import noise_multiplier
from fedprior.privacy.strategy import (
    Banded,
    banded_strategy,
    charge,
    squared_errors,
    squared_noise,
    whole_run,
)

_INDEPENDENT = Banded((1.0,))


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A way to draw cohorts and noise, and what it costs to hide a client from one adversary.

    `sees` is what the adversary sees: the noisy models only, or also who took part in which round.
    `update_noise` is the standard deviation of the noise on the mean update of a round, and
    `learned_noise` that of the sum of the rounds so far, averaged over the run. Both are per
    coordinate and divided by the clip of one update.
    """

    mechanism: str
    cohorts: str
    sees: str
    noise_multiplier: float
    update_noise: float
    learned_noise: float

    def describe(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return asdict(self)


def alternatives(
    *,
    target: float,
    delta: float,
    rounds: int,
    rate: float,
    num_clients: int,
    most: int,
    apart: int,
) -> list[Alternative]:
    """Compare Poisson sampling at `rate` with turns at least `apart` rounds apart, `most` of them.

    Epsilon is `target` at `delta` for every alternative, under add-remove. Cohorts have the same
    expected size, which the rule of participation must allow.
    """
    rule = Participation(rounds=rounds, apart=apart, most=most)
    _check_size(rule, rate)
    strategy = banded_strategy(rounds, bands=apart)
    models, cohorts = "models", "cohorts, too"

    def row(
        mechanism: str, drawn: str, sees: str, event: Event, count: int, strategy: Banded = strategy
    ) -> Alternative:
        least = noise_multiplier(event, target=target, delta=delta, rounds=count) / event.noise
        size = rate * num_clients
        return Alternative(
            mechanism=mechanism,
            cohorts=drawn,
            sees=sees,
            noise_multiplier=least,
            update_noise=least * math.sqrt(np.mean(squared_noise(strategy, rounds))) / size,
            learned_noise=least * math.sqrt(np.mean(squared_errors(strategy, rounds))) / size,
        )

    every = Participation(rounds=rounds)
    sampled, _ = charge(_INDEPENDENT, every, 1.0, Poisson(rate=rate), num_clients)
    poisson = f"Poisson, rate {rate:.3g}"
    turns = f"any: at most {rule.most}, {apart} apart"
    whole = whole_run(strategy, rule, 1.0)
    found = [
        row("independent", poisson, models, sampled, rounds, _INDEPENDENT),
        row("independent", poisson, cohorts, gaussian(1.0), rounds, _INDEPENDENT),
        row("matrix", turns, models, whole, 1),
        row("matrix", turns, cohorts, whole, 1),
    ]
    within = min(1.0, rate * apart)
    event, turns_of_one = charge(strategy, rule, 1.0, Cyclic(parts=apart, rate=within), num_clients)
    if event.sampling == "poisson":
        drawn = f"cyclic Poisson, {apart} parts, rate {within:.3g}"
        found.insert(2, row("matrix", drawn, models, event, turns_of_one))
    return found


def _check_size(rule: Participation, rate: float) -> None:
    """Check that cohorts of `rate` * m clients can obey the rule."""
    most = min(rule.most / rule.rounds, 1 / rule.apart)
    times = "once" if rule.most == 1 else f"{rule.most} times"
    if rate > most * (1 + 1e-9):
        raise ValueError(
            f"plan: the sampling rate must be at most {most:.4g} if a client takes part at most "
            f"{times} in {rule.rounds} rounds, {rule.apart} rounds apart, got {rate:g}. "
            "Lower --sampling-rate or --cohort-size, or allow more participations."
        )
