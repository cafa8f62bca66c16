"""The search over starts, by likelihood, and over the number of components, by BIC."""

import numpy as np

from fedprior.estimation.selection import pick_by_bic
from fedprior.regression.mixture import em
from fedprior.regression.mixture.em import MixtureClimb, MixtureEvidence
from fedprior.regression.mixture.parts import (
    MixtureParameters,
    MixtureRules,
    num_mixture_parameters,
)
from fedprior.regression.mixture.start import MixtureProblem, Starts

MOST_COMPONENTS = 6
_MOST_ROUNDS = 200
_TOLERANCE = 1e-8  # of the log-likelihood per group and step
_ROUGH = 1e-6  # where the likelihood itself is an approximation
_DEAD = 0.5  # components with fewer expected members are removed


def search(
    problem: MixtureProblem,
    evidence: MixtureEvidence,
    rules: MixtureRules,
    num_components: int | str,
    *,
    restarts: int,
    seed: int,
) -> tuple[MixtureClimb, tuple[str, ...]]:
    """EM with the given number of components, or with the one of lowest BIC."""
    starts = Starts.of(problem, rules, seed)
    if not isinstance(num_components, str):
        start = starts.best(num_components, restarts=restarts, seed=seed)
        return _learn(problem, evidence, rules, start), ()
    groups = problem.num_groups
    tried = []
    for count in range(1, min(MOST_COMPONENTS, groups) + 1):
        start = starts.best(count, restarts=restarts, seed=seed)
        # Superfluous components converge slowly; an approximate maximum is enough for a comparison.
        near = em.climb(
            evidence, start, rules, exact=problem.exact, most_rounds=50, tolerance=1e-6 * groups
        )
        free = num_mixture_parameters(
            count, near.parts.means.shape[1], len(near.parts.fixed), rules
        )
        tried.append((-2 * near.log_likelihood + free * float(np.log(groups)), near.parts))
    best, note = pick_by_bic(tried)
    return _learn(problem, evidence, rules, best), (note,)


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
