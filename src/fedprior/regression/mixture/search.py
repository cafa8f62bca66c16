"""The search over starts, by likelihood, and over components and their covariance, by BIC."""

from typing import Literal, NamedTuple

import numpy as np

from fedprior.regression.mixture import em
from fedprior.regression.mixture.em import MixtureClimb, MixtureEvidence
from fedprior.regression.mixture.parts import (
    MixtureParameters,
    MixtureRules,
    Spread,
    num_mixture_parameters,
)
from fedprior.regression.mixture.start import MixtureProblem, Starts
from fedprior.regression.result import Covariance

MOST_COMPONENTS = 6
_WIDEST_FULL = 20  # coefficients: 210 numbers for each component
_MOST_ROUNDS = 200
_TOLERANCE = 1e-8  # of the log-likelihood per group and step
_ROUGH = 1e-6  # where the likelihood itself is an approximation
# Two isotropic components have about as many numbers as one full one, so by chance they fit better
# now and then: 3 of 30 populations of 50 groups with 3 correlated coefficients, by up to 6.
_CLEAR = 10.0
_NEAR = 1e-6  # for a comparison, of the log-likelihood per group and step
_NEAR_OF_CLASSES = 1e-5
_DEAD = 0.5  # components with fewer expected members are removed


class Found(NamedTuple):
    """Where EM ended, with the rules and the evidence of the form of covariance it belongs to."""

    climb: MixtureClimb
    rules: MixtureRules
    evidence: MixtureEvidence
    notes: tuple[str, ...]


class _Tried(NamedTuple):
    """An approximate maximum with one number of components and one form of their covariance."""

    criterion: float
    deviance: float
    start: MixtureParameters
    rules: MixtureRules
    evidence: MixtureEvidence

    @property
    def num_components(self) -> int:
        return len(self.start.shares)

    @property
    def name(self) -> str:
        count = self.num_components
        form = f"{self.rules.covariance} " if self.rules.spread == "component" else ""
        return f"{count} {form}component{'s' * (count > 1)}"


def search(
    problem: MixtureProblem,
    spread: Spread,
    covariance: Covariance | Literal["auto"],
    num_components: int | str,
    *,
    restarts: int,
    seed: int,
) -> Found:
    """EM with the number of components and the form of covariance of lowest BIC, or as given.

    A form that is too simple needs several components for one population whose coefficients are
    correlated or differ in spread, so forms are compared as well. For each form the number of
    components rises until BIC does. Where forms are compared, more components have to be lower by
    10, very strong evidence on the scale of Kass and Raftery (1995); see `_best`.
    """
    forms = _forms(problem, spread) if covariance == "auto" else (covariance,)
    given = not isinstance(num_components, str)
    tried: list[_Tried] = []
    for form in forms:
        rules = problem.rules(spread, form)
        evidence = problem.evidence(rules)
        starts = Starts.of(problem, rules, seed)
        if given and len(forms) == 1:
            start = starts.best(int(num_components), restarts=restarts, seed=seed)
            return Found(_learn(problem, evidence, rules, start), rules, evidence, ())
        most = _most_components(problem, form)
        if given and form == "full" and int(num_components) > most:
            continue  # a simpler form has been tried
        counts = [int(num_components)] if given else range(1, most + 1)
        last = np.inf
        for count in counts:
            start = starts.best(count, restarts=restarts, seed=seed)
            tried.append(_try(problem, evidence, rules, start))
            if tried[-1].criterion > last:
                break
            last = tried[-1].criterion
    best = _best(tried, margin=_CLEAR if len(forms) > 1 else 0.0)
    reached = _learn(problem, best.evidence, best.rules, best.start)
    return Found(reached, best.rules, best.evidence, (_note(best, tried),))


