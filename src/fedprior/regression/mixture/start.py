"""Where EM of a mixture of regressions starts: k-means++ among the groups' ridge estimates."""

from typing import Literal, NamedTuple

import numpy as np

from fedprior.core import random
from fedprior.estimation.mixture.start import seeds
from fedprior.regression.logistic.gamma import LogisticGamma
from fedprior.regression.logistic.working import working_rows
from fedprior.regression.mixture.em import MixtureClimb, MixtureEvidence, climb
from fedprior.regression.mixture.linear import LinearEvidence
from fedprior.regression.mixture.logistic import LogisticEvidence
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules
from fedprior.regression.result import Covariance, Family
from fedprior.regression.rows import GroupedRows

# Enough groups to rank the starts; the best one is then fitted to all groups.
_START_GROUPS = 5000
_START_GROUPS_OF_CLASSES = 1000
_SINGLE_ROUNDS = 50
_FIRST_ROUNDS = 2
_MORE_ROUNDS = 10
_KEPT = 3
_ENOUGH = 1e-6  # of the log-likelihood per group and step: starts are ranked, not finished
_ENOUGH_OF_CLASSES = 1e-4
# Relative to the sampling variance of a coefficient in an average group: 1000 such groups could not
# distinguish a smaller variance from 0.
_SPREAD_FLOOR = 1e-6
_NOISE_FLOOR = 1e-10  # of the variance of y


class MixtureProblem(NamedTuple):
    """The rows and their family; `noise` is None if it is learned."""

    rows: GroupedRows
    family: Family
    num_classes: int
    noise: float | None

    @property
    def exact(self) -> bool:
        """Whether the log-likelihood is quadratic in theta."""
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
        """A sample of at most 5,000 groups that have rows, or 1,000 for classes."""
        there = np.flatnonzero(self.rows.sizes > 0)
        most = _START_GROUPS if self.exact else _START_GROUPS_OF_CLASSES
        if len(there) <= most:
            return self
        chosen = random.stream(seed, "split").choice(there, most, replace=False)
        keep = np.isin(self.rows.place, chosen)
        return self._replace(rows=self.rows.subset(keep))


class Starts(NamedTuple):
    """Common data of all starts: a sample of groups, a single component, and ridge estimates.

    For classes with spread, `evidence` is that of a linear regression with nearly the same
    likelihood, which takes a tenth of the time: starts are ranked, not finished.
    """

    rules: MixtureRules
    evidence: MixtureEvidence
    exact: bool
    tolerance: float
    parts: MixtureParameters
    points: np.ndarray  # (groups with rows, q)

    @classmethod
    def of(cls, problem: MixtureProblem, rules: MixtureRules, seed: int) -> "Starts":
        """Fit theta_i ~ N(mean, covariance), a ridge whose penalty is learned from the groups."""
        some = problem.some(seed)
        own = some.rules("component", rules.covariance)
        evidence = some.evidence(own)
        tolerance = (_ENOUGH if some.exact else _ENOUGH_OF_CLASSES) * some.num_groups
        first = _first(some, own)
        single = climb(
            evidence, first, own, exact=some.exact, most_rounds=_SINGLE_ROUNDS, tolerance=tolerance
        ).parts
        points = evidence.posterior(single).theta[some.rows.sizes > 0, 0]
        evidence, exact = some.evidence(rules), some.exact
        if not exact and rules.spread == "component":
            gamma = LogisticGamma(
                mean=single.means[0],
                factor=np.linalg.cholesky(single.covariances[0]),
                fixed=single.fixed,
            )
            working = working_rows(some.rows, gamma, num_classes=some.num_classes)
            evidence, exact = LinearEvidence.of(working, rules), True
        return cls(rules, evidence, exact, tolerance, single, points)

    def best(self, num_components: int, *, restarts: int, seed: int) -> MixtureParameters:
        """The start of highest likelihood among `restarts` k-means++ draws, after a little EM.

        All draws get 2 rounds, and the best three 10 more. Coefficients are compared in units of
        their standard deviation over the groups.
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
        return climb(
            self.evidence,
            parts,
            self.rules,
            exact=self.exact,
            most_rounds=rounds,
            tolerance=self.tolerance,
        )

    def _around(self, centers: np.ndarray) -> MixtureParameters:
        """Equal shares, with the covariance of all thetas divided among the components."""
        count = len(centers)
        share = 1 / count**2 if self.rules.spread == "component" else 0.0
        covariances = np.tile(share * self.parts.covariances[0], (count, 1, 1))
        return self.parts._replace(
            shares=np.full(count, 1 / count), means=centers, covariances=covariances
        )


def _first(problem: MixtureProblem, rules: MixtureRules) -> MixtureParameters:
    """Zero coefficients; half of the variance of y is noise and half is between groups."""
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
