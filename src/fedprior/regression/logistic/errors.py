"""Standard errors of the population, and the posterior of every group with them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedprior.regression.logistic.ascend import Ascent
from fedprior.regression.logistic.gamma import CovarianceShape, LogisticGamma, outward, step_gamma
from fedprior.regression.logistic.parts import ClassBlock
from fedprior.regression.logistic.posterior import Solve
from fedprior.regression.logistic.steps import EvidenceProblem
from fedprior.regression.logistic.totals import posterior_of, through_fixed
from fedprior.regression.packed import pack
from fedprior.regression.turn import TurnBack

# With more groups the scores' outer product differs from the curvature by a few percent and costs
# nothing; with fewer groups the curvature is computed by differences.
_MANY = 1000
_STRIDE = 1e-3  # step of a difference, in standard deviations of the population
_SWEEPS = 50
_FEW_SWEEPS = 8  # starting from a converged posterior at such a distance


class Uncertainty(NamedTuple):
    """Covariance (D + P, D + P) of (mean in z, fixed), and standard errors of the parameters."""

    coefficients: np.ndarray
    mean: np.ndarray
    fixed: np.ndarray
    covariance: np.ndarray


class Posteriors(NamedTuple):
    """E theta_i (m, D), its standard deviations, and the total evidence.

    `triangles` are the packed covariances of theta_i given the population (`packed.pack`).
    """

    theta: np.ndarray
    errors: np.ndarray
    triangles: np.ndarray
    evidence: float


def uncertainty(problem: EvidenceProblem, ascent: Ascent, back: TurnBack) -> Uncertainty | None:
    """Standard errors from the observed information; None if it is not positive definite.

    If a variance is at its bound, the covariance has errors NaN, and those of mean and fixed treat
    it as known. Errors refer to the original coefficients, see `back`.
    """
    gamma, totals = ascent.gamma, ascent.totals
    bound = any(problem.shape.at_bounds(gamma.covariance))
    both, width = len(totals.information), totals.width
    if bound:
        information = problem.penalized(gamma, totals)[1]
    elif totals.num_groups > _MANY:
        information = problem.penalized(gamma, totals)[2]
    else:
        information = _by_differences(problem, ascent)
    if np.linalg.eigvalsh(information)[0] <= 0:
        return None
    inverse = np.linalg.inv(information)
    errors = np.full((width, width), np.nan)
    factor = back.x @ gamma.factor
    if not bound:
        errors = _entry_errors(problem.shape, factor, inverse[both:, both:])
    slope = np.block([[factor, back.cross], [np.zeros_like(back.cross).T, back.fixed]])
    deviations = np.sqrt(((slope @ inverse[:both, :both]) * slope).sum(axis=1))
    return Uncertainty(inverse[:both, :both], deviations[:width], deviations[width:], errors)


def posteriors(
    parts: Sequence[ClassBlock],
    gamma: LogisticGamma,
    solve: Solve,
    memory: Sequence[Any],
    *,
    num_groups: int,
    coefficients: np.ndarray | None,
    back: TurnBack,
) -> Posteriors:
    """The posterior of every group's theta.

    With `coefficients`, the covariance of (mean in z, fixed), the errors include their uncertainty:
    a change of the mean moves E theta by factor spread, one of fixed by -factor spread design' W
    fixed. `back` leads from the coefficients of `gamma` to the original ones.
    """
    outer = outward(gamma, back)
    doubt = np.zeros((back.x.shape[1] + back.cross.shape[1],) * 2)
    doubt = doubt if coefficients is None else coefficients
    slope = np.concatenate([outer.factor, back.cross], axis=1)
    theta = np.tile(outer.mean, (num_groups, 1))
    variance = np.tile(
        np.diag(outer.covariance) + ((slope @ doubt) * slope).sum(axis=1), (num_groups, 1)
    )
    triangles = np.tile(pack(outer.covariance), (num_groups, 1))
    evidence = 0.0
    for part, before in zip(parts, memory, strict=True):
        design, latent, _ = posterior_of(part, gamma, solve, before, sweeps=_SWEEPS)
        evidence += float(latent.evidence.sum())
        theta[part.groups] = outer.mean + latent.mean @ outer.factor.T
        own = outer.factor @ latent.spread @ outer.factor.T
        triangles[part.groups] = pack(own)
        variance[part.groups] = np.diagonal(own, axis1=1, axis2=2)
        if coefficients is not None:
            through = back.cross - outer.factor @ through_fixed(part, design, latent)[2]
            slope = np.concatenate([outer.factor @ latent.spread, through], axis=-1)
            variance[part.groups] += ((slope @ doubt) * slope).sum(axis=-1)
    return Posteriors(theta, np.sqrt(variance), triangles, evidence)


def _by_differences(problem: EvidenceProblem, ascent: Ascent) -> np.ndarray:
    """Minus the slope of the score, by central differences in every coordinate."""
    size = len(ascent.totals.score)
    rows = []
    for place in range(size):
        step = np.zeros(size)
        step[place] = _STRIDE
        sides = []
        for sign in (1, -1):
            gamma = step_gamma(ascent.gamma, problem.shape, sign * step)
            _, totals, _ = problem.at(gamma, ascent.memory, sweeps=_FEW_SWEEPS)
            sides.append(problem.penalized(gamma, totals)[0])
        rows.append((sides[1] - sides[0]) / (2 * _STRIDE))
    information = np.array(rows)
    return (information + information.T) / 2


def _entry_errors(shape: CovarianceShape, factor: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Errors of the entries of the covariance, which growth changes by factor growth factor'."""
    directions = [factor @ shape.growth(each) @ factor.T for each in np.eye(len(inverse))]
    variance = np.einsum("kab,kl,lab->ab", directions, inverse, directions, optimize=True)
    return np.sqrt(np.maximum(variance, 0.0))