def _most_components(problem: MixtureProblem, form: Covariance) -> int:
    """A full covariance needs as many groups as coefficients and one more, or it degenerates."""
    needed = problem.num_logits * problem.rows.num_features + 1 if form == "full" else 1
    return max(1, min(MOST_COMPONENTS, problem.num_groups // needed))


def _forms(problem: MixtureProblem, spread: Spread) -> tuple[Covariance, ...]:
    """The forms that differ, and whose numbers the groups could determine."""
    width = problem.num_logits * problem.rows.num_features
    if spread == "none" or width == 1:
        return ("isotropic",)
    return ("isotropic", "diagonal", "full") if width <= _WIDEST_FULL else ("isotropic", "diagonal")


def _try(
    problem: MixtureProblem,
    evidence: MixtureEvidence,
    rules: MixtureRules,
    start: MixtureParameters,
) -> _Tried:
    """A short climb: superfluous components converge slowly, and a comparison needs no more."""
    groups = problem.num_groups
    near = em.climb(
        evidence,
        start,
        rules,
        exact=problem.exact,
        most_rounds=50,
        tolerance=(_NEAR if problem.exact else _NEAR_OF_CLASSES) * groups,
    )
    count, width = near.parts.means.shape
    free = num_mixture_parameters(count, width, len(near.parts.fixed), rules)
    deviance = -2 * near.log_likelihood
    return _Tried(deviance + free * float(np.log(groups)), deviance, near.parts, rules, evidence)


def _best(tried: list[_Tried], *, margin: float) -> _Tried:
    """The least BIC; with a `margin`, more components need more than fewer numbers.

    Their BIC has to be lower by the margin, and so does their deviance, -2 log L: a simple form
    with two components may have fewer numbers than a full one with one, which is no evidence of
    kinds.
    """
    order = sorted(tried, key=lambda each: (each.num_components, each.criterion))
    best = order[0]
    for each in order[1:]:
        fewer = [other.deviance for other in tried if other.num_components < each.num_components]
        clear = not margin or each.deviance < min(fewer, default=np.inf) - margin
        more = each.num_components > best.num_components
        if each.criterion < best.criterion - more * margin and (clear or not more):
            best = each
    return best


def _note(best: _Tried, tried: list[_Tried]) -> str:
    others = [each for each in tried if each is not best]
    if not others:
        return f"{best.name}: no other number was possible."
    following = min(others, key=lambda each: each.criterion)
    margin = following.criterion - best.criterion
    if margin < 0:
        return (
            f"{best.name} picked by BIC: {following.name} would be {-margin:.1f} lower, which is "
            "no clear evidence of kinds."
        )
    return f"{best.name} picked by BIC, {margin:.1f} below {following.name}."


def without_dead(
    problem: MixtureProblem, evidence: MixtureEvidence, rules: MixtureRules, reached: MixtureClimb
) -> tuple[MixtureClimb, tuple[str, ...]]:
    """Remove the components that no group belongs to, and continue EM."""
    alive = reached.parts.shares * problem.num_groups >= _DEAD
    if alive.all() or not alive.any():
        return reached, ()
    shares, means, covariances = (each[alive] for each in reached.parts[:3])
    parts = MixtureParameters(shares / shares.sum(), means, covariances, *reached.parts[3:])
    again = _learn(problem, evidence, rules, parts)
    note = f"{int((~alive).sum())} of {len(alive)} components had no members and were removed."
    whole = again._replace(
        rounds=reached.rounds + again.rounds, history=reached.history + again.history
    )
    return whole, (note,)


def _learn(
    problem: MixtureProblem,
    evidence: MixtureEvidence,
    rules: MixtureRules,
    start: MixtureParameters,
) -> MixtureClimb:
    """EM to convergence."""
    exact = problem.exact or rules.spread == "none"
    return em.climb(
        evidence,
        start,
        rules,
        exact=problem.exact,
        most_rounds=_MOST_ROUNDS,
        tolerance=(_TOLERANCE if exact else _ROUGH) * problem.num_groups,
    )
