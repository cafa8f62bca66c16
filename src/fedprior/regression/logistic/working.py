"""A linear regression whose likelihood is nearly that of a logistic one, group by group."""

import numpy as np

from fedprior.regression.logistic.gamma import LogisticGamma
from fedprior.regression.logistic.parts import ClassBlock, parts_of
from fedprior.regression.logistic.posterior import (
    LatentPosterior,
    laplace_posterior,
    odds_of,
    propagated_posterior,
)
from fedprior.regression.logistic.totals import posterior_of
from fedprior.regression.rows import GroupedRows

_SWEEPS = 50
_LEAST_WEIGHT = 1e-6  # a row whose class is certain says nothing more of theta


def working_rows(rows: GroupedRows, gamma: LogisticGamma, *, num_classes: int) -> GroupedRows:
    """Rows of a linear regression with noise variance 1, C - 1 of them for each row.

    A row's likelihood becomes the Gaussian by which expectation propagation (Laplace's
    approximation with more than two classes) replaces it under the population `gamma`: log odds a +
    W^-1 pull with precision W, divided by their standard deviation. The Gaussian changes little
    where the population does.
    """
    solve = propagated_posterior if num_classes == 2 else laplace_posterior
    x, fixed, y, place = [], [], [], []
    for part in parts_of(rows, num_classes):
        design, latent, _ = posterior_of(part, gamma, solve, None, sweeps=_SWEEPS)
        odds = odds_of(design, latent.mean) + part.x @ gamma.mean + part.fixed @ gamma.fixed
        lower = _root(part, latent)
        upper = lower.transpose(0, 1, 3, 2)
        own = np.linalg.solve(lower, latent.pull[..., None]) + upper @ odds[..., None]
        x.append((upper @ part.x).reshape(odds.size, -1))
        fixed.append((upper @ part.fixed).reshape(odds.size, part.fixed.shape[3]))
        y.append(own.ravel())
        place.append(np.repeat(part.groups, odds.shape[1] * odds.shape[2]))
    return GroupedRows.of(
        np.concatenate(x),
        np.concatenate(y),
        np.concatenate(place),
        rows.num_groups,
        fixed=np.concatenate(fixed),
    )


def _root(part: ClassBlock, latent: LatentPosterior) -> np.ndarray:
    """The Cholesky factor (g, n, c, c) of each row's precision W."""
    unit = np.eye(part.y.shape[2])
    weight = latent.weigh(np.broadcast_to(unit, (*part.y.shape, len(unit))))
    return np.linalg.cholesky(weight + _LEAST_WEIGHT * unit)
