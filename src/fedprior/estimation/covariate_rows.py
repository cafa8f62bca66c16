"""Covariates as an analyst has them, one row per data row, to one row per group."""

from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.estimation.columns import DesignColumn, encode, named_columns, read_columns
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.groups import Factor


class CovariateReader(NamedTuple):
    """Which columns are read, and the words of those that hold words."""

    owner: str
    columns: tuple[DesignColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns: a column of words has an indicator for all but one."""
        return tuple(label for column in self.columns for label in column.labels)

    def encode(self, covariates: Any, rows: int, *, lenient: bool) -> np.ndarray:
        """(rows, names); a missing cell is NaN where `lenient`, else refused."""
        table = named_columns(self.owner, "covariate", covariates)
        for column in self.columns:
            remedy = f"There are {', '.join(map(repr, table))}."
            there = column.name in table
            check.require(there, self.owner, "covariates", f"with {column.name!r}", "none", remedy)
        found = encode(self.owner, self.columns, table, lenient=lenient)
        rule = f"one row for each of the {rows} rows"
        check.require(len(found) == rows, self.owner, "covariates", rule, len(found))
        return found


def covariate_reader(owner: str, covariates: Any) -> CovariateReader:
    """The reader that knows the columns and words of these covariates."""
    return CovariateReader(
        owner, read_columns(owner, named_columns(owner, "covariate", covariates))
    )


def by_group(reader: CovariateReader, table: np.ndarray, factor: Factor) -> np.ndarray:
    """The covariates of every level, NaN where no row has them; refuses those that differ.

    A group may have rows without a covariate, as long as one has it.
    """
    some = np.flatnonzero(factor.place >= 0)
    order = some[np.argsort(factor.place[some], kind="stable")]
    starts = np.searchsorted(factor.place[order], np.arange(len(factor.levels)))
    low, high = (each.reduceat(table[order], starts, axis=0) for each in (np.fmin, np.fmax))
    differ = np.argwhere(low < high)
    if len(differ):
        level, column = differ[0]
        group = factor.levels.tolist()[level]
        got = f"{low[level, column]:.6g} and {high[level, column]:.6g} in group {group!r}"
        raise ValueError(
            f"{reader.owner}: covariate {reader.names[column]!r} must be constant within a group, "
            f"got {got}. For values that differ from row to row, use a regression (regress)."
        )
    return low


def selected(
    reader: CovariateReader, table: np.ndarray, factor: Factor
) -> tuple[Factor, np.ndarray, Covariates, int]:
    """Levels with all covariates, the mask of their rows, and the number of levels without.

    Groups without a value stay: they are predicted from their covariates.
    """
    every = by_group(reader, table, factor)
    complete = np.isfinite(every).all(axis=1)
    rows = (factor.place >= 0) & complete[factor.place]
    some = bool(rows.any())
    name = "number of groups with covariates"
    check.require(some, reader.owner, name, "at least 1", 0)
    kept = factor.keep(rows)
    origin = np.empty(len(kept.levels), np.int64)
    origin[kept.place] = factor.place[rows]
    covariates = Covariates(names=reader.names, values=every[origin])
    return kept, rows, covariates, int((~complete).sum())
