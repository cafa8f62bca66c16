"""One pass over the groups: sums over their posteriors, which a server could compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma
from fedprior.regression.logistic.parts import ClassBlock, across, along
from fedprior.regression.logistic.posterior import LatentPosterior, Solve


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTotals:
    """Sums over groups, in the coordinates of a step (see `step_gamma`): mean, fixed, growth.

    `score` (D + P + q,) is the slope of the evidence, `outer` the sum of the groups' own scores
    times their transposes. `information` (D + P, D + P) is minus the curvature by mean and fixed
    with the rows' weights held; for the mean it is the sum of P = I - spread. `moment` (D, D) is
    the sum of mean mean' + spread - I, `square` that of P * P, elementwise.
    """

    evidence: float
    num_groups: int
    score: np.ndarray
    outer: np.ndarray
    information: np.ndarray
    moment: np.ndarray
    square: np.ndarray

    @property
    def width(self) -> int:
        """D."""
        return len(self.moment)


def survey(
    parts: Sequence[ClassBlock],
    gamma: LogisticGamma,
    shape: CovarianceShape,
    solve: Solve,
    memory: Sequence[Any],
    *,
    sweeps: int,
) -> tuple[ScoreTotals, list[Any]]:
    """The totals of all groups at `gamma`, and the memory of each block."""
    width, others = len(gamma.mean), len(gamma.fixed)
    score = np.zeros(width + others + shape.num_scales)
    outer = np.zeros((len(score), len(score)))
    information = np.zeros((width + others, width + others))
    moment, square = np.zeros((width, width)), np.zeros((width, width))
    evidence, kept, groups = 0.0, [], 0
    for part, before in zip(parts, memory, strict=True):
        design, latent, after = posterior_of(part, gamma, solve, before, sweeps=sweeps)
        kept.append(after)
        groups += len(part.groups)
        evidence += float(latent.evidence.sum())
        left = np.eye(width) - latent.spread
        excess = latent.mean[:, :, None] * latent.mean[:, None, :] - left
        moment += excess.sum(axis=0)
        square += (left**2).sum(axis=0)
        own = [latent.mean, along(part.fixed, latent.pull), 0.5 * shape.gather(excess)]
        scores = np.concatenate(own, axis=1)
        score += scores.sum(axis=0)
        outer += scores.T @ scores
        information[:width, :width] += left.sum(axis=0)
        if others:
            _add_fixed(information, part, design, latent)
    totals = ScoreTotals(
        evidence=evidence,
        num_groups=groups,
        score=score,
        outer=outer,
        information=information,
        moment=moment,
        square=square,
    )
    return totals, kept


def posterior_of(
    part: ClassBlock, gamma: LogisticGamma, solve: Solve, memory: Any, *, sweeps: int
) -> tuple[np.ndarray, LatentPosterior, Any]:
    """The design x factor, the posterior of z, and its memory."""
    design = part.x @ gamma.factor
    offset = part.shifted(part.x @ gamma.mean + part.fixed @ gamma.fixed)
    latent, after = solve(part, design, offset, memory, sweeps)
    return design, latent, after


def through_fixed(
    part: ClassBlock, design: np.ndarray, latent: LatentPosterior
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W fixed, design' W fixed, and spread times that, minus the slope of z's mean by fixed."""
    weighted = latent.weigh(part.fixed)
    link = across(design, weighted)
    return weighted, link, latent.spread @ link


def _add_fixed(
    information: np.ndarray, part: ClassBlock, design: np.ndarray, latent: LatentPosterior
) -> None:
    """Add the rows and columns of the fixed coefficients, with theta integrated out."""
    width = design.shape[-1]
    weighted, link, through = through_fixed(part, design, latent)
    cross = through.sum(axis=0)
    own = across(part.fixed, weighted) - link.transpose(0, 2, 1) @ through
    information[:width, width:] += cross
    information[width:, :width] += cross.T
    information[width:, width:] += own.sum(axis=0)
