"""Checks that the rows identify the mean, the variance between groups and the noise."""

import numpy as np

from fedprior.core import check
from fedprior.regression.linear.pooled import check_columns, triangle
from fedprior.regression.linear.reduction import Reduction, TurnedGroups
from fedprior.regression.rows import GroupedRows

_OWNER = "fit_linear"
_NOTHING = 1e-12  # residuals below this share of y's norm are rounding errors
_CONFOUNDED = 1e-10  # smallest eigenvalue of the correlations between directions of the covariance
_WIDEST = 16  # largest number of features for which all directions of a covariance are compared


def check_coefficients(rows: GroupedRows) -> np.ndarray:
    """Return `triangle(rows)`; raise unless the coefficients are identified and y is noisy."""
    groups = int((rows.sizes > 0).sum())
    check.require(rows.num_features > 0, _OWNER, "x", "at least one column", 0)
    check.require(groups >= 2, _OWNER, "rows", "of at least 2 groups", groups)
    corner = triangle(rows)
    check_columns(_OWNER, rows, corner=corner)
    width = rows.num_features + rows.num_fixed
    check.require(
        rows.num_rows > width,
        _OWNER,
        "rows",
        f"more than the {width} coefficients",
        rows.num_rows,
        "Take fewer features, or a known prior.",
    )
    exact = abs(corner[-1, -1]) <= _NOTHING * np.linalg.norm(corner[:, -1])
    sentence = "y is an exact linear combination of the columns: use pooled least squares."
    check.expect(not exact, _OWNER, sentence)
    return corner


def check_identified(reduction: Reduction) -> None:
    """Raise if the variance between groups is confounded with the noise, or if the noise is 0."""
    remedy = (
        "Some groups need more rows; or center features that are far from 0, or use a simpler "
        "covariance, or a known prior."
    )
    rule = "enough to distinguish the variance of theta from the noise"
    counts = f"{reduction.num_rows} rows of {reduction.num_groups} groups"
    check.require(is_identified(reduction), _OWNER, "rows", rule, counts, remedy)
    width = reduction.num_features
    if not reduction.has_residuals:
        return
    inner = reduction.rest[width:, width:]
    left = inner[-1, -1] - inner[-1, :-1] @ np.linalg.pinv(inner[:-1, :-1]) @ inner[:-1, -1]
    length = sum(float((part.columns[..., -1] ** 2).sum()) for part in reduction.parts)
    exact = left <= _NOTHING**1.5 * (length + inner[-1, -1])
    sentence = "y has no noise within groups: use least squares for each group."
    check.expect(not exact, _OWNER, sentence)


def is_identified(reduction: Reduction) -> bool:
    """Whether the rows tell the variances of theta from each other and from the noise."""
    return _least(reduction) > _CONFOUNDED


def _least(reduction: Reduction) -> float:
    """The smallest eigenvalue of the correlations between I and the directions of X cov X'.

    The inner product of two directions is the sum over groups of the trace of their product.
    """
    if reduction.covariance == "isotropic":
        moments = _isotropic(reduction)
    elif reduction.covariance == "diagonal":
        moments = _diagonal(reduction)
    elif reduction.num_features <= _WIDEST:
        moments = _full(reduction)
    else:
        return 1.0
    scale = np.sqrt(np.diag(moments))
    return float(np.linalg.eigvalsh(moments / np.outer(scale, scale))[0])


def _isotropic(reduction: Reduction) -> np.ndarray:
    levels = [part.levels for part in reduction.parts if part.levels is not None]
    first, second = (sum(float((each**power).sum()) for each in levels) for power in (1, 2))
    return np.array([[reduction.num_rows, first], [first, second]])


def _inner(part: TurnedGroups, width: int) -> np.ndarray:
    """X'X by group, (g, d, d)."""
    x = part.columns[..., :width]
    return x.transpose(0, 2, 1) @ x


def _diagonal(reduction: Reduction) -> np.ndarray:
    width = reduction.num_features
    moments = np.zeros((width + 1, width + 1))
    moments[0, 0] = reduction.num_rows
    for part in reduction.parts:
        inner = _inner(part, width)
        moments[0, 1:] += np.diagonal(inner, axis1=1, axis2=2).sum(axis=0)
        moments[1:, 1:] += (inner**2).sum(axis=0)
    moments[1:, 0] = moments[0, 1:]
    return moments


def _full(reduction: Reduction) -> np.ndarray:
    """Directions x_j x_k' + x_k x_j': tr of their products from sums of (X'X)_kl (X'X)_mj."""
    width = reduction.num_features
    mean = np.zeros((width, width))
    pairs = np.zeros((width * width, width * width))
    for part in reduction.parts:
        inner = _inner(part, width)
        mean += inner.sum(axis=0)
        flat = inner.reshape(len(inner), -1)
        pairs += flat.T @ flat
    products = pairs.reshape(width, width, width, width)  # [k, l, m, j]
    rows, columns = np.tril_indices(width)
    j, k = rows[:, None], columns[:, None]
    l, m = rows[None], columns[None]  # noqa: E741
    inside = products[k, l, m, j] + products[k, m, l, j]
    inside = 2 * inside * np.where(j == k, 0.5, 1.0) * np.where(l == m, 0.5, 1.0)
    moments = np.empty((len(rows) + 1, len(rows) + 1))
    moments[0, 0] = reduction.num_rows
    moments[0, 1:] = moments[1:, 0] = np.where(rows == columns, 1, 2) * mean[rows, columns]
    moments[1:, 1:] = inside
    return moments
