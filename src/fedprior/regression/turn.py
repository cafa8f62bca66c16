"""Rows turned so that no column is nearly a sum of others: fitted there, reported as they were."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from fedprior.regression.rows import GroupedRows


class TurnBack(NamedTuple):
    """From turned rows to the rows given: theta = x theta' + cross beta', beta = fixed beta'.

    `x` (D, D), `cross` (D, P), `fixed` (P, P), for all classes together.
    """

    x: np.ndarray
    cross: np.ndarray
    fixed: np.ndarray

    def out(self, theta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients of the rows given."""
        return self.x @ theta + self.cross @ beta, self.fixed @ beta

    def into(self, theta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients of the turned rows."""
        beta = np.linalg.solve(self.fixed, beta)
        return np.linalg.solve(self.x, theta - self.cross @ beta), beta


def turn(
    rows: GroupedRows, corner: np.ndarray, *, turns_x: bool = False, num_logits: int = 1
) -> tuple[GroupedRows, TurnBack]:
    """Fixed features less what x explains of them, of mean square 1 and uncorrelated.

    A year beside an intercept is nearly a multiple of it, and an income in dollars has a
    coefficient of 1e-5: curvatures and steps would be lost to rounding. `turns_x` does the same to
    x, which only a full covariance allows: it is one in any basis. `corner` is the R of the QR
    decomposition of [x, fixed, y].
    """
    width = rows.num_features
    if not (turns_x or rows.num_fixed):
        return rows, unturned(width * num_logits, 0)
    corner = corner[:-1, :-1] / np.sqrt(rows.num_rows)
    if not turns_x:
        corner[:width, width:] = linalg.solve_triangular(
            corner[:width, :width], corner[:width, width:]
        )
        corner[:width, :width] = np.eye(width)
    back = linalg.solve_triangular(corner, np.eye(len(corner)))
    table = np.concatenate([rows.x, rows.fixed], axis=1) @ back
    turned = GroupedRows(
        x=table[:, :width] if turns_x else rows.x,
        fixed=table[:, width:],
        y=rows.y,
        start=rows.start,
    )
    blocks = (back[:width, :width], back[:width, width:], back[width:, width:])
    return turned, TurnBack(*(np.kron(np.eye(num_logits), block) for block in blocks))


def unturned(width: int, others: int) -> TurnBack:
    """The way back from rows as they are."""
    return TurnBack(np.eye(width), np.zeros((width, others)), np.eye(others))
