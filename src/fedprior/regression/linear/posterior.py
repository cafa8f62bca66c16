"""theta_i given its rows and the population (Thm6), for any covariance and any size."""

from typing import NamedTuple

import numpy as np

from fedprior.regression.linear.reduction import CELLS, top_rows, whiten
from fedprior.regression.result import RegressionPopulation
from fedprior.regression.rows import GroupedRows


class Conditioned(NamedTuple):
    """Posteriors of a batch of groups, in units of the noise variance.

    theta_i - mean ~ N(shift, noise (relative - pull'pull)): `shift` (g, d), `pull` (g, k, d).
    `white` (g, k, ...) are the whitened rows, `log_determinant` (g,) that of I + X relative X'.
    """

    shift: np.ndarray
    pull: np.ndarray
    white: np.ndarray
    log_determinant: np.ndarray


def condition(columns: np.ndarray, relative: np.ndarray) -> Conditioned:
    """E[theta - mean] = relative X'V^-1 r, V = I + X relative X', in min(n, d) dimensions.

    `columns` (g, n, ...) begin with the d features and end with the residual r about the mean.
    """
    width = len(relative)
    white, log_determinant = whiten(top_rows(columns, width), relative, width=width)
    pull = white[..., :width] @ relative
    shift = (white[:, None, :, -1] @ pull)[:, 0]
    return Conditioned(shift, pull, white, log_determinant)


def posterior(
    rows: GroupedRows,
    population: RegressionPopulation,
    *,
    coefficient_covariance: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """E[theta_i | y_i] and its standard deviations, (m, d) each; a group without rows has the mean.

    If the population is known, sum(errors**2) of a group is its mean squared error, Thm6's trace.
    With `coefficient_covariance` (d + p, d + p), that of the estimated (mean, fixed), the errors
    are those of the prediction theta^_i - theta_i: J C J' is added, J = [I, 0] - relative X'V^-1 Z,
    as mixed-model software does.
    """
    noise = population.noise_variance or 1.0
    relative, width = population.covariance / noise, len(population.mean)
    theta = np.tile(population.mean, (rows.num_groups, 1))
    empty = np.diag(population.covariance).copy()
    if coefficient_covariance is not None:
        empty += np.diag(coefficient_covariance)[:width]
    variance = np.tile(empty, (rows.num_groups, 1))
    for block in rows.blocks(cells=CELLS):
        residual = block.y - block.x @ population.mean - block.fixed @ population.fixed
        columns = np.concatenate([block.x, block.fixed, residual[..., None]], axis=2)
        conditioned = condition(columns, relative)
        theta[block.groups] += conditioned.shift
        variance[block.groups] -= noise * (conditioned.pull**2).sum(axis=1)
        if coefficient_covariance is not None:
            design = conditioned.white[..., :-1]
            moved = design @ coefficient_covariance
            inner = moved @ design.transpose(0, 2, 1)
            change = inner @ conditioned.pull - 2 * moved[..., :width]
            variance[block.groups] += (conditioned.pull * change).sum(axis=1)
    return theta, np.sqrt(np.maximum(variance, 0.0))
