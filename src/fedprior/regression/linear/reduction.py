"""Rows of every group transformed so that at most d of them depend on theta's covariance.

With X = Q R and Q'Q = I, only the rows Q'[X, F, y] depend on theta's covariance; those orthogonal
to X have the covariance of the noise and enter as one table of cross products. A group of n < d
rows is not transformed, so that the work depends on the smaller of n and d.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedprior.regression.linear.pooled import inverse_triangle
from fedprior.regression.result import Covariance
from fedprior.regression.rows import GroupedRows

CELLS = 1 << 17  # numbers processed at a time: 1 MB, which stays in the cache
_SUBSTITUTE = 4  # up to this size forward substitution is faster than the inverse


@dataclass(frozen=True, kw_only=True, eq=False)
class TurnedGroups:
    """Groups with equally many transformed rows: `columns` (g, k, d + p + 1) are [x, fixed, y].

    With an isotropic covariance the rows are transformed again to be independent: `columns` is then
    (1, g k, d + p + 1), and `levels` (g k,) are the eigenvalues of X X'.
    """

    columns: np.ndarray
    levels: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduction:
    """All groups with rows, in coordinates x T and y - [x, fixed] offset with mean squares of 1.

    `transform` (d + p, d + p) is T, `rest` are the cross products of all rows orthogonal to X, and
    `num_rest` is the number of those rows.
    """

    parts: tuple[TurnedGroups, ...]
    rest: np.ndarray
    num_rest: int
    transform: np.ndarray
    offset: np.ndarray
    covariance: Covariance
    num_rows: int
    num_groups: int
    num_features: int

    @property
    def num_coefficients(self) -> int:
        return len(self.offset)

    @property
    def has_residuals(self) -> bool:
        """Whether residuals within groups show the noise, whatever theta is."""
        return self.num_rest > self.num_coefficients - self.num_features


def reduce(rows: GroupedRows, corner: np.ndarray, covariance: Covariance) -> Reduction:
    """Transform the rows; `corner` is `triangle(rows)`, whose columns must be independent."""
    transform = _transform(rows, corner, covariance)
    offset = inverse_triangle(corner[:-1, :-1]) @ corner[:-1, -1]
    mapping = np.column_stack([transform, -offset])
    width = rows.num_features
    rest = np.zeros((mapping.shape[1], mapping.shape[1]))
    turned: dict[int, list[np.ndarray]] = {}
    for block in rows.blocks(cells=CELLS):
        columns = np.concatenate([block.x, block.fixed], axis=2) @ mapping
        columns[..., -1] += block.y
        if columns.shape[1] > width:
            basis = np.linalg.qr(columns[..., :width])[0]
            top = basis.transpose(0, 2, 1) @ columns
            left = (columns[..., width:] - basis @ top[..., width:]).reshape(-1, len(rest) - width)
            rest[width:, width:] += left.T @ left
            columns = top
        turned.setdefault(columns.shape[1], []).append(columns)
    merged = (each for size in sorted(turned) for each in _merge(turned[size]))
    isotropic = covariance == "isotropic"
    parts = tuple(
        _independent(each, width) if isotropic else TurnedGroups(columns=each) for each in merged
    )
    return Reduction(
        parts=parts,
        rest=rest,
        num_rest=int(np.maximum(rows.sizes - width, 0).sum()),
        transform=transform,
        offset=offset,
        covariance=covariance,
        num_rows=rows.num_rows,
        num_groups=int((rows.sizes > 0).sum()),
        num_features=width,
    )


def _transform(rows: GroupedRows, corner: np.ndarray, covariance: Covariance) -> np.ndarray:
    """T such that x T has mean square 1: whitened if the covariance is full, else only scaled.

    Columns of `fixed` are always whitened and made orthogonal to x, which does not change theta.
    """
    width, count = rows.num_features, np.sqrt(rows.num_rows)
    transform = count * inverse_triangle(corner[:-1, :-1])
    if covariance != "full":
        length = np.linalg.norm(corner[:width, :width], axis=0)
        if covariance == "isotropic":
            length[:] = np.sqrt((length**2).mean())
        transform[:, :width] = 0.0
        transform[:width, :width] = np.diag(count / length)
    return transform


def _merge(tables: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Merge tables up to at most CELLS numbers each."""
    kept: list[np.ndarray] = []
    for table in tables:
        if kept and sum(each.size for each in kept) + table.size > CELLS:
            yield np.concatenate(kept)
            kept = []
        kept.append(table)
    yield kept[0] if len(kept) == 1 else np.concatenate(kept)


def _independent(columns: np.ndarray, width: int) -> TurnedGroups:
    """U'[x, fixed, y] with X X' = U diag(levels) U', the rows of all groups stacked."""
    x = columns[..., :width]
    levels, basis = np.linalg.eigh(x @ x.transpose(0, 2, 1))
    flat = (basis.transpose(0, 2, 1) @ columns).reshape(1, -1, columns.shape[2])
    return TurnedGroups(columns=flat, levels=np.maximum(levels, 0.0).ravel())


def top_rows(columns: np.ndarray, width: int) -> np.ndarray:
    """Q'columns with columns[..., :width] = Q R if there are more rows than `width`."""
    if columns.shape[1] <= width:
        return columns
    basis = np.linalg.qr(columns[..., :width])[0]
    return basis.transpose(0, 2, 1) @ columns


def whiten(
    columns: np.ndarray, relative: np.ndarray, *, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """C^-1 columns and log|V| by group; V = C C' = I + X relative X', X = columns[..., :width].

    `relative` (d, d) is theta's covariance in units of the noise variance; it may be singular.
    """
    x = columns[..., :width]
    total = x @ relative @ x.transpose(0, 2, 1)
    size = total.shape[1]
    total[:, range(size), range(size)] += 1.0
    factor = np.linalg.cholesky(total)
    log_determinant = 2 * np.log(factor[:, range(size), range(size)]).sum(axis=1)
    if size > _SUBSTITUTE:
        return np.linalg.inv(factor) @ columns, log_determinant
    white = columns.copy()
    for row in range(size):
        for before in range(row):
            white[:, row] -= factor[:, row, before, None] * white[:, before]
        white[:, row] /= factor[:, row, row, None]
    return white, log_determinant
