"""Columns of a table as features: numbers as they are, words as indicators."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedprior.core import check
from fedprior.data import frames
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric

_MOST_WORDS = 50  # a text column with more is a key or free text


class DesignColumn(NamedTuple):
    """A feature: numbers as they are, or words, each but the first with an indicator of its own."""

    name: str
    words: np.ndarray | None = None

    @property
    def labels(self) -> list[str]:
        if self.words is None:
            return [self.name]
        return [f"{self.name}={word}" for word in self.words.tolist()[1:]]

    def encode(self, owner: str, cells: Any, *, lenient: bool) -> np.ndarray:
        """(rows, labels); where `lenient` a missing cell is NaN, else it is refused."""
        if self.words is None:
            found = numeric.numbers(owner, self._title, cells)[:, None]
            missing = np.isnan(found[:, 0])
            rule, remedy = "present in every row", ""
        else:
            place = labels.look_up(owner, self._title, self.words, cells, any_kind=True)
            missing = place < 0
            found = (place[:, None] == np.arange(1, len(self.words))).astype(np.float64)
            found[missing] = np.nan
            rule, remedy = (
                f"one of {_listed(self.words)}",
                "The model knows no other.",
            )
        if missing.any() and not lenient:
            row = int(np.argmax(missing))
            got = list(cells)[row]
            where = f"See row {row + 1} of {len(missing)}. {remedy}".strip()
            check.require(False, owner, self._title, rule, got, where)
        return found

    @property
    def _title(self) -> str:
        return f"column {self.name!r}"


def named_columns(owner: str, what: str, values: Any) -> dict[str, Any]:
    """The columns of a data frame, a dictionary, one column, or an array, by name.

    Columns of an array are called `what`_0, `what`_1, ...
    """
    values = frames.taken(values)
    if isinstance(values, Mapping):
        found = {str(name): cells for name, cells in values.items()}
    elif frames.column_names(values) is not None:
        found = {str(name): values[name] for name in values.columns}
    elif numeric.frame_kind(values) is not None:
        found = {str(values.name or what): values}
    else:
        array = np.asanyarray(values)  # may be masked
        rule, remedy = "one or more columns", "Pass a data frame, or a dictionary of columns."
        check.require(array.ndim in (1, 2), owner, f"{what}s", rule, array.shape, remedy)
        table = array.reshape(len(array), -1)
        found = {f"{what}_{number}": column for number, column in enumerate(table.T)}
    check.require(len(found) > 0, owner, f"{what}s", "one or more columns", 0)
    return found


def read_columns(owner: str, columns: Mapping[str, Any]) -> tuple[DesignColumn, ...]:
    """Which columns hold numbers and which hold words, and all of those."""
    return tuple(_read(owner, name, cells) for name, cells in columns.items())


def encode(
    owner: str, columns: Sequence[DesignColumn], table: Mapping[str, Any], *, lenient: bool
) -> np.ndarray:
    """The encoded features side by side, (rows, features)."""
    parts = [each.encode(owner, table[each.name], lenient=lenient) for each in columns]
    lengths = {each.name: len(part) for each, part in zip(columns, parts, strict=True)}
    same = len(set(lengths.values())) == 1
    check.require(same, owner, "columns", "of one length", lengths)
    return np.concatenate(parts, axis=1)


def _read(owner: str, name: str, cells: Any) -> DesignColumn:
    title = f"column {name!r}"
    declared = getattr(getattr(cells, "dtype", None), "categories", None) is not None
    _, present = labels.present_labels(owner, title, cells)
    check.expect(len(present) > 0, owner, f"{title} has no values.")
    text = present.dtype.kind in "US" or (
        present.dtype == object and all(isinstance(cell, str) for cell in present.tolist())
    )
    if not (text or declared):
        return DesignColumn(name)
    words = labels.factorize(owner, title, cells).levels
    rule, remedy = f"of at most {_MOST_WORDS} distinct words", "Leave it out, or make it the group."
    check.require(len(words) <= _MOST_WORDS, owner, title, rule, len(words), remedy)
    remedy = "Leave it out: the intercept stands for it."
    check.require(len(words) > 1, owner, title, "of more than one word", words[0], remedy)
    return DesignColumn(name, words)


def _listed(words: np.ndarray) -> str:
    shown = [str(word) for word in words.tolist()[:8]]
    return ", ".join(shown) + ", ..." * (len(words) > len(shown))
