"""Functions of the groups' rows x_i, from tables over the bins.

Without covariates x_i is the same for all groups of a bin, and a table over the bins is all there
is to compute; with them the groups' own part is added.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw

AtGroups = Callable[[Any], np.ndarray]
"""The value of each of the groups that a slice, or an array of places, picks."""


def linear(bins: Bins, law: MeanLaw, table: np.ndarray) -> AtGroups:
    """x_i @ table[bin of i]; the table is (bins + 1, p), or (p,) where it is the same for all."""
    table = np.broadcast_to(table, law.design.shape)
    z, width = bins.covariates, own_columns(bins, law)
    common = np.einsum("up,up->u", law.design[:, :width], table[:, :width])
    if z is None:
        return lambda part: common[bins.place[part]]

    def at(part: Any) -> np.ndarray:
        place = bins.place[part]
        found: np.ndarray = common[place]
        found += np.einsum("iq,iq->i", z.rows[part], table[:, width:][place])
        return found

    return at


def quadratic(bins: Bins, law: MeanLaw, table: np.ndarray) -> AtGroups:
    """x_i' table[bin of i] x_i; the table is symmetric, (bins + 1, p, p) or (p, p)."""
    columns = law.design.shape[1]
    table = np.broadcast_to(table, (len(law.design), columns, columns))
    z, width = bins.covariates, own_columns(bins, law)
    own = law.design[:, :width]
    half = np.einsum("up,upq->uq", own, table[:, :width])
    common = np.einsum("up,up->u", half[:, :width], own)
    if z is None:
        return lambda part: common[bins.place[part]]

    def at(part: Any) -> np.ndarray:
        place, rows = bins.place[part], z.rows[part]
        right = 2 * half[:, width:][place]
        right += np.einsum("iqr,iq->ir", table[:, width:, width:][place], rows)
        found: np.ndarray = common[place]
        found += np.einsum("ir,ir->i", rows, right)
        return found

    return at


def locations(bins: Bins, law: MeanLaw, coefficients: np.ndarray, part: Any) -> np.ndarray:
    """x_i @ coefficients of the groups `part`, (groups, d)."""
    return np.stack([linear(bins, law, column)(part) for column in coefficients.T], axis=1)


def squares_about(bins: Bins, law: MeanLaw, coefficients: np.ndarray) -> np.ndarray:
    """The sum of |mean_i - x_i @ coefficients|^2 over the groups of each bin."""
    fitted = np.einsum("upq,qd->upd", law.gram, coefficients) - 2 * law.moment
    return np.maximum(bins.squares + (fitted * coefficients).sum(axis=(1, 2)), 0.0)


def rows_of(bins: Bins, law: MeanLaw) -> np.ndarray:
    """The rows of all groups, (groups, p)."""
    own = law.design[:, : own_columns(bins, law)][bins.place]
    z = bins.covariates
    return own if z is None else np.concatenate([own, z.rows], axis=1)


def own_columns(bins: Bins, law: MeanLaw) -> int:
    """How many columns of the design belong to the bins; those of the covariates follow."""
    z = bins.covariates
    return law.design.shape[1] - (0 if z is None else len(z.names))
