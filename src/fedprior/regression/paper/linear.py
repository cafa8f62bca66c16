"""The paper's Algorithm 2: gradient steps on the joint objective of all thetas and gamma.

That objective is unbounded below as the spread or the noise tends to 0 (ERRATA 31), and no single
rate is stable for all parameters (ERRATA 32). So it uses log-variances with floors, a fixed number
of steps, and rates in units of each parameter's curvature.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.regression.linear.answer import known_linear
from fedprior.regression.linear.em import LinearGamma
from fedprior.regression.linear.posterior import posterior
from fedprior.regression.linear.reduction import CELLS
from fedprior.regression.result import RegressionFit, RegressionPopulation
from fedprior.regression.rows import Block, GroupedRows


class LinearDescent(NamedTuple):
    """theta (m, d) and gamma after the last step, and which floors are active."""

    theta: np.ndarray
    gamma: LinearGamma
    spread_at_floor: bool
    noise_at_floor: bool


def check_printed(owner: str, rows: GroupedRows, covariance: str) -> None:
    """Raise for options that the printed algorithms do not have."""
    remedy = 'The printed algorithm has no other: use method="default" or "em".'
    isotropic = covariance == "isotropic"
    check.require(isotropic, owner, "covariance", "isotropic with paper", covariance, remedy)
    count = rows.num_fixed
    check.require(count == 0, owner, "fixed", "without columns with paper", count, remedy)


def paper_linear(
    rows: GroupedRows, start: RegressionPopulation, *, steps: int, rate: float, floor: float
) -> RegressionFit:
    """Algorithm 2 from `start`, with notes on the floors that it ends on."""
    width = rows.num_features
    spread = float(np.trace(start.covariance)) / width
    check.require(spread > 0, "fit_linear", "start", "with a positive spread", spread)
    begin = replace(start, covariance=spread * np.eye(width))
    descent = descend_linear(rows, begin, steps=steps, rate=rate, floor=floor)
    notes = []
    if descent.spread_at_floor:
        notes.append(
            "The floor of the spread is active: the joint objective falls without end as every "
            "theta approaches the mean (ERRATA 31), so theta is nearly pooled."
        )
    if descent.noise_at_floor:
        notes.append(
            "The floor of the noise is active: the joint objective falls without end as every "
            "theta interpolates its rows (ERRATA 31), so theta is nearly local."
        )
    population = descent.gamma.population()
    return known_linear(
        rows, population, method="paper", theta=descent.theta, notes=tuple(notes), rounds=steps
    )


def descend_linear(
    rows: GroupedRows, start: RegressionPopulation, *, steps: int, rate: float, floor: float
) -> LinearDescent:
    """`steps` steps of Algorithm 2 from Thm6's theta_i under `start`.

    theta_i moves by rate / (|X_i'X_i| / noise + 1 / spread) times its gradient; mean and
    log-variances likewise. Variances stay above `floor` times those of `start`. Only groups with
    rows take part; the others get the mean.
    """
    theta, _ = posterior(rows, start)
    mean, width = start.mean.copy(), rows.num_features
    first = np.log([np.trace(start.covariance) / width, start.noise_variance or 1.0])
    least, spread, noise = first + np.log(floor), *first
    taking = rows.sizes > 0
    average = rows.sizes[taking].mean()
    blocks = [(block, _sharpness(block)) for block in rows.blocks(cells=CELLS)]
    for _ in range(steps):
        squares = 0.0
        moved = theta.copy()
        for block, sharpness in blocks:
            here = theta[block.groups]
            residual = block.y - (block.x @ here[..., None])[..., 0]
            squares += float((residual**2).sum())
            change = (residual[:, None, :] @ block.x)[:, 0] / np.exp(noise)
            change += (mean - here) / np.exp(spread)
            curvature = sharpness / np.exp(noise) + np.exp(-spread)
            moved[block.groups] += rate * change / curvature[:, None]
        apart = theta[taking] - mean
        mean = mean + rate * apart.mean(axis=0)
        ratios = np.array(
            [
                (apart**2).sum() / (apart.size * np.exp(spread)),
                squares / (taking.sum() * average * np.exp(noise)),
            ]
        )
        spread, noise = np.maximum(np.array([spread, noise]) - rate * (1 - ratios), least)
        theta = moved
    theta[~taking] = mean
    gamma = LinearGamma(mean, np.exp(spread) * np.eye(width), start.fixed, float(np.exp(noise)))
    return LinearDescent(theta, gamma, bool(spread <= least[0]), bool(noise <= least[1]))


def _sharpness(block: Block) -> np.ndarray:
    """The largest eigenvalue of each X'X, (g,)."""
    x, turned = block.x, block.x.transpose(0, 2, 1)
    small = x @ turned if x.shape[1] <= x.shape[2] else turned @ x
    return np.linalg.eigvalsh(small)[:, -1]
