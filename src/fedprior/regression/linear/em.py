"""Federated EM of many linear regressions (D5): what each group sends, and what the server does.

`linear_messages` is the client's half and `maximize_linear` the server's. Messages add, so they
also run behind a channel. They are increments relative to what the server sent: an absent group
contributes exactly zero.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.regression.linear.posterior import condition
from fedprior.regression.linear.reduction import CELLS
from fedprior.regression.linear.structure import expand, nearest_covariance
from fedprior.regression.result import Covariance, RegressionPopulation, gaussian_population
from fedprior.regression.rows import Block, GroupedRows


class LinearGamma(NamedTuple):
    """The server's parameters: theta_i ~ N(mean, covariance), y_i = x theta_i + fixed + noise."""

    mean: np.ndarray
    covariance: np.ndarray
    fixed: np.ndarray
    noise_variance: float

    def population(self) -> RegressionPopulation:
        """The same parameters as a population."""
        return gaussian_population(
            self.mean, self.covariance, self.fixed, noise_variance=self.noise_variance
        )


class LinearMessage(NamedTuple):
    """Messages of groups along a leading axis, or their total.

    `shift` is E theta - mean; `spread` is E (theta - mean)(theta - mean)' as a trace, a diagonal or
    a matrix; `squares` is E|y - X theta - F fixed|^2; `pull` and `normal` are F'E[...] and F'F.
    `log_likelihood` is that of the group at the received gamma, and is only recorded.
    """

    num_groups: np.ndarray
    num_rows: np.ndarray
    shift: np.ndarray
    spread: np.ndarray
    squares: np.ndarray
    pull: np.ndarray
    normal: np.ndarray
    log_likelihood: np.ndarray


def linear_messages(block: Block, gamma: LinearGamma, *, covariance: Covariance) -> LinearMessage:
    """Expected statistics of each group given its rows and gamma, along a leading axis."""
    noise, (groups, size, _) = gamma.noise_variance, block.x.shape
    relative = gamma.covariance / noise
    residual = block.y - block.x @ gamma.mean - block.fixed @ gamma.fixed
    conditioned = condition(np.concatenate([block.x, residual[..., None]], axis=2), relative)
    shift, pull, white = conditioned.shift, conditioned.pull, conditioned.white
    left = residual - (block.x @ shift[..., None])[..., 0]
    # tr(X Sigma X') = noise tr(I - V^-1) = noise tr(relative X'V^-1 X)
    doubt = noise * (white[..., :-1] * pull).sum(axis=(1, 2))
    # r'V^-1 r = r'(r - X shift)
    misfit = (residual * left).sum(axis=1) / noise
    log_likelihood = size * np.log(2 * np.pi * noise) + conditioned.log_determinant + misfit
    turned = block.fixed.transpose(0, 2, 1)
    return LinearMessage(
        num_groups=np.ones(groups),
        num_rows=np.full(groups, float(size)),
        shift=shift,
        spread=_second(shift, pull, relative, noise, covariance),
        squares=(left**2).sum(axis=1) + doubt,
        pull=(turned @ left[..., None])[..., 0],
        normal=turned @ block.fixed,
        log_likelihood=-log_likelihood / 2,
    )


def _second(
    shift: np.ndarray,
    pull: np.ndarray,
    relative: np.ndarray,
    noise: float,
    covariance: Covariance,
) -> np.ndarray:
    """Sigma + shift shift', or the part of it that the shape of the covariance needs."""
    if covariance == "full":
        sigma = noise * (relative - pull.transpose(0, 2, 1) @ pull)
        return sigma + shift[:, :, None] * shift[:, None, :]
    diagonal = shift**2 + noise * (np.diag(relative) - (pull**2).sum(axis=1))
    return diagonal if covariance == "diagonal" else diagonal.sum(axis=1)


def add_messages(first: LinearMessage, second: LinearMessage) -> LinearMessage:
    """The sum of two messages."""
    return LinearMessage(*(one + other for one, other in zip(first, second, strict=True)))


def sum_over_groups(sent: LinearMessage) -> LinearMessage:
    """The sum over the leading axis of groups."""
    return LinearMessage(*(each.sum(axis=0) for each in sent))


def maximize_linear(sent: LinearMessage, gamma: LinearGamma) -> LinearGamma:
    """The gamma of highest expected likelihood given the total message, without floors.

    mean = average theta, covariance = average (theta - mean)(theta - mean)' + Sigma in its shape,
    fixed by least squares, noise = (|y - X theta - F fixed|^2 + tr(X Sigma X')) / rows.
    """
    width = len(gamma.mean)
    step = sent.shift / sent.num_groups
    spread = sent.spread / sent.num_groups
    if spread.ndim == 2:
        values = spread - np.outer(step, step)
    elif spread.ndim == 1:
        values = spread - step**2
    else:
        values = (spread - step @ step) / width
    # Scale to a unit diagonal, because the features have units.
    length = np.sqrt(np.diag(sent.normal))
    length = np.where(length > 0, length, 1.0)
    scaled = np.linalg.pinv(sent.normal / np.outer(length, length), hermitian=True)
    move = scaled @ (sent.pull / length) / length
    return LinearGamma(
        mean=gamma.mean + step,
        covariance=expand(np.asarray(values), width=width),
        fixed=gamma.fixed + move,
        noise_variance=float((sent.squares - move @ sent.pull) / sent.num_rows),
    )


def expected(rows: GroupedRows, gamma: LinearGamma, *, covariance: Covariance) -> LinearMessage:
    """The total message of all groups that have rows."""
    check.require(rows.num_rows > 0, "expected", "rows", "at least one row", 0)
    sent = (
        linear_messages(block, gamma, covariance=covariance) for block in rows.blocks(cells=CELLS)
    )
    return reduce(add_messages, map(sum_over_groups, sent))


class EmFit(NamedTuple):
    """The last gamma, and the marginal log-likelihood after each round."""

    gamma: LinearGamma
    history: tuple[float, ...]
    converged: bool


def fit_em(
    rows: GroupedRows,
    start: LinearGamma,
    *,
    covariance: Covariance,
    most_rounds: int,
    tolerance: float,
) -> EmFit:
    """EM until a round adds less than `tolerance` a row to the marginal log-likelihood."""
    width = len(start.mean)
    values = nearest_covariance(start.covariance, covariance)
    gamma = start._replace(covariance=expand(values, width=width))
    history: list[float] = []
    sent = expected(rows, gamma, covariance=covariance)
    for _ in range(most_rounds):
        gamma = maximize_linear(sent, gamma)
        before = float(sent.log_likelihood)
        sent = expected(rows, gamma, covariance=covariance)
        history.append(float(sent.log_likelihood))
        if history[-1] - before < tolerance * rows.num_rows:
            return EmFit(gamma, tuple(history), True)
    return EmFit(gamma, tuple(history), False)
