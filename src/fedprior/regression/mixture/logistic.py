"""The client's half of EM for a mixture of logistic or softmax regressions.

Exact if all members of a component are equal. Otherwise theta is integrated out under each
component by expectation propagation for two classes, which is nearly exact, and by Laplace's
approximation for more, which underestimates variances if groups have few rows (ERRATA 37).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedprior.regression.logistic.laws import terms_at, weighed
from fedprior.regression.logistic.parts import ClassBlock, across, along, flat, spread_out
from fedprior.regression.logistic.posterior import laplace_posterior, propagated_posterior
from fedprior.regression.mixture.batches import padded
from fedprior.regression.mixture.linear import MixturePosterior
from fedprior.regression.mixture.parts import MixtureParameters
from fedprior.regression.mixture.totals import MixtureTotals, responsibilities, sum_totals
from fedprior.regression.packed import pack
from fedprior.regression.rows import GroupedRows

_MOST_SWEEPS = 40
_MORE_SWEEPS = 2  # with a warm start from the previous round


class LogisticBatch(NamedTuple):
    """Groups of similar size, with rows expanded over the classes.

    From row `sizes` on everything is 0: no score and no information, only a constant to subtract.
    """

    part: ClassBlock
    sizes: np.ndarray  # (g,)
    both: np.ndarray  # (g, n, c, q + p), [x, fixed]


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticEvidence:
    """P(y = c) ~ exp(x theta_i[c] + fixed beta[c]) for every group, class 0 the reference.

    `memory` is the state of each group's integral in the previous round, used as a warm start.
    """

    batches: tuple[LogisticBatch, ...]
    num_groups: int
    memory: dict[tuple[int, int], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: GroupedRows, num_classes: int) -> "LogisticEvidence":
        """The groups' rows, with one-hot classes."""
        classes = np.arange(1, num_classes)
        batches = []
        for groups, sizes, table in padded(rows, copies=(num_classes - 1) ** 2):
            x, fixed = np.split(table[:, :, :-1], [rows.num_features], axis=2)
            x, fixed = spread_out(x, num_classes - 1), spread_out(fixed, num_classes - 1)
            part = ClassBlock(groups, x, fixed, (table[:, :, -1:] == classes) * 1.0)
            batches.append(LogisticBatch(part, sizes, np.concatenate([x, fixed], axis=3)))
        return cls(batches=tuple(batches), num_groups=rows.num_groups)

    def total(self, parts: MixtureParameters) -> MixtureTotals:
        """The sum of all groups' messages."""
        return sum_totals(
            logistic_mixture_totals(batch, parts, self._views(number, parts))
            for number, batch in enumerate(self.batches)
        )

    def posterior(self, parts: MixtureParameters) -> MixturePosterior:
        """The posterior of every group's theta."""
        posterior = MixturePosterior.without_rows(parts, self.num_groups)
        if parts.covariances.any():
            packed = np.tile(pack(parts.covariances), (self.num_groups, 1, 1))
            posterior = posterior._replace(triangles=packed)
        for number, batch in enumerate(self.batches):
            views, groups = self._views(number, parts), batch.part.groups
            table, level = responsibilities((each.log_density for each in views), parts)
            posterior.responsibilities[groups] = table
            posterior.log_likelihood[groups] = level
            for place, view in enumerate(views):
                posterior.theta[groups, place] = view.theta
                if posterior.triangles is not None and view.spread is not None:
                    factor = np.linalg.cholesky(parts.covariances[place])
                    own = factor @ view.spread @ factor.T
                    posterior.triangles[groups, place] = pack(own)
                    posterior.variances[groups, place] = np.diagonal(own, axis1=1, axis2=2)
        return posterior

    def _views(self, number: int, parts: MixtureParameters) -> list["LogisticView"]:
        views = []
        for place in range(len(parts.shares)):
            before = self.memory.get((number, place))
            seen, self.memory[number, place] = view(self.batches[number], parts, place, before)
            views.append(seen)
        return views


class LogisticView(NamedTuple):
    """Groups under one component."""

    theta: np.ndarray  # (g, q), posterior mean
    spread: np.ndarray | None  # (g, q, q), of z where theta = mean + factor z; None: no spread
    scores: np.ndarray  # (g, q + p)
    information: np.ndarray  # (g, q + p, q + p)
    log_density: np.ndarray  # (g,)


def logistic_mixture_totals(
    batch: LogisticBatch, parts: MixtureParameters, views: list[LogisticView]
) -> MixtureTotals:
    """Sum over groups of alpha (1, g, J, h h'), with theta integrated out."""
    size = parts.means.shape[1]
    table, level = responsibilities((each.log_density for each in views), parts)
    pairs = list(zip(views, table.T, strict=True))
    own = [each.scores[:, :size] for each in views]
    return MixtureTotals(
        table.sum(axis=0),
        np.stack([alpha @ each.scores for each, alpha in pairs]),
        np.stack([np.tensordot(alpha, each.information, 1) for each, alpha in pairs]),
        np.stack([(h * alpha[:, None]).T @ h for h, alpha in zip(own, table.T, strict=True)]),
        np.zeros(len(views)),
        float(batch.sizes.sum()),
        float(level.sum()),
    )


def view(
    batch: LogisticBatch, parts: MixtureParameters, place: int, memory: Any
) -> tuple[LogisticView, Any]:
    """The groups under one component, and the memory of the integral."""
    part, mean, covariance = batch.part, parts.means[place], parts.covariances[place]
    odds = flat(batch.both) @ np.concatenate([mean, parts.fixed])
    odds = odds.reshape(part.y.shape)
    filled = (part.y.shape[1] - batch.sizes) * np.log(1 + part.y.shape[2])
    if not covariance.any():
        terms = terms_at(odds, part.y)
        theta = np.tile(mean, (len(odds), 1))
        information = across(batch.both, weighed(terms.expected, batch.both))
        scores, density = along(batch.both, terms.pull), terms.log_likelihood + filled
        return LogisticView(theta, None, scores, information, density), None
    factor = np.linalg.cholesky(covariance)
    design = part.x @ factor
    solve = propagated_posterior if part.y.shape[2] == 1 else laplace_posterior
    sweeps = _MOST_SWEEPS if memory is None else _MORE_SWEEPS
    latent, memory = solve(part, design, odds, memory, sweeps)
    weighted = latent.weigh(batch.both)
    seen = across(design, weighted)  # the information through theta, which is integrated out
    information = across(batch.both, weighted)
    information = information - np.swapaxes(seen, 1, 2) @ latent.spread @ seen
    theta = mean + latent.mean @ factor.T
    scores, density = along(batch.both, latent.pull), latent.evidence + filled
    return LogisticView(theta, latent.spread, scores, information, density), memory
