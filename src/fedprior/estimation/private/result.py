"""Estimates of groups under a population that is known from private reports only."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.core.protocols import PrivateChannel
from fedprior.estimation.intervals import normal_score
from fedprior.estimation.private.posterior import Weighing
from fedprior.estimation.result import Estimates, FittedPopulation
from fedprior.exchange.batch import Batch, Rounds
from fedprior.privacy.guarantee import Guarantee, Noise
from fedprior.privacy.ledger import Ledger

NOT_PRIVATE = (
    "The guarantee covers what the groups send and the population fitted from it; raw and personal "
    "values belong to each group and are not private."
)


def unit_of(*, errors_are_public: bool) -> str:
    """What is protected, and what of a group counts as public."""
    public = "size and standard error are" if errors_are_public else "size is"
    return f"one group's rows (its {public} public)"


class Fitted(NamedTuple):
    """A population from reports, and the weights it allows.

    Estimates shrink to `center`, the population's mean unless given, and have intervals of their
    own where `intervals` is given.
    """

    weighing: Weighing
    population: FittedPopulation
    notes: tuple[str, ...] = ()
    center: np.ndarray | None = None
    intervals: tuple[np.ndarray, np.ndarray] | None = None


class Budget(NamedTuple):
    """What one report of a group may cost, and where its noise comes from."""

    epsilon: float
    delta: float
    noise: Noise
    seed: int
    allow_delta: bool

    @classmethod
    def of(
        cls,
        owner: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        seed: int | None,
        allow_delta: bool = False,
    ) -> "Budget":
        """Gaussian noise (delta > 0) is simulated; randomized responses are secure without a seed.

        Seed 0 is the default of simulated noise.
        """
        check.positive(owner, epsilon=epsilon)
        check.share(owner, delta=delta)
        secure = delta == 0 and seed is None
        number = check.seed(owner, 0 if seed is None else seed)
        return cls(epsilon, delta, "secure" if secure else "simulated", number, allow_delta)


class Report(NamedTuple):
    """What each group will send, before anything is drawn, and what is learned from it."""

    channel: PrivateChannel
    dimension: int
    bits: float
    mechanism: str  # in words
    fit: Callable[[Rounds], Fitted]


def ask(
    owner: str,
    report: Report,
    budget: Budget,
    ledger: Ledger | None,
    *,
    unit: str,
    num_groups: int,
    content: Iterable[Any],
) -> tuple[Fitted, Guarantee]:
    """Charge one report of each group, gather and evaluate them; `content` is what they tell of."""
    batch = Batch.of(
        owner,
        report.channel,
        report.dimension,
        num_clients=num_groups,
        delta=budget.delta,
        seed=budget.seed,
        allow_delta=budget.allow_delta,
    )
    with batch.charged(ledger, content=(*content, report.channel)) as rounds:
        fitted = report.fit(rounds)
    return fitted, batch.guarantee(unit=unit, mechanism=report.mechanism, bits=report.bits)


def assemble(
    n: np.ndarray,
    raw: np.ndarray,
    fitted: Fitted,
    guarantee: Guarantee,
    *,
    level: float,
    limits: tuple[float, float] | None = None,
) -> Estimates:
    """Estimates own * raw + (1 - own) * center, with intervals of +- z sqrt(risk + doubt).

    The risk holds the noise of the group's own data, the heterogeneity and the error of the center;
    the doubt is one standard deviation of it under what the reports leave unknown. Together:
    sampling, privacy and prior error. A fallback promises no gain over anything.
    """
    weighing, population = fitted.weighing, fitted.population
    center = population.mean if fitted.center is None else fitted.center
    there = n > 0
    own, variance = weighing.own, weighing.risk + weighing.doubt
    raw = np.where(there if raw.ndim == 1 else there[:, None], raw, np.nan)
    if raw.ndim == 2:
        own, variance = own[:, None], variance[:, None]
    personal = np.where(own > 0, own * raw, 0.0) + (1 - own) * center
    scale = np.broadcast_to(np.sqrt(variance), personal.shape)
    reach = normal_score(level) * scale
    lower, upper = personal - reach, personal + reach
    if limits is not None:
        lower, upper = np.clip(lower, *limits), np.clip(upper, *limits)
    lower, upper = fitted.intervals or (lower, upper)
    expected, pooled = weighing.risk[there].sum(), there.sum() * weighing.spread
    kept = weighing.fell_back
    gains = weighing.gains or (
        float(100 * (1 - expected / weighing.local[there].sum())),
        float(100 * (1 - expected / pooled)),
    )
    first_notes = () if weighing.note is None else (weighing.note,)
    return Estimates(
        n=n,
        raw=raw,
        personal=personal,
        weight=weighing.own,
        scale=np.array(scale),
        lower=lower,
        upper=upper,
        level=level,
        population=population,
        gain_over_raw=0.0 if kept else gains[0],
        gain_over_pooled=0.0 if kept else gains[1],
        gains_are_bounds=weighing.gains is not None,
        notes=(*first_notes, *fitted.notes, NOT_PRIVATE),
        guarantee=guarantee,
        fell_back=kept,
    )
