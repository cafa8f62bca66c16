"""Rates of events in groups that each send one randomized answer and keep their counts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from fedprior.core import check
from fedprior.estimation.private.coverage import exact_intervals
from fedprior.estimation.private.law import EVENTS
from fedprior.estimation.private.rates import choose_scheme, count_report
from fedprior.estimation.private.result import Budget, Fitted, Report, ask, assemble
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Events
from fedprior.exchange.batch import Rounds
from fedprior.privacy.ledger import Ledger

EventScheme = Literal["auto", "split", "two-round", "k-ary"]

_OWNER = "estimate_events_privately"
_UNIT = "one group's events (its exposure is public)"
_PROVEN = (
    "The bound on the gain, and the coverage of intervals, hold for any rates of at most {:g} per "
    "unit of exposure (high)."
)
_NEAR = 3.0  # standard errors of the mean rate from the largest one
_TOO_LOW = (
    "The average rate cannot be told from the largest one, {:g} per unit of exposure: many rates "
    "may lie above it, and shrinking could do harm, so every group keeps its raw value (fallback "
    "to local). The population shown is not a finding."
)
_IMPOSSIBLE = 1e-9  # chance of a count above which a group knows its rate to be above the largest


def estimate_events_privately(
    statistics: Events,
    *,
    epsilon: float,
    high: float,
    scheme: EventScheme = "auto",
    seed: int | None = None,
    level: float = 0.95,
    ledger: Ledger | None = None,
) -> Estimates:
    """theta_i = a_i X_i + (1 - a_i) mu, with a population from one private answer per group.

    X_i = events / exposure. Exposures and `high`, the largest rate per unit of exposure, are
    public: do not derive them from the data. The answers are those of `estimate_rates_privately`,
    with the rate as a share of `high`, and are epsilon-DP in the local model if one group's events
    are replaced by any others: a count is cut at a public number before it is randomized, the least
    one such that a rate of at most `high` loses 3% of its mean at most. What cutting takes is
    bounded and taken off the promised gain.

    The bound on the gain holds for rates of any shape in [0, high], also if they depend on the
    exposures. Of rates above `high` nothing is proven: a group whose own count shows that its rate
    is above (a chance of 1e-9 otherwise) keeps its raw value, which only this group sees, and if
    the average rate is within 3 standard errors of `high`, all groups do. `weight` is that of the
    groups' exposures, a function of the reports and of public numbers.
    """
    check.choice(_OWNER, "scheme", scheme, get_args(EventScheme))
    check.share(_OWNER, level=level)
    check.positive(_OWNER, high=high)
    exposure = np.asarray(statistics.exposure, np.float64)
    happened = np.asarray(statistics.events, np.int64)
    check.require(statistics.count is None, _OWNER, "count", "None", "an array")
    size = exposure * high
    there = size > 0
    number, remedy = int(there.sum()), "A group has to have an exposure to take part."
    rule = "at least 2 groups with an exposure"
    check.require(number > 1, _OWNER, "statistics", rule, number, remedy)
    budget = Budget.of(_OWNER, epsilon, seed=seed)
    chosen = choose_scheme(size[there], epsilon, EVENTS) if scheme == "auto" else scheme
    report = count_report(chosen, size, happened, budget, level, EVENTS)
    guarded = report._replace(fit=_guarded(report, there, high))
    fitted, guarantee = ask(
        _OWNER,
        guarded,
        budget,
        ledger,
        unit=_UNIT,
        num_groups=number,
        content=(exposure, happened, chosen, float(high)),
    )
    raw = np.where(there, happened / np.where(there, exposure, 1.0), np.nan)
    found = assemble(exposure, raw, _in_units(fitted, high), guarantee, level=level)
    return _kept(replace(found, size_name="exposure"), size, happened, high)


def _guarded(report: Report, there: np.ndarray, high: float) -> Callable[[Rounds], Fitted]:
    """The fit, with every group's own value where `high` seems to be too low."""

    def fit(rounds: Rounds) -> Fitted:
        fitted = report.fit(rounds)
        population, weighing = fitted.population, fitted.weighing
        error = population.standard_errors["mean"]
        notes = (*fitted.notes, _PROVEN.format(high))
        if weighing.fell_back or population.mean + _NEAR * error < 1:
            return fitted._replace(notes=notes)
        kept = weighing.fallen_back(there, _TOO_LOW.format(high))
        return fitted._replace(weighing=kept._replace(gains=(0.0, 0.0)), notes=notes)

    return fit


def _in_units(fitted: Fitted, high: float) -> Fitted:
    """Rates per unit of exposure in place of shares of `high`."""
    weighing, square = fitted.weighing, high**2
    assert fitted.intervals is not None
    return fitted._replace(
        weighing=weighing._replace(
            risk=square * weighing.risk,
            doubt=square * weighing.doubt,
            local=square * weighing.local,
            spread=square * weighing.spread,
        ),
        population=fitted.population.per(1 / high),
        intervals=(high * fitted.intervals[0], high * fitted.intervals[1]),
    )


def _kept(found: Estimates, size: np.ndarray, happened: np.ndarray, high: float) -> Estimates:
    """The raw value and its exact interval where all groups keep theirs, or a rate is above `high`.

    P(z >= events) < 1e-9 at the largest rate says that this rate is above it.
    """
    there = size > 0
    above = there & (1 - EVENTS.at_most(happened - 1, size, np.ones(len(size))) < _IMPOSSIBLE)
    alone = there if found.fell_back else above
    lower, upper = exact_intervals(size, happened, 1 - found.level, EVENTS)
    return replace(
        found,
        personal=np.where(alone, found.raw, found.personal),
        lower=np.where(alone, high * lower, found.lower),
        upper=np.where(alone, high * upper, found.upper),
    )
