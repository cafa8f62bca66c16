"""Columns that have one value in each group, such as its latitude."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedprior.data.cells import Column, describe, not_nan
from fedprior.data.scan import Scan

_MOST_WORDS = 256  # of a column that are sent as numbers; one with more is a key or free text


class Constants(NamedTuple):
    """SQL of columns `z0`, `z1`, ...: a value per row, then the least and largest per group."""

    source: Scan
    columns: tuple[Column, ...] = ()

    @property
    def select(self) -> str:
        """The cells of a row, to follow others in a projection."""
        return "".join(f", {_value(each)} AS z{k}" for k, each in enumerate(self.columns))

    @property
    def sums(self) -> str:
        """Their bounds in a group, to follow others."""
        return "".join(
            f", min(z{k}) AS z{k}_low, max(z{k}) AS z{k}_high" for k in range(len(self.columns))
        )

    @property
    def complete(self) -> str:
        """A condition on groups: every column has a value."""
        return " AND ".join(f"z{k}_low IS NOT NULL" for k in range(len(self.columns))) or "true"

    def refuse(self) -> None:
        """Raise for the first group in the table `sums` in which a column is not constant."""
        for k, column in enumerate(self.columns):
            differ = self.source.run(
                f"SELECT CAST(name AS VARCHAR), CAST(z{k}_low AS VARCHAR), "
                f"CAST(z{k}_high AS VARCHAR) FROM sums WHERE name IS NOT NULL "
                f"AND z{k}_low <> z{k}_high ORDER BY name LIMIT 1"
            )
            if differ:
                name, low, high = differ[0]
                raise ValueError(
                    f"{self.source.path}: column {column.name!r} must be constant within a group, "
                    f"got {low} and {high} in group {name!r}. For values that differ from row to "
                    "row, use fedprior regress."
                )
            if column.kind != "text":
                self._refuse_infinite(k, column.name)

    def _refuse_infinite(self, k: int, column: str) -> None:
        wrong = self.source.run(
            f"SELECT CAST(name AS VARCHAR), z{k}_low FROM sums WHERE isinf(z{k}_low) LIMIT 1"
        )
        if wrong:
            name, value = wrong[0]
            raise ValueError(
                f"{self.source.path}: column {column!r} must be finite, got {value} in group "
                f"{name!r}."
            )

    def lacking(self) -> tuple[list[str], int]:
        """How many groups have no value of a column, in words, and the rows that they would use."""
        if not self.columns:
            return [], 0
        groups, rows = self.source.run(
            "SELECT count(*), coalesce(sum(n_rows), 0) FROM sums WHERE name IS NOT NULL AND NOT "
            f"({self.complete})"
        )[0]
        names = " or ".join(repr(each.name) for each in self.columns)
        said = f"{groups:,} group{'s' * (groups != 1)} without a covariate ({names})"
        return [said] * bool(groups), int(rows)

    def fetch(self, connection: Any) -> dict[str, np.ndarray]:
        """The values of the groups in the table `groups`, by name of the column.

        Words leave the engine once: a million strings would cost more than the fit.
        """
        if not self.columns:
            return {}
        words = {k: self._words(k) for k, each in enumerate(self.columns) if each.kind == "text"}
        words = {k: each for k, each in words.items() if len(each) <= _MOST_WORDS}
        wanted = ", ".join(
            f"list_position(?::VARCHAR[], z{k}_low) - 1 AS z{k}" if k in words
            else f"z{k}_low AS z{k}"
            for k in range(len(self.columns))
        )  # fmt: skip
        query = f"SELECT {wanted} FROM groups"
        found = connection.execute(query, [each.tolist() for each in words.values()]).fetchnumpy()
        cells = [np.ma.getdata(found[f"z{k}"]) for k in range(len(self.columns))]
        return {
            each.name: words[k][cells[k]] if k in words else cells[k]
            for k, each in enumerate(self.columns)
        }

    def _words(self, k: int) -> np.ndarray:
        limit = _MOST_WORDS + 1
        rows = self.source.run(f"SELECT DISTINCT z{k}_low FROM groups ORDER BY 1 LIMIT {limit}")
        return np.array([row[0] for row in rows], str)

    def said(self) -> dict[str, str]:
        """What each column was read as, in words."""
        return {each.name: each.said(0) for each in self.columns}


def constants(source: Scan, names: Sequence[str], missing: Sequence[str]) -> Constants:
    """The columns of these names, of the kinds that all of their cells show."""
    if not names:
        return Constants(source)
    return Constants(source, tuple(describe(source, names, missing=missing).values()))


def _value(column: Column) -> str:
    return column.value if column.kind == "text" else not_nan(f"CAST({column.value} AS DOUBLE)")
