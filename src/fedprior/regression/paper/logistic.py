"""The paper's Algorithm 3 with corrected signs: gradient steps on the joint objective.

That objective is unbounded below for theta_i = mean as the spread tends to 0 (ERRATA 37). So it
uses the log-variance with a floor and a fixed number of steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedprior.regression.logistic.errors import posteriors
from fedprior.regression.logistic.gamma import LogisticGamma
from fedprior.regression.logistic.laws import terms_at
from fedprior.regression.logistic.parts import ClassBlock, across, along
from fedprior.regression.logistic.posterior import laplace_posterior, odds_of
from fedprior.regression.result import RegressionFit, gaussian_population
from fedprior.regression.rows import GroupedRows
from fedprior.regression.turn import unturned


class LogisticDescent(NamedTuple):
    """theta (m, D), mean and variance after the last step, and whether the floor is active."""

    theta: np.ndarray
    mean: np.ndarray
    variance: float
    at_floor: bool


def paper_logistic(
    rows: GroupedRows,
    blocks: list[ClassBlock],
    start: LogisticGamma,
    *,
    steps: int,
    rate: float,
    floor: float,
) -> RegressionFit:
    """Algorithm 3 from `start`, with Laplace's standard errors at the population it ends with."""
    width = len(start.mean)
    variance = float(np.trace(start.covariance)) / width
    descent = descend_logistic(
        blocks,
        start.mean,
        variance,
        num_groups=rows.num_groups,
        steps=steps,
        rate=rate,
        floor=floor,
    )
    factor = np.eye(width) * np.sqrt(descent.variance)
    gamma = LogisticGamma(mean=descent.mean, factor=factor, fixed=start.fixed)
    known = posteriors(
        blocks,
        gamma,
        laplace_posterior,
        [None] * len(blocks),
        num_groups=rows.num_groups,
        coefficients=None,
        back=unturned(width, 0),
    )
    notes = ["Joint mode (paper, Algorithm 3): the spread is biased to 0 (ERRATA 37)."]
    if descent.at_floor:
        notes.append(f"Floor active: the variance is at {floor:g} times its start.")
    return RegressionFit(
        family="binomial" if blocks[0].y.shape[-1] == 1 else "multinomial",
        method="paper",
        criterion="ml",
        population=gaussian_population(gamma.mean, gamma.covariance, gamma.fixed),
        theta=descent.theta,
        errors=known.errors,
        responsibilities=np.ones((rows.num_groups, 1)),
        log_likelihood=None,
        rounds=steps,
        converged=True,
        notes=tuple(notes),
        means=descent.theta[:, None],
        triangles=known.triangles[:, None],
    )


def descend_logistic(
    parts: Sequence[ClassBlock],
    mean: np.ndarray,
    variance: float,
    *,
    num_groups: int,
    steps: int,
    rate: float,
    floor: float,
) -> LogisticDescent:
    """`steps` steps of Algorithm 3 from theta_i = mean; the variance stays above floor * start.

    theta_i <- theta_i - r (sum_j grad cross-entropy + (theta_i - mean) / variance): the paper
    prints mean - theta_i, which drives theta away from the mean (ERRATA 35), and minimizes the
    likelihood (34); all steps use the values of the step before (36). r is `rate` over the bound
    |X_i'X_i| / 4 + 1 / variance of the curvature (|X_i'X_i| / 2 for softmax), since no one rate
    suits all parameters; mean and log-variance likewise. Groups without rows have the mean.
    """
    theta = np.tile(mean, (num_groups, 1))
    least = np.log(variance * floor)
    level = np.log(variance)
    sharp = [np.linalg.eigvalsh(across(part.x, part.x))[:, -1] for part in parts]
    bend = 0.25 if parts[0].y.shape[-1] == 1 else 0.5
    taking = np.concatenate([part.groups for part in parts])
    for _ in range(steps):
        moved = theta.copy()
        for part, sharpness in zip(parts, sharp, strict=True):
            here = theta[part.groups]
            change = along(part.x, terms_at(odds_of(part.x, here), part.y).pull)
            change += (mean - here) / np.exp(level)
            curvature = bend * sharpness + np.exp(-level)
            moved[part.groups] += rate * change / curvature[:, None]
        apart = theta[taking] - mean
        mean = mean + rate * apart.mean(axis=0)
        level = max(level - rate * (1 - (apart**2).mean() / np.exp(level)), least)
        theta = moved
    theta[np.setdiff1d(np.arange(num_groups), taking)] = mean
    return LogisticDescent(theta, mean, float(np.exp(level)), bool(level <= least))
