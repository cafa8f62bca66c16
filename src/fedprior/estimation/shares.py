"""`GroupShares`: rows of categories in, the shares of all categories a group out."""

from typing import Any, ClassVar, Self

import numpy as np

from fedprior.core import check
from fedprior.data import frames
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.conjugate.shares import estimate_shares
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.estimator import GroupEstimator
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Shares


class GroupShares(GroupEstimator):
    """p_i ~ Dirichlet, categories of group i's rows ~ p_i: the shares p_i of every group.

    `raw_`, `personal_`, `lower_`, `upper_` and `predict` have one column per category, in the
    order of `categories_`; intervals hold for one category at a time.

    >>> model = GroupShares().fit(["a", "b", "a", "c", "a", "b"], ["x", "x", "x", "y", "y", "y"])
    >>> model.categories_.tolist(), model.raw_.round(2).tolist()
    (['a', 'b', 'c'], [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33]])
    """

    _kind: ClassVar[str] = "shares"

    def __init__(self, *, level: float = 0.95, strict: bool = False) -> None:
        self.level = level
        self.strict = strict

    def fit(self, y: Any, groups: Any) -> Self:
        """Learn from rows: the category `y` (any label) of group `groups`."""
        self._check()
        category = labels.factorize(self._owner, "y", y)
        factor = labels.factorize(self._owner, "groups", groups)
        numeric.same_length(self._owner, y=category.place, groups=factor.place)
        factor, keep, _ = self._complete(factor, None, category.place)
        category = category.keep(keep)
        shape = len(factor.levels), len(category.levels)
        many = shape[1] > 1
        remedy = "Shares of one category are all 1."
        check.require(many, self._owner, "number of categories", "at least 2", shape[1], remedy)
        cell = factor.place * shape[1] + category.place
        counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        return self._shared(counts, factor.levels, category.levels, y, groups)

    def fit_counts(self, counts: Any, groups: Any = None, *, categories: Any = None) -> Self:
        """Learn from one row per group: the number of its rows in each category."""
        self._check()
        given = frames.taken(counts)
        table = numeric.numbers(self._owner, "counts", given, most_axes=2)
        levels, place = labels.one_row_each(self._owner, groups, len(table))
        factor, keep, _ = self._complete(labels.Factor(levels, place), None, table)
        names = frames.column_names(given)
        if categories is None:
            categories = range(table[0].size) if names is None else names
        kinds = labels.factorize(self._owner, "categories", list(categories))
        rule = f"{table[0].size} different labels"
        fits = len(kinds.levels) == len(kinds.place) == table[0].size
        check.require(fits, self._owner, "categories", rule, list(categories))
        found = kinds.levels[kinds.place]
        return self._shared(table[keep], factor.levels, found, counts, groups)

    def _shared(
        self, counts: np.ndarray, levels: np.ndarray, categories: np.ndarray, *sources: Any
    ) -> Self:
        self.categories_ = categories
        self._learn(Shares(counts=counts), levels, *sources)
        self._coordinates = [str(each) for each in categories.tolist()]
        return self

    def _estimate(
        self, statistics: Shares, *, covariates: Covariates | None = None, again: bool = False
    ) -> Estimates:
        return estimate_shares(statistics, level=self.level)
