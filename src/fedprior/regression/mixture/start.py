"""Where EM of a mixture of regressions starts: k-means++ among the groups' ridge estimates."""

from typing import Literal, NamedTuple

import numpy as np

from fedprior.core import random
from fedprior.estimation.mixture.start import seeds
from fedprior.regression.mixture.em import MixtureClimb, MixtureEvidence, climb
from fedprior.regression.mixture.linear import LinearEvidence
from fedprior.regression.mixture.logistic import LogisticEvidence
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules
from fedprior.regression.result import Covariance, Family
from fedprior.regression.rows import GroupedRows

# Enough to rank the starts; the winner then sees every group. Integrals make logistic ones slow.
_START_GROUPS = 5000
_START_GROUPS_OF_CLASSES = 1000
_SINGLE_ROUNDS = 50
_FIRST_ROUNDS = 2
_MORE_ROUNDS = 10
_KEPT = 3
_ENOUGH = 1e-6  # of the log-likelihood per group and step: starts are ranked, not finished
_ENOUGH_OF_CLASSES = 1e-4
# Of the sampling variance of a coefficient in an average group: 1000 such groups could not tell a
# smaller one from none.
_SPREAD_FLOOR = 1e-6
_NOISE_FLOOR = 1e-10  # of the variance of y


class MixtureProblem(NamedTuple):
    """Rows and how they are to be read; `noise` is None where it is learned."""

    rows: GroupedRows
    family: Family
    num_classes: int
    noise: float | None

    @property
    def exact(self) -> bool:
        """Whether the likelihood of theta is a quadratic."""
        return self.family == "gaussian"

    @property
    def num_groups(self) -> int:
        """Groups that have rows."""
        return int((self.rows.sizes > 0).sum())

    @property
    def num_logits(self) -> int:
        return 1 if self.exact else self.num_classes - 1

    def rules(self, spread: Literal["component", "none"], covariance: Covariance) -> MixtureRules:
        """Floors in the units of the data."""
        rows = self.rows
        length = float((rows.x**2).sum()) / (rows.num_features * max(self.num_groups, 1))
        variance = float(rows.y.var()) if self.exact else 4.0
        return MixtureRules(
            spread=spread,
            covariance=covariance,
            learns_noise=self.exact and self.noise is None,
            spread_floor=max(_SPREAD_FLOOR * variance / max(length, 1e-300), 1e-200),
            noise_floor=max(_NOISE_FLOOR * variance, 1e-200),
        )

    def evidence(self, rules: MixtureRules) -> MixtureEvidence:
        if self.exact:
            return LinearEvidence.of(self.rows, rules)
        return LogisticEvidence.of(self.rows, self.num_classes)

    def some(self, seed: int) -> "MixtureProblem":
        """At most 5,000 of the groups that have rows, 1,000 where targets are classes."""
        there = np.flatnonzero(self.rows.sizes > 0)
        most = _START_GROUPS if self.exact else _START_GROUPS_OF_CLASSES
        if len(there) <= most:
            return self
        chosen = random.stream(seed, "split").choice(there, most, replace=False)
        keep = np.isin(self.rows.place, chosen)
        return self._replace(rows=self.rows.subset(keep))


class Starts(NamedTuple):
    """What all starts share: some groups, one component for all of them, and their estimates."""

    problem: MixtureProblem
    rules: MixtureRules
    evidence: MixtureEvidence
    parts: MixtureParameters
    points: np.ndarray  # (groups with rows, q)

    @classmethod
    def of(cls, problem: MixtureProblem, rules: MixtureRules, seed: int) -> "Starts":
        """theta_i ~ N(mean, covariance): the ridge whose penalty the groups themselves decide."""
        some = problem.some(seed)
        own = some.rules("component", rules.covariance)
        evidence = some.evidence(own)
        single = _climb(some, evidence, _first(some, own), own, _SINGLE_ROUNDS)
        theta = evidence.posterior(single.parts).theta[:, 0]
        return cls(some, rules, some.evidence(rules), single.parts, theta[some.rows.sizes > 0])

    def best(self, num_components: int, *, restarts: int, seed: int) -> MixtureParameters:
        """The start of highest likelihood among `restarts` k-means++ draws, after a little EM.

        All draws get 2 rounds and the best three 10 more. Coefficients are compared in units of
        their own scatter over the groups.
        """
        if num_components == 1:
            return self._around(self.parts.means)
        scale = self.points.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        weight = np.ones(len(self.points))
        climbs: list[MixtureClimb] = []
        for number in range(restarts):
            draws = random.stream(seed, "init", number)
            centers = scale * seeds(self.points / scale, weight, num_components, draws)
            climbs.append(self._climb(self._around(centers), _FIRST_ROUNDS))
        climbs.sort(key=lambda each: -each.log_likelihood)
        again = [self._climb(each.parts, _MORE_ROUNDS) for each in climbs[:_KEPT]]
        return max(again, key=lambda each: each.log_likelihood).parts

    def _climb(self, parts: MixtureParameters, rounds: int) -> MixtureClimb:
        return _climb(self.problem, self.evidence, parts, self.rules, rounds)

    def _around(self, centers: np.ndarray) -> MixtureParameters:
        """Equal shares; the spread of all thetas divided among the components."""
        count = len(centers)
        share = 1 / count**2 if self.rules.spread == "component" else 0.0
        covariances = np.tile(share * self.parts.covariances[0], (count, 1, 1))
        return self.parts._replace(
            shares=np.full(count, 1 / count), means=centers, covariances=covariances
        )


def _climb(
    problem: MixtureProblem,
    evidence: MixtureEvidence,
    parts: MixtureParameters,
    rules: MixtureRules,
    rounds: int,
) -> MixtureClimb:
    return climb(
        evidence,
        parts,
        rules,
        exact=problem.exact,
        most_rounds=rounds,
        tolerance=(_ENOUGH if problem.exact else _ENOUGH_OF_CLASSES) * problem.num_groups,
    )


def _first(problem: MixtureProblem, rules: MixtureRules) -> MixtureParameters:
    """Zero coefficients, half of y's variance for the noise and half for the spread."""
    rows, size = problem.rows, problem.num_logits * problem.rows.num_features
    variance = max(float(rows.y.var()) if problem.exact else 1.0, rules.noise_floor)
    length = max(float((rows.x**2).sum(axis=1).mean()), 1e-300)
    noise = (problem.noise or variance / 2) if problem.exact else 1.0
    return MixtureParameters(
        np.ones(1),
        np.zeros((1, size)),
        max(variance / 2 / length, rules.spread_floor) * np.eye(size)[None],
        np.zeros(problem.num_logits * rows.num_fixed),
        noise,
    )
