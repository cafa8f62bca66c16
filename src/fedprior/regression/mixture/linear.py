"""The client's half of EM for a mixture of linear regressions, with theta integrated out."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.regression.mixture.batches import padded
from fedprior.regression.mixture.parts import MixtureParameters, MixtureRules
from fedprior.regression.mixture.totals import MixtureTotals, responsibilities, sum_totals
from fedprior.regression.rows import GroupedRows


class MixturePosterior(NamedTuple):
    """By group and component: alpha (m, k), theta given it (m, k, q), and its variances.

    `triangles` (m, k, ...) are the packed covariances, for classifiers only.
    """

    responsibilities: np.ndarray
    theta: np.ndarray
    variances: np.ndarray
    log_likelihood: np.ndarray  # (m,), 0 where a group has no rows
    triangles: np.ndarray | None = None


class LinearBatch(NamedTuple):
    """Groups of similar size, transformed to few rows with the same likelihood.

    `table` (g, r, q + p + 1) holds [x, fixed, y] with r at most q + p + 1; `lengths` (g, r) are the
    eigenvalues of x x' if the transformation has made it diagonal, else None.
    """

    groups: np.ndarray
    sizes: np.ndarray  # (g,), number of original rows
    table: np.ndarray
    lengths: np.ndarray | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearEvidence:
    """y = x theta_i + fixed beta + N(0, noise) for every group."""

    batches: tuple[LinearBatch, ...]
    num_groups: int

    @classmethod
    def of(cls, rows: GroupedRows, rules: MixtureRules) -> "LinearEvidence":
        """Transform the rows once, for all rounds."""
        batches = []
        for groups, sizes, table in padded(rows):
            if table.shape[1] > table.shape[2]:
                table = np.asarray(np.linalg.qr(table, mode="r"))
            batches.append(LinearBatch(groups, sizes, *_diagonal(table, rows.num_features, rules)))
        return cls(batches=tuple(batches), num_groups=rows.num_groups)

    def total(self, parts: MixtureParameters) -> MixtureTotals:
        """The sum of all groups' messages."""
        return sum_totals(linear_mixture_totals(batch, parts) for batch in self.batches)

    def posterior(self, parts: MixtureParameters) -> MixturePosterior:
        """The posterior of every group's theta."""
        count, size = parts.means.shape
        posterior = MixturePosterior(
            np.tile(parts.shares, (self.num_groups, 1)),
            np.tile(parts.means, (self.num_groups, 1, 1)),
            np.tile(np.diagonal(parts.covariances, axis1=1, axis2=2), (self.num_groups, 1, 1)),
            np.zeros(self.num_groups),
        )
        for batch in self.batches:
            views = [_view(batch, parts, place) for place in range(count)]
            table, log_likelihood = responsibilities((view.log_density for view in views), parts)
            posterior.responsibilities[batch.groups] = table
            posterior.log_likelihood[batch.groups] = log_likelihood
            for place, view in enumerate(views):
                covariance = parts.covariances[place]
                posterior.theta[batch.groups, place] += view.pull[:, :size] @ covariance
                seen = ((view.table[:, :, :size] @ covariance) ** 2).sum(axis=1)
                posterior.variances[batch.groups, place] -= seen
        np.maximum(posterior.variances, 0.0, out=posterior.variances)
        return posterior


class _LinearView(NamedTuple):
    """Groups under one component, whitened: V = L L', V = noise I + x covariance x'."""

    table: np.ndarray  # (g, r, q + p + 1), L^-1 [x, fixed, y]
    pull: np.ndarray  # (g, q + p), [x, fixed]' V^-1 r
    squares: np.ndarray  # (g,), r' V^-1 r
    log_density: np.ndarray  # (g,)


def linear_mixture_totals(batch: LinearBatch, parts: MixtureParameters) -> MixtureTotals:
    """Sum over groups of alpha (1, g, J, h h', r' V^-1 r), with g = [x, fixed]' V^-1 r (D4, D5).

    If the covariances are 0, these are alpha X'X and alpha X'(y - X mean), divided by the noise.
    """
    size = parts.means.shape[1]
    views = [_view(batch, parts, place) for place in range(len(parts.shares))]
    table, log_likelihood = responsibilities((view.log_density for view in views), parts)
    scores, information, outer, squares = [], [], [], []
    for view, alpha in zip(views, table.T, strict=True):
        flat = view.table.reshape(-1, view.table.shape[2])  # with y: a slice would be copied
        weighted = flat * np.repeat(alpha, view.table.shape[1])[:, None]
        own = view.pull[:, :size]
        scores.append(alpha @ view.pull)
        information.append((weighted.T @ flat)[:-1, :-1])
        outer.append((own * alpha[:, None]).T @ own)
        squares.append(alpha @ view.squares)
    return MixtureTotals(
        table.sum(axis=0),
        np.stack(scores),
        np.stack(information),
        np.stack(outer),
        np.array(squares),
        float(batch.sizes.sum()),
        float(log_likelihood.sum()),
    )


def _view(batch: LinearBatch, parts: MixtureParameters, place: int) -> _LinearView:
    whitened, log_determinant = _whitened(batch, parts.covariances[place], parts.noise)
    # One product on a flat table and one einsum are faster than many tiny products.
    coefficients = np.concatenate([-parts.means[place], -parts.fixed, [1.0]])
    residual = (whitened.reshape(-1, len(coefficients)) @ coefficients).reshape(whitened.shape[:2])
    squares = (residual**2).sum(axis=1)
    # Rows removed by the transformation have variance `noise`; padding does not count.
    left = batch.sizes - batch.table.shape[1]
    log_determinant = log_determinant + left * np.log(parts.noise)
    constant = batch.sizes * np.log(2 * np.pi)
    pull = np.einsum("gr,gra->ga", residual, whitened)[:, :-1]
    return _LinearView(whitened, pull, squares, -0.5 * (squares + log_determinant + constant))


def _whitened(
    batch: LinearBatch, covariance: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """L^-1 [x, fixed, y] and log |V| of the transformed rows."""
    if batch.lengths is not None:
        variance = noise + covariance[0, 0] * batch.lengths
        return batch.table / np.sqrt(variance)[:, :, None], np.log(variance).sum(axis=1)
    x = batch.table[:, :, : len(covariance)]
    whole = x @ covariance @ np.swapaxes(x, 1, 2)
    whole[:, np.arange(whole.shape[1]), np.arange(whole.shape[1])] += noise
    lower = np.linalg.cholesky(whole)
    log_determinant = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return np.linalg.solve(lower, batch.table), log_determinant


def _diagonal(
    table: np.ndarray, num_features: int, rules: MixtureRules
) -> tuple[np.ndarray, np.ndarray | None]:
    """The table in the eigenbasis of x x', where an isotropic covariance is diagonal."""
    if rules.spread == "none":
        return table, np.zeros(table.shape[:2])
    if rules.covariance != "isotropic":
        return table, None
    x = table[:, :, :num_features]
    lengths, basis = np.linalg.eigh(x @ np.swapaxes(x, 1, 2))
    return np.swapaxes(basis, 1, 2) @ table, np.maximum(lengths, 0.0)
