"""A change of basis in which columns are nearly uncorrelated; models are fitted there."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from fedprior.regression.rows import GroupedRows


class TurnBack(NamedTuple):
    """The way back to the original basis: theta = x theta' + cross beta', beta = fixed beta'.

    `x` is (D, D), `cross` (D, P) and `fixed` (P, P), for all classes together.
    """

    x: np.ndarray
    cross: np.ndarray
    fixed: np.ndarray

    def out(self, theta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients in the original basis."""
        return self.x @ theta + self.cross @ beta, self.fixed @ beta

    def into(self, theta: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients in the new basis."""
        beta = np.linalg.solve(self.fixed, beta)
        return np.linalg.solve(self.x, theta - self.cross @ beta), beta


def turn(
    rows: GroupedRows, corner: np.ndarray, *, turns_x: bool = False, num_logits: int = 1
) -> tuple[GroupedRows, TurnBack]:
    """Make fixed features uncorrelated with x and with each other, with mean square 1.

    A year is nearly a multiple of the intercept, and an income in dollars has a coefficient of
    1e-5, so that curvatures and steps would be lost to rounding. `turns_x` whitens x as well, which
    is possible only with a full covariance, whose form does not depend on the basis. `corner` is
    the R of the QR decomposition of [x, fixed, y].
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
    turned = replace(rows, x=table[:, :width] if turns_x else rows.x, fixed=table[:, width:])
    blocks = (back[:width, :width], back[:width, width:], back[width:, width:])
    return turned, TurnBack(*(np.kron(np.eye(num_logits), block) for block in blocks))


def unturned(width: int, others: int) -> TurnBack:
    """The identity change of basis."""
    return TurnBack(np.eye(width), np.zeros((width, others)), np.eye(others))
