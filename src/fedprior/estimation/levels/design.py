"""From groups or rows to a problem: cells, a design whose columns have mean 0, and checks."""

from typing import NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.covariates import Covariates, Scaled
from fedprior.estimation.levels.cells import Cells, crossed_cells, nested_cells
from fedprior.estimation.levels.crossed import kernel
from fedprior.estimation.levels.gaussian import GaussianProblem
from fedprior.estimation.levels.laplace import LaplaceProblem
from fedprior.estimation.levels.problem import LevelRows

_ROUNDING = 1e-26  # of the sum of squares


class LevelData(NamedTuple):
    """Rows, or sums of rows of one group each, as in `LevelRows`; `places` has one per column.

    `fixed` are columns with one coefficient for all. A row of size 0 is a group without data.
    """

    family: str
    names: tuple[str, ...]
    places: list[np.ndarray]
    y: np.ndarray
    size: np.ndarray
    within: float = 0.0
    num_rows: int = 0
    known: bool = False
    counts: np.ndarray | None = None
    fixed: Covariates | None = None


class LevelDesign(NamedTuple):
    """The problem, the cell of each row of the data, and how to get back to their units.

    The coefficients are those of the `scaled` columns, and `center` was subtracted from y.
    """

    problem: GaussianProblem | LaplaceProblem
    cell: np.ndarray
    center: float
    scaled: Scaled | None


def design(owner: str, data: LevelData, *, nested: bool, restricted: bool) -> LevelDesign:
    """The model of the data; raises if it does not identify the variances."""
    cells, cell = (nested_cells if nested else crossed_cells)(data.names, data.places)
    some = data.size > 0
    check.require(bool(some.any()), owner, "number of groups with data", "at least 2", 0)
    y, size, place = data.y[some], data.size[some], cell[some]
    _check_identified(owner, data, cells, place)
    scaled = None if data.fixed is None else data.fixed.scaled(some)
    columns = [np.ones(len(y)), *([] if scaled is None else scaled.rows[some].T)]
    center = 0.0
    if data.family == "gaussian":
        center = float(np.average(y, weights=size))
        y = y - center
    rows = LevelRows(
        cells=cells,
        cell=place,
        x=np.array(columns).T,
        y=y,
        size=size,
        family=data.family,
        within=data.within,
        num_rows=data.num_rows,
        known=data.known,
        counts=None if data.counts is None else data.counts[some],
    )
    algebra = kernel(owner, cells)
    if data.family == "gaussian":
        _check_varied(owner, rows, center)
        problem: GaussianProblem | LaplaceProblem = GaussianProblem(
            rows=rows, kernel=algebra, restricted=restricted
        )
    else:
        _check_events(owner, rows)
        problem = LaplaceProblem(rows=rows, kernel=algebra)
    return LevelDesign(problem, cell, center, scaled)


def _check_identified(owner: str, data: LevelData, cells: Cells, cell: np.ndarray) -> None:
    """Every factor has several levels, and levels can be told from what is below them."""
    seen = np.unique(cell)
    counts = [len(np.unique(place[seen])) for place in cells.places]
    for name, number in zip(cells.names, counts, strict=True):
        remedy = "A population is learned from many groups: leave this column out."
        check.require(number > 1, owner, f"number of groups {name!r}", "at least 2", number, remedy)
    if cells.nested:
        pairs = zip(cells.names, cells.names[1:], counts, counts[1:], strict=False)
        for upper, lower, above, below in pairs:
            sentence = (
                f"every {upper!r} has one {lower!r} only, so that the two cannot be told apart. "
                "Leave one of the columns out."
            )
            check.expect(below > above, owner, sentence)
    total = counts[-1] if cells.nested else sum(counts) - len(counts) + 1
    if data.family == "gaussian" and not data.known:
        rule = f"more than the {total} groups"
        remedy = "How much groups differ cannot be told from noise: give more rows of some groups, or a standard error for each."  # fmt: skip # noqa: E501
        check.require(data.num_rows > total, owner, "number of rows", rule, data.num_rows, remedy)
    elif data.family == "binomial":
        for name, place in zip(cells.names, cells.places, strict=True):
            trials = np.bincount(place[cell], data.size[data.size > 0]).max()
            remedy = "How much rates differ cannot be told from chance with one trial per group."
            rule = "of 2 trials or more, at least some"
            check.require(trials > 1, owner, f"groups {name!r}", rule, int(trials), remedy)


def _check_varied(owner: str, rows: LevelRows, center: float) -> None:
    """Values differ, and not only between groups, where the noise is to be estimated."""
    left = np.sqrt(rows.size) * rows.y
    total = float(left @ left) + rows.within
    tiny = _ROUNDING * (total + float(rows.size.sum()) * center**2)
    remedy = "There is nothing to explain."
    check.require(total > tiny, owner, "values", "of more than one value", center, remedy)
    if rows.known:
        return
    mean = rows.totals(np.vstack([rows.size, rows.size * rows.y]))
    inside = rows.y - (mean[1] / np.where(mean[0] > 0, mean[0], 1))[rows.cell]
    noise = rows.within + float((rows.size * inside**2).sum())
    sentence = (
        "the rows of every group are equal, so that there is no noise to be told from differences "
        "between groups. Take the groups' values as they are, or give their standard errors."
    )
    replicated = rows.num_rows > rows.cells.number
    check.expect(noise > tiny or not replicated, owner, sentence)


def _check_events(owner: str, rows: LevelRows) -> None:
    """Not all outcomes are equal: the common rate would be 0 or 1, and its logit infinite."""
    total, most = float(rows.y.sum()), float(rows.size.sum())
    name = "successes" if rows.family == "binomial" else "events"
    check.require(total > 0, owner, f"number of {name}", "above 0", int(total))
    if rows.family == "binomial":
        rule = "below the number of trials"
        check.require(total < most, owner, f"number of {name}", rule, int(total))
