"""The client's half of EM for a mixture of linear regressions, with theta integrated out."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.regression.mixture.batches import Padded, merged, padded
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

    @classmethod
    def without_rows(cls, parts: MixtureParameters, num_groups: int) -> "MixturePosterior":
        """That of groups without rows: the population's."""
        return cls(
            np.tile(parts.shares, (num_groups, 1)),
            np.tile(parts.means, (num_groups, 1, 1)),
            np.tile(np.diagonal(parts.covariances, axis1=1, axis2=2), (num_groups, 1, 1)),
            np.zeros(num_groups),
        )


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
        tables = []
        for groups, sizes, table in padded(rows):
            if table.shape[1] > table.shape[2]:
                table = np.asarray(np.linalg.qr(table, mode="r"))
            tables.append(Padded(groups, sizes, table))
        batches = (
            LinearBatch(groups, sizes, *_diagonal(table, rows.num_features, rules))
            for groups, sizes, table in merged(tables)
        )
        return cls(batches=tuple(batches), num_groups=rows.num_groups)

    def total(self, parts: MixtureParameters) -> MixtureTotals:
        """The sum of all groups' messages."""
        return sum_totals(linear_mixture_totals(batch, parts) for batch in self.batches)

    def posterior(self, parts: MixtureParameters) -> MixturePosterior:
        """The posterior of every group's theta."""
        size = parts.means.shape[1]
        posterior = MixturePosterior.without_rows(parts, self.num_groups)
        for batch in self.batches:
            view = _view(batch, parts)
            table, log_likelihood = responsibilities(view.log_density, parts)
            posterior.responsibilities[batch.groups] = table
            posterior.log_likelihood[batch.groups] = log_likelihood
            moved = view.pull[:, :, :size] @ parts.covariances
            posterior.theta[batch.groups] += moved.transpose(1, 0, 2)
            seen = ((view.table[..., :size] @ parts.covariances[:, None]) ** 2).sum(axis=2)
            posterior.variances[batch.groups] -= seen.transpose(1, 0, 2)
        np.maximum(posterior.variances, 0.0, out=posterior.variances)
        return posterior


class _LinearView(NamedTuple):
    """Groups under each component, whitened: V = L L', V = noise I + x covariance x'."""

    table: np.ndarray  # (k, g, r, q + p + 1), L^-1 [x, fixed, y]
    pull: np.ndarray  # (k, g, q + p), [x, fixed]' V^-1 r
    squares: np.ndarray  # (k, g), r' V^-1 r
    log_density: np.ndarray  # (k, g)


def linear_mixture_totals(batch: LinearBatch, parts: MixtureParameters) -> MixtureTotals:
    """Sum over groups of alpha (1, g, J, h h', r' V^-1 r), with g = [x, fixed]' V^-1 r (D4, D5).

    If the covariances are 0, these are alpha X'X and alpha X'(y - X mean), divided by the noise.
    """
    count, size = parts.means.shape
    view = _view(batch, parts)
    table, log_likelihood = responsibilities(view.log_density, parts)
    alpha = table.T[..., None]  # (k, g, 1)
    flat = view.table.reshape(count, -1, view.table.shape[3])  # with y: a slice would be copied
    weighted = (view.table * alpha[..., None]).reshape(flat.shape)
    own = view.pull[:, :, :size]
    return MixtureTotals(
        table.sum(axis=0),
        (view.pull * alpha).sum(axis=1),
        (weighted.transpose(0, 2, 1) @ flat)[:, :-1, :-1],
        (own * alpha).transpose(0, 2, 1) @ own,
        (view.squares * table.T).sum(axis=1),
        float(batch.sizes.sum()),
        float(log_likelihood.sum()),
    )


def _view(batch: LinearBatch, parts: MixtureParameters) -> _LinearView:
    whitened, log_determinant = _whitened(batch, parts.covariances, parts.noise)
    count = len(parts.shares)
    fixed = np.tile(-parts.fixed, (count, 1))
    coefficients = np.concatenate([-parts.means, fixed, np.ones((count, 1))], axis=1)
    # One product on a flat table and one einsum are faster than many tiny products.
    flat = whitened.reshape(count, -1, whitened.shape[3])
    residual = (flat @ coefficients[..., None]).reshape(whitened.shape[:3])
    squares = (residual**2).sum(axis=2)
    # Rows removed by the transformation have variance `noise`; padding does not count.
    left = batch.sizes - batch.table.shape[1]
    log_determinant = log_determinant + left * np.log(parts.noise)
    constant = batch.sizes * np.log(2 * np.pi)
    pull = np.einsum("kgr,kgra->kga", residual, whitened)[..., :-1]
    return _LinearView(whitened, pull, squares, -0.5 * (squares + log_determinant + constant))


def _whitened(
    batch: LinearBatch, covariances: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """L^-1 [x, fixed, y] and log |V| of the transformed rows, under each component."""
    if batch.lengths is not None:
        variance = noise + covariances[:, :1, :1] * batch.lengths
        return batch.table / np.sqrt(variance)[..., None], np.log(variance).sum(axis=2)
    x = batch.table[:, :, : covariances.shape[1]]
    whole = x @ covariances[:, None] @ np.swapaxes(x, 1, 2)
    rows = np.arange(whole.shape[2])
    whole[..., rows, rows] += noise
    lower = np.linalg.cholesky(whole)
    log_determinant = 2 * np.log(lower[..., rows, rows]).sum(axis=2)
    return np.linalg.solve(lower, batch.table[None]), log_determinant


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
