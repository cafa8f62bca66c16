"""EM of a mixture of regressions, from a start to a maximum."""

from typing import NamedTuple, Protocol

import numpy as np

from fedprior.regression.mixture.linear import MixturePosterior
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules, ahead
from fedprior.regression.mixture.totals import MixtureTotals, move_means, move_spreads

_HALVINGS = 30


class MixtureEvidence(Protocol):
    """What the groups hold, seen through sums only."""

    def total(self, parts: MixtureParameters) -> MixtureTotals: ...

    def posterior(self, parts: MixtureParameters) -> MixturePosterior: ...


class Climb(NamedTuple):
    """Where EM came to; `history` is the log-likelihood before each round, and at the end."""

    parts: MixtureParameters
    log_likelihood: float
    rounds: int
    converged: bool
    history: tuple[float, ...]


class Step(NamedTuple):
    """The parameters after one EM step, and the log-likelihood from which it started."""

    parts: MixtureParameters
    level: float


def mixture_em_step(
    evidence: MixtureEvidence, parts: MixtureParameters, rules: MixtureRules, *, exact: bool
) -> Step:
    """One EM step: means with theta integrated out, then covariances with its posterior spread.

    For linear regressions (`exact`) each half raises the likelihood, given the probabilities of the
    components that it starts from. For logistic ones the first half is one step of Newton's method,
    bounded, and halved until the likelihood does not fall; where members spread, both halves come
    from one pass over the data, whose likelihood is an approximation.
    """
    before = evidence.total(parts)
    level = before.log_likelihood
    moved = move_means(before, parts, rules, most=np.inf if exact else 1.0)
    if rules.spread == "component":
        again = evidence.total(moved) if exact else before
        return Step(move_spreads(again, moved, rules), level)
    for _ in range(0 if exact else _HALVINGS):
        if evidence.total(moved).log_likelihood >= level:
            break
        moved = moved._replace(
            means=(parts.means + moved.means) / 2, fixed=(parts.fixed + moved.fixed) / 2
        )
    return Step(moved, level)


def climb(
    evidence: MixtureEvidence,
    parts: MixtureParameters,
    rules: MixtureRules,
    *,
    exact: bool,
    most_rounds: int,
    tolerance: float,
) -> Climb:
    """EM from `parts` until a step adds less than `tolerance` to the log-likelihood.

    A round is two EM steps and a third from a point extrapolated along them, kept only where that
    point is already better (SQUAREM, Varadhan and Roland 2008): the likelihood of an exact EM never
    falls.
    """
    history: list[float] = []
    converged = False
    while not converged and len(history) < most_rounds:
        first = mixture_em_step(evidence, parts, rules, exact=exact)
        second = mixture_em_step(evidence, first.parts, rules, exact=exact)
        converged = abs(second.level - first.level) < tolerance
        history.append(first.level)
        guess = None if converged else ahead(parts, first.parts, second.parts, rules)
        parts = second.parts
        if guess is not None:
            third = mixture_em_step(evidence, guess, rules, exact=exact)
            parts = third.parts if third.level > second.level else parts
    last = evidence.total(parts).log_likelihood
    return Climb(parts, last, len(history), converged, (*history, last))
