"""Least squares for each group alone, and for all rows together."""

import contextlib
from collections.abc import Iterator

import numpy as np
from scipy import linalg

from fedprior.core import check
from fedprior.regression.rows import GroupedRows

_ROWS = 1 << 12  # rows processed at a time
_SAFE = 1e-3  # share of a column's norm, orthogonal to earlier columns, for which Cholesky is safe
_DEPENDENT = 1e-9  # below this share a column depends on the earlier columns


def triangle(rows: GroupedRows) -> np.ndarray:
    """R of the QR decomposition of [x, fixed, y], (d + p + 1, d + p + 1), over all rows.

    By Cholesky decomposition of the cross products, which is ten times faster, unless a column is
    nearly a combination of others; then by Householder QR, which loses no digits.
    """
    width = rows.num_features + rows.num_fixed + 1
    cross = np.zeros((width, width))
    for table in _tables(rows):
        cross += table.T @ table
    length = np.sqrt(np.diag(cross))
    with contextlib.suppress(np.linalg.LinAlgError):
        corner = np.linalg.cholesky(cross).T
        if (np.diag(corner) > _SAFE * length).all():
            return corner
    corner = np.zeros((0, width))
    for table in _tables(rows):
        corner = np.asarray(np.linalg.qr(np.concatenate([corner, table]), mode="r"))
    return np.pad(corner, ((0, width - len(corner)), (0, 0)))


def _tables(rows: GroupedRows) -> Iterator[np.ndarray]:
    """Chunks of the table [x, fixed, y]."""
    for begin in range(0, rows.num_rows, _ROWS):
        part = slice(begin, begin + _ROWS)
        yield np.column_stack([rows.x[part], rows.fixed[part], rows.y[part]])


def dependent_columns(
    rows: GroupedRows, *, corner: np.ndarray | None = None
) -> list[tuple[str, int]]:
    """Columns determined by earlier ones (or zero), as ("x" or "fixed", index).

    `corner` is `triangle(rows)` if the caller has it already.
    """
    corner = triangle(rows) if corner is None else corner
    width = rows.num_features
    left = np.abs(np.diag(corner))[:-1]
    length = np.linalg.norm(corner, axis=0)[:-1]
    places = np.flatnonzero(left <= _DEPENDENT * length)
    return [("x", int(j)) if j < width else ("fixed", int(j) - width) for j in places]


def check_columns(owner: str, rows: GroupedRows, *, corner: np.ndarray | None = None) -> None:
    """Raise if a column is 0 everywhere or a combination of others, over all rows."""
    for table, column in dependent_columns(rows, corner=corner)[:1]:
        remedy = "Leave it out: a constant, doubled or summed column has no coefficient of its own."
        rule = "a table whose columns do not determine one another"
        check.require(False, owner, table, rule, f"column {column}", remedy)


def pooled_linear(rows: GroupedRows) -> tuple[np.ndarray, np.ndarray]:
    """(Z'Z)^+ Z'y with Z = [x, fixed], (d + p,), and its standard errors: one model for all.

    The errors treat rows as independent; they are infinite if there are no more rows than
    coefficients. Collinear columns share their effect (pseudo-inverse).
    """
    check.require(rows.num_rows > 0, "pooled_linear", "rows", "at least one row", 0)
    corner = triangle(rows)
    length = np.linalg.norm(corner[:-1, :-1], axis=0)
    length[length == 0] = 1.0  # columns of one length: units do not make them collinear
    scaled = corner[:-1, :-1] / length
    inverse = np.linalg.pinv(scaled, rcond=_DEPENDENT) / length[:, None]
    coefficients = inverse @ corner[:-1, -1]
    freedom = rows.num_rows - np.linalg.matrix_rank(scaled, tol=_DEPENDENT)
    lost = corner[:-1, -1] - corner[:-1, :-1] @ coefficients
    squares = corner[-1, -1] ** 2 + lost @ lost
    noise = squares / freedom if freedom > 0 else np.inf
    return coefficients, np.sqrt(noise * (inverse**2).sum(axis=1))


def local_linear(rows: GroupedRows, fixed: np.ndarray | None = None) -> np.ndarray:
    """theta_i = X_i^+ (y_i - F_i beta), (m, d), with beta `fixed` or pooled: each group alone.

    The squared error is noise * tr((X'X)^-1) if X_i has rank d. With fewer rows than features the
    pseudo-inverse gives 0 in the directions that are not observed, which adds |(I - P) theta_i|^2,
    P the projection on the rows of X_i (ERRATA 29); a group without rows has theta_i = 0.
    """
    theta = np.zeros((rows.num_groups, rows.num_features))
    beta = np.zeros(0) if fixed is None else fixed
    if fixed is None and rows.num_fixed:
        beta = pooled_linear(rows)[0][rows.num_features :]
    for block in rows.blocks():
        target = block.y - block.fixed @ beta
        theta[block.groups] = (np.linalg.pinv(block.x) @ target[..., None])[..., 0]
    return theta


def inverse_triangle(corner: np.ndarray) -> np.ndarray:
    """The inverse of an upper triangle without zeros on its diagonal."""
    return linalg.solve_triangular(corner, np.eye(len(corner)))
