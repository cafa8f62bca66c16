"""Covariates of groups: what a group's mean may depend on, one row per group."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.core import check

INTERCEPT = "intercept"
_OWNER = "Covariates"
_DEPENDENT = 1e-10  # share of a column's variance left by the others, below which it is rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariates:
    """`values` (groups, q): the columns `names` of each group, groups without data included.

    >>> Covariates(names=("latitude",), values=np.array([[44.0], [13.0]])).values.shape
    (2, 1)
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        shape = np.shape(self.values)
        rule = f"of shape (groups, {len(self.names)})"
        fits = len(shape) == 2 and shape[1] == len(self.names) > 0
        check.require(fits, _OWNER, "values", rule, shape)
        finite = np.isfinite(self.values).all(axis=1)
        if not finite.all():
            first = int(np.argmin(finite))
            where = f"See group {first + 1} of {len(finite)}."
            check.require(False, _OWNER, "values", "finite", self.values[first].tolist(), where)

    def scaled(self, some: np.ndarray, count: np.ndarray | None = None) -> "Scaled":
        """Mean 0 and variance 1 over the groups `some`; raises if no regression is identified.

        A row stands for `count` groups.
        """
        values = self.values if some.all() else self.values[some]
        each = np.ones(len(values)) if count is None else np.asarray(count, np.float64)[some]
        number = float(each.sum())
        rule = f"at least {len(self.names) + 2}, 2 more than covariates"
        enough = number >= len(self.names) + 2
        remedy = "Take fewer covariates."
        check.require(enough, _OWNER, "number of groups with data", rule, int(number), remedy)
        middle = each @ values / number
        scale = np.sqrt(each @ (values - middle) ** 2 / number)
        for name, size, at in zip(self.names, scale, middle, strict=True):
            varies = bool(size > 1e-12 * abs(at))
            rule, remedy = "of more than one value", "Leave it out: the intercept stands for it."
            check.require(varies, _OWNER, f"covariate {name!r}", rule, float(at), remedy)
        rows = (self.values - middle) / scale
        z = rows if some.all() else rows[some]
        self._check_independent(z.T @ (each[:, None] * z) / number)
        return Scaled(names=self.names, rows=rows, middle=middle, scale=scale)

    def _check_independent(self, correlation: np.ndarray) -> None:
        """No covariate is a linear function of those before it."""
        left = correlation.copy()
        for place, name in enumerate(self.names):
            if left[place, place] < _DEPENDENT:
                rule = "columns that do not determine one another"
                remedy = "Leave it or one of the others out."
                got = f"{name!r}, a linear function of {', '.join(map(repr, self.names[:place]))}"
                check.require(False, _OWNER, "covariates", rule, got, remedy)
            row = left[place] / left[place, place]
            left = left - np.outer(left[:, place], row)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaled:
    """Covariates as `rows` z = (covariate - `middle`) / `scale`, of all groups."""

    names: tuple[str, ...]
    rows: np.ndarray
    middle: np.ndarray
    scale: np.ndarray

    def in_units(self, terms: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """(turn, names): turn @ coefficients has the units of the user's columns.

        There are `terms` coefficients, those of the rows last. Where more than one of them is not
        a covariate's (splines of size), there is no one intercept, but slopes alone.
        """
        width = terms - len(self.names)
        slopes = np.concatenate([np.zeros((len(self.names), width)), np.diag(1 / self.scale)], 1)
        if width > 1:
            return slopes, self.names
        intercept = np.append(1.0, -self.middle / self.scale)
        return np.concatenate([intercept[None], slopes]), (INTERCEPT, *self.names)


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """How the population's mean depends on covariates: intercept and slopes, in the user's units.

    `values` is (terms,), or (terms, d) for values of several coordinates; `standard_errors`,
    `lower` and `upper` have the same shape. `link` is the scale of the mean: identity, logit for
    rates, log for rates of events. `r_squared` is the share of the variance between groups that the
    covariates explain: 1 - (variance left) / (variance without them), at least 0; for rates of
    events variances are relative to the squared mean.
    """

    names: tuple[str, ...]
    values: np.ndarray
    standard_errors: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    r_squared: float
    link: str = "identity"

    def summary(self) -> dict[str, Any]:
        columns = ("values", "standard_errors", "lower", "upper")
        singular = ("value", "standard_error", "lower", "upper")
        rows = zip(*(getattr(self, column).tolist() for column in columns), strict=True)
        return {
            name: dict(zip(singular, row, strict=True))
            for name, row in zip(self.names, rows, strict=True)
        }
