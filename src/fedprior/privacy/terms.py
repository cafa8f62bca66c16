"""The meaning of a ledger's epsilon, and the budget that holds under it."""

from dataclasses import dataclass

from fedprior.core import check
from fedprior.core.check import PrivacyError
from fedprior.privacy.accounting import epsilon
from fedprior.privacy.events import RELATIONS, Event, Relation
from fedprior.privacy.guarantee import Noise, shown


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
        check.flag("Terms", allow_delta=self.allow_delta)
        if self.budget is not None:
            check.positive("Terms", budget=self.budget)


def check_budget(event: Event, terms: Terms, *, count: int = 1) -> None:
    """Raise PrivacyError if the budget does not cover the event, composed `count` times, once."""
    cost = epsilon([(event, count)], delta=terms.delta, relation=terms.relation)
    if terms.budget is not None and cost > terms.budget:
        what = "one round" if count == 1 else f"{count} events"
        remedy = "Raise the noise or the budget, or lower the sampling rate."
        if event.mechanism == "response":
            remedy = "Ask for a smaller epsilon, or raise the budget."
        raise PrivacyError(
            f"ledger: budget must cover the cost of {what} (epsilon {shown(cost, digits=4)}), got "
            f"{terms.budget:g}. {remedy}"
        )
