"""EM of a mixture of regressions, from a start to a maximum."""

from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from fedprior.estimation.squarem import accelerated_em
from fedprior.regression.mixture.linear import MixturePosterior
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules, ahead
from fedprior.regression.mixture.totals import MixtureTotals, move_means, move_spreads

_HALVINGS = 30


class MixtureEvidence(Protocol):
    """The data of the groups, accessible only through sums and each group's own posterior."""

    def total(self, parts: MixtureParameters) -> MixtureTotals: ...

    def posterior(self, parts: MixtureParameters) -> MixturePosterior: ...


class MixtureClimb(NamedTuple):
    """Where EM ended; `history` is the log-likelihood before each round, and at the end."""

    parts: MixtureParameters
    log_likelihood: float
    rounds: int
    converged: bool
    history: tuple[float, ...]


def mixture_em_step(
    evidence: MixtureEvidence, parts: MixtureParameters, rules: MixtureRules, *, exact: bool
) -> tuple[MixtureParameters, float]:
    """The parameters after one EM step, and the log-likelihood before it.

    Means are updated with theta integrated out, then covariances with its posterior spread. For
    linear regressions (`exact`) each half raises the likelihood, given the component probabilities
    that it starts from. For logistic regressions the first half is one bounded step of Newton's
    method, halved until the likelihood does not fall; where the members of a component differ, both
    halves come from one pass over the data, whose likelihood is an approximation.
    """
    before = evidence.total(parts)
    level = before.log_likelihood
    moved = move_means(before, parts, rules, most=np.inf if exact else 1.0)
    if rules.spread == "component":
        again = evidence.total(moved) if exact else before
        return move_spreads(again, moved, rules), level
    for _ in range(0 if exact else _HALVINGS):
        if evidence.total(moved).log_likelihood >= level:
            break
        moved = moved._replace(
            means=(parts.means + moved.means) / 2, fixed=(parts.fixed + moved.fixed) / 2
        )
    return moved, level


def climb(
    evidence: MixtureEvidence,
    parts: MixtureParameters,
    rules: MixtureRules,
    *,
    exact: bool,
    most_rounds: int,
    tolerance: float,
) -> MixtureClimb:
    """Accelerated EM from `parts`, to `tolerance` in the log-likelihood."""

    def step(at: MixtureParameters) -> tuple[MixtureParameters, float]:
        return mixture_em_step(evidence, at, rules, exact=exact)

    ended = accelerated_em(
        step, partial(ahead, rules=rules), parts, most_rounds=most_rounds, tolerance=tolerance
    )
    last = evidence.total(ended.parameters).log_likelihood
    history = (*ended.history, last)
    return MixtureClimb(ended.parameters, last, len(ended.history), ended.converged, history)
