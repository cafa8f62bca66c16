"""From the columns of a table to the features of a regression, with their names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check
from fedprior.estimation.columns import DesignColumn, encode
from fedprior.regression.linear import dependent_columns
from fedprior.regression.rows import GroupedRows

INTERCEPT = "intercept"
_FAR = 3.0  # standard deviations from 0: an intercept there is an extrapolation
_NOTHING = 1e-12  # of a column's largest cell that counts as rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """x = [1, features that vary by group - center], fixed = features that do not - fixed_center.

    `varying` and `common` are places among the encoded features. `names` and `fixed_names` are
    those of the columns of x and of fixed. The regression is fitted to x / scale.
    """

    owner: str
    columns: tuple[DesignColumn, ...]
    varying: np.ndarray
    common: np.ndarray
    intercept: bool
    center: np.ndarray
    fixed_center: np.ndarray
    scale: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the encoded features."""
        return [label for column in self.columns for label in column.labels]

    @property
    def names(self) -> list[str]:
        features = self.features
        return [INTERCEPT] * self.intercept + [features[j] for j in self.varying]

    @property
    def fixed_names(self) -> list[str]:
        features = self.features
        return [features[j] for j in self.common]

    def split(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`x` and fixed of encoded rows, in the units of the table."""
        x = table[:, self.varying]
        if self.intercept:
            x = np.column_stack([np.ones(len(table)), x])
        return x - self.center, table[:, self.common] - self.fixed_center

    def apply(self, columns: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """`x` and fixed of new rows; a missing cell or an unknown word is refused."""
        return self.split(encode(self.owner, self.columns, columns, lenient=False))


def design(
    owner: str,
    columns: tuple[DesignColumn, ...],
    table: np.ndarray,
    place: np.ndarray,
    *,
    fixed: Sequence[str],
    intercept: bool,
    center: bool,
    standardize: bool,
    constants_vary: bool,
) -> Design:
    """The design of encoded rows without gaps.

    A feature that is constant within every group says nothing of how groups differ in it: beside an
    intercept of its own for every group it gets one coefficient for all, unless `constants_vary`.
    """
    features = [label for column in columns for label in column.labels]
    _check_features(owner, features, table, intercept=intercept)
    common = np.array([column.name in fixed for column in columns for _ in column.labels], bool)
    still = np.zeros_like(common)
    if intercept and not constants_vary and np.bincount(place).max(initial=0) > 1:
        still = ~_varies_within(table, place) & ~common
    names = ", ".join(np.array(features, object)[still])
    note = f"Constant within every group, so with one coefficient for all: {names}."
    common |= still
    varying = np.flatnonzero(~common)
    some = len(varying) + intercept > 0
    remedy = "Leave one feature out of fixed, or take intercept=True."
    check.require(some, owner, "number of coefficients that vary by group", "1 or more", 0, remedy)
    every = table.mean(axis=0) if center else np.zeros(table.shape[1])
    middle = every[varying]
    spread = np.sqrt(((table[:, varying] - middle) ** 2).mean(axis=0))
    scale = np.where(spread > 0, spread, 1.0) if standardize else np.ones(len(varying))
    return Design(
        owner=owner,
        columns=columns,
        varying=varying,
        common=np.flatnonzero(common),
        intercept=intercept,
        center=np.append(np.zeros(int(intercept)), middle),
        fixed_center=every[common],
        scale=np.append(np.ones(int(intercept)), scale),
        notes=(note,) if still.any() else (),
    )


def check_dependent(found: Design, rows: GroupedRows) -> None:
    """Refuses features that others determine, and names them all."""
    width = len(found.names) + len(found.fixed_names)
    remedy = "Take fewer features."
    enough = rows.num_rows > width
    rule = f"more than the {width} coefficients"
    check.require(enough, found.owner, "number of rows", rule, rows.num_rows, remedy)
    for part, column in dependent_columns(rows)[:1]:
        table = np.concatenate([rows.x, rows.fixed], axis=1)
        place = column if part == "x" else len(found.names) + column
        weights = np.linalg.lstsq(table[:, :place], table[:, place], rcond=None)[0]
        part_of_it = np.abs(weights) * np.linalg.norm(table[:, :place], axis=0)
        names = np.array([*found.names, *found.fixed_names], object)
        others = names[:place][part_of_it > 1e-6 * np.linalg.norm(table[:, place])].tolist()
        rule = "features that do not determine one another"
        got = f"{names[place]!r}, a sum of {', '.join(map(repr, others)) or 'nothing'}"
        raise ValueError(
            f"{found.owner}: columns must be {rule}, got {got}. Leave one of them out."
        )


def far_from_zero(found: Design, table: np.ndarray) -> list[str]:
    """Features that vary by group and lie far from 0, where the intercept is."""
    if not found.intercept:
        return []
    own = table[:, found.varying] - found.center[1:]
    far = np.abs(own.mean(axis=0)) > _FAR * own.std(axis=0)
    return [name for name, is_far in zip(found.names[1:], far, strict=True) if is_far]


def chosen(owner: str, fixed: Any, names: Sequence[str]) -> list[str]:
    """The columns that `fixed` names or counts (from 0); one alone needs no list."""
    asked = [] if fixed is None else [fixed] if isinstance(fixed, str | int) else list(fixed)
    found = []
    for each in asked:
        if isinstance(each, str):
            check.choice(owner, "fixed", each, names)
            found.append(each)
            continue
        check.count(owner, least=0, fixed=each)
        rule = f"a name, or a place below {len(names)}"
        check.require(each < len(names), owner, "fixed", rule, each)
        found.append(names[each])
    return found


def _check_features(owner: str, names: list[str], table: np.ndarray, *, intercept: bool) -> None:
    """No feature is constant, or called as the intercept is."""
    free = not intercept or INTERCEPT not in names
    check.expect(free, owner, f"{INTERCEPT!r} is reserved; rename the column.")
    for name, cells in zip(names, table.T, strict=True):
        same = float(np.ptp(cells)) <= _NOTHING * float(np.abs(cells).max(initial=0))
        remedy = "Leave it out: " + "the intercept stands for it." * intercept
        remedy += "it has no coefficient." * (not intercept)
        fine = not same or not (intercept or cells[0] == 0)
        check.require(fine, owner, f"column {name!r}", "of more than one value", cells[0], remedy)


def _varies_within(table: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Which features differ between two rows of some group."""
    order = np.argsort(place, kind="stable")
    inside = place[order][1:] == place[order][:-1]
    step = np.abs(np.diff(table[order], axis=0))[inside]
    return (step > _NOTHING * np.abs(table).max(axis=0, initial=0)).any(axis=0)
