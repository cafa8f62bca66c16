"""The base of the estimators in `table`: rows kept, labels, unseen groups, data frames."""

from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedprior.core import check
from fedprior.data import frames
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.covariate_rows import covariate_reader, selected
from fedprior.estimation.covariates import Covariates
from fedprior.estimation.encoding import OnFrames
from fedprior.estimation.page.on_pages import OnPages
from fedprior.estimation.parameters import Parameters
from fedprior.estimation.result import Estimates
from fedprior.estimation.statistics import Means, means_of, weighted_means, with_empty
from fedprior.pages.page import Page

_STORED_AS = {"fit": "fit_by"}  # `fit` is a method of estimators


class GroupEstimator(OnFrames, OnPages, Parameters):
    """Common part of the estimators of many small groups; use one of its subclasses.

    Fitted attributes with one entry per group: `groups_` (labels), `n_`, `raw_`, `personal_`,
    `weight_` (of the group's own data), `lower_` and `upper_`; if requested, `above_` (the
    probability of exceeding the threshold) and `ranks_`. Others: `population_`, `gain_over_raw_`
    and `gain_over_pooled_` (percent), `sentence_`, `notes_`, `num_dropped_` (rows without a value
    or a group), and `estimates_`, which holds all of these. A group whose rows were all dropped is
    not in `groups_`; like any unseen group, it is predicted from the population. Groups are sorted
    by label, or kept in the order of the rows if every group is a single row.
    """

    strict: bool
    level: float
    _kind: ClassVar[str] = "means"
    _function: ClassVar[Callable[..., Any]]  # from statistics to estimates

    def predict(self, groups: Any, *, covariates: Any = None) -> np.ndarray:
        """Return the personal estimate of each label.

        A group not seen in `fit` gets the population mean; where the population depends on size,
        the mean for the smallest groups. If the model was fitted with covariates, an unseen group
        needs them, too: `covariates` has a row for each label.
        """
        check_is_fitted(self, "estimates_")
        (estimate,), new = self._look_up(groups, "personal")
        if new.any():
            varies = self.population_.varies
            estimate[new] = self._newcomers(new, covariates)[0] if varies else self.population_.mean
        return estimate

    def interval(self, groups: Any, *, covariates: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper limits for each label; those of the population if unseen."""
        check_is_fitted(self, "estimates_")
        (lower, upper), new = self._look_up(groups, "lower", "upper")
        if new.any():
            _, lower[new], upper[new] = self._newcomers(new, covariates)
        return lower, upper

    def to_frame(self) -> Any:
        """Return one row per group: group, n, raw, personal, weight, lower, upper, and options.

        The result is a pandas or polars frame if the data came as one, else a dictionary of
        columns. Several coordinates have one column each (raw_0, raw_1, ... or by name). After
        `from_table` of a lazy frame it is a lazy frame of the same engine.
        """
        check_is_fitted(self, "estimates_")
        if self._answers is not None:
            return self._answers.named().to_native()
        return labels.to_frame(self._columns(), self._frame)

    def _look_up(self, groups: Any, *columns: str) -> tuple[list[np.ndarray], np.ndarray]:
        """These numbers of each label, and which labels are not known."""
        if self._answers is None:
            place = labels.look_up(self._owner, "groups", self.groups_, groups)
            return [getattr(self, f"{name}_")[place] for name in columns], place < 0
        present, cells = labels.present_labels(self._owner, "groups", groups)
        found = self._answers.of(cells.tolist(), *columns)
        numbers = [np.full(len(present), np.nan) for _ in columns]
        for each, name in zip(numbers, columns, strict=True):
            each[present] = found[name]
        return numbers, np.isnan(numbers[0])

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {"group": self.groups_, self.estimates_.size_name: self.n_}
        for name in ("raw", "personal", "weight", "lower", "upper", "above"):
            columns |= self._spread(name, getattr(self, f"{name}_"))
        if self.ranks_ is not None:
            columns |= self._spread("rank", self.ranks_.mean)
            columns |= self._spread("rank_lower", self.ranks_.lower)
            columns |= self._spread("rank_upper", self.ranks_.upper)
        return columns

    def _page(self, *, whole: bool) -> Page:
        from fedprior.estimation.page.fitted import page_of, settings
        from fedprior.estimation.page.whole import estimates_page

        told: dict[str, Any] = {"kind": self._kind, "notes": list(self.notes_)}
        told |= {"settings": settings(self), "dropped": self.num_dropped_}
        if self._answers is None or not whole:
            names = None if self._answers is not None else self.groups_
            return page_of(self.estimates_, names, coordinates=self._coordinates, **told)
        sums = self._answers.sums
        told |= {"rows": sums.rows, "labels": len(sums.keys)}
        table = sums.engine.read(self._answers.named())
        return estimates_page({**self.estimates_.summary(), **told}, table)

    @property
    def sentence_(self) -> str:
        """Whether collaboration helps, as one sentence."""
        check_is_fitted(self, "estimates_")
        return self.estimates_.sentence

    def _options(self, estimate: Callable[..., Any], again: bool) -> dict[str, Any]:
        """What a function takes of the parameters; `again` skips what an unseen group needs not."""
        left_out = ("covariates", *(("above", "ranks", "leave_one_out") if again else ()))
        taken = [name for name in signature(estimate).parameters if name not in left_out]
        stored = {name: _STORED_AS.get(name, name) for name in taken}
        return {name: getattr(self, own) for name, own in stored.items() if own in vars(self)}

    def _estimate(
        self, statistics: Any, *, covariates: Covariates | None = None, again: bool = False
    ) -> Estimates:
        """Estimates from sufficient statistics; `again` is that of `_options`."""
        estimate = type(self)._function
        return estimate(statistics, covariates=covariates, **self._options(estimate, again))

    def _check(self) -> None:
        self._check_choices()
        check.require(0 < self.level < 1, self._owner, "level", "above 0 and below 1", self.level)

    def _keep(self, rows: int, *columns: np.ndarray | None) -> Any:
        """A mask of the complete rows (or a full slice); the others are counted, or refused."""
        keep = np.ones(rows, bool)
        for each in columns:
            if each is not None:
                missing = each < 0 if each.dtype.kind == "i" else np.isnan(each)
                keep &= ~(missing if missing.ndim == 1 else missing.any(axis=1))
        self._dropped = 0
        if keep.all():
            return slice(None)
        self._dropped = numeric.check_complete(
            self._owner,
            keep,
            strict=self.strict,
            missing="a missing value or group",
            whole="a value and a group",
            remedy="Remove such rows, or set strict=False.",
        )
        return keep

    def _complete(
        self, factor: labels.Factor, covariates: Any, *columns: np.ndarray | None
    ) -> tuple[labels.Factor, Any, Covariates | None]:
        """The labels of the rows that are complete, these rows, and the groups' covariates.

        Groups without covariates are dropped; those without a value but with covariates stay.
        """
        keep = self._keep(len(factor.place), *columns, factor.place)
        self._reader, self._lacking = None, 0
        if covariates is None:
            return factor.keep(keep), keep, None
        covariates = frames.taken(covariates)  # once: it may be a stream
        self._reader = covariate_reader(self._owner, covariates)
        table = self._reader.encode(covariates, len(factor.place), lenient=True)
        kept, rows, found, self._lacking = selected(self._reader, table, factor)
        if self._lacking and self.strict:
            name, rule = "number of groups without a covariate", "0 in strict mode"
            check.require(False, self._owner, name, rule, self._lacking)
        used = np.ones(len(rows), bool)[keep] if isinstance(keep, slice) else keep
        return labels.Factor(kept.levels, kept.place[used[rows]]), rows & used, found

    def _learn(
        self,
        statistics: Any,
        levels: np.ndarray,
        *sources: Any,
        covariates: Covariates | None = None,
    ) -> Self:
        estimates = self._estimate(statistics, covariates=covariates)
        self._answers, self._roles = None, None
        self._covariates = covariates
        self.statistics_, self.estimates_, self.groups_ = statistics, estimates, levels
        self.n_, self.raw_, self.personal_ = estimates.n, estimates.raw, estimates.personal
        self.weight_, self.lower_, self.upper_ = estimates.weight, estimates.lower, estimates.upper
        self.above_, self.ranks_ = estimates.above, estimates.ranks
        self.population_ = estimates.population
        self.gain_over_raw_ = estimates.gain_over_raw
        self.gain_over_pooled_ = estimates.gain_over_pooled
        self._frame = numeric.frame_kind(*sources)
        self._coordinates = frames.column_names(sources[0])
        self.num_dropped_ = self._dropped
        dropped = f"Rows dropped because the value or the group is missing: {self.num_dropped_}."
        lacking = f"Groups dropped because a covariate is missing: {self._lacking}."
        told = {dropped: self.num_dropped_, lacking: self._lacking}
        self.notes_ = (*(note for note, number in told.items() if number), *estimates.notes)
        self._none: tuple[Any, Any, Any] | None = None
        labels.warn_of(estimates.notes, stacklevel=3)
        return self

    def _newcomers(self, new: np.ndarray, covariates: Any) -> tuple[Any, Any, Any]:
        """Estimates and intervals of groups without rows, where `new`."""
        if self._covariates is None or self._reader is None:
            return self._newcomer()
        remedy = "Pass a row of them for each label, seen or not."
        sentence = f"covariates are needed for groups not seen in fit. {remedy}"
        check.expect(covariates is not None, self._owner, sentence)
        table = self._reader.encode(covariates, len(new), lenient=True)[new]
        number, whole = len(table), np.isfinite(table).all(axis=1)
        if not whole.all():
            row = int(np.flatnonzero(new)[np.argmin(whole)]) + 1
            rule, where = "known for groups not seen in fit", f"See row {row} of {len(new)}."
            check.require(False, self._owner, "covariates", rule, "a missing or new word", where)
        everyone = Covariates(
            names=self._covariates.names, values=np.concatenate([self._covariates.values, table])
        )
        found = self._estimate(
            with_empty(self.statistics_, number), covariates=everyone, again=True
        )
        return found.personal[-number:], found.lower[-number:], found.upper[-number:]

    def _newcomer(self) -> tuple[Any, Any, Any]:
        """Estimate and interval of a group without rows, computed once."""
        if self._none is None:
            estimates, place = self.estimates_, -1
            if (self.n_ == 0).any() and estimates.lookup is None:
                place = int(np.argmin(self.n_))
            else:
                estimates = self._estimate(with_empty(self.statistics_), again=True)
            self._none = estimates.personal[place], estimates.lower[place], estimates.upper[place]
        return self._none

    def _spread(self, name: str, values: np.ndarray | None) -> dict[str, np.ndarray]:
        if values is None or np.ndim(values) == 1:
            return {} if values is None else {name: values}
        names = self._coordinates or [str(number) for number in range(values.shape[1])]
        return {f"{name}_{each}": values[:, number] for number, each in enumerate(names)}


class MeansEstimator(GroupEstimator):
    """An estimator that learns from rows, or from the sizes, means and variances of groups."""

    def fit(
        self, y: Any, groups: Any, *, standard_errors: Any = None, covariates: Any = None
    ) -> Self:
        """Fit to rows with values `y`, (rows,) or (rows, d), and labels `groups`.

        With `standard_errors`, one per row as in a meta-analysis, the noise is not estimated, and
        the rows of a group are averaged with precision weights. `covariates` (a data frame, a
        dictionary of columns, or an array) have one row per row, constant within each group; words
        become indicators. A group with covariates but without a value is predicted from them, a
        group that lacks a covariate is dropped.
        """
        self._check()
        table = frames.taken(y)
        values = numeric.numbers(self._owner, "y", table, most_axes=2)
        factor = labels.factorize(self._owner, "groups", groups)
        errors = None
        if standard_errors is not None:
            errors = numeric.numbers(self._owner, "standard_errors", standard_errors)
            numeric.check_rows(self._owner, "standard_errors", errors, errors > 0, "above 0")
        numeric.same_length(self._owner, y=values, groups=factor.place, standard_errors=errors)
        factor, keep, found = self._complete(factor, covariates, values, errors)
        if errors is None:
            statistics = means_of(values[keep], factor.place, len(factor.levels))
        else:
            statistics = weighted_means(
                values[keep], errors[keep], factor.place, len(factor.levels)
            )
        return self._learn(statistics, factor.levels, table, y, groups, covariates=found)

    def fit_statistics(
        self,
        n: Any,
        mean: Any,
        *,
        within: Any = None,
        variance: Any = None,
        groups: Any = None,
        covariates: Any = None,
        count: Any = None,
        scatter: Any = None,
    ) -> Self:
        """Fit to one row per group: its size, its mean, and `within` or `variance`.

        `within` is the sum of squared distances of the group's rows from its mean, `variance` the
        squared standard error of that mean. Without labels, groups are numbered 0, 1, 2, ...
        `covariates` are those of `fit`, one row per group.

        With `count`, a row without a label stands for so many groups of size n: `mean` is the mean
        of their means, `scatter` the sum of squares of these about it, `within` a sum over all.
        """
        self._check()
        sentence = "count cannot be combined with groups: a row stands for several of them."
        check.expect(count is None or groups is None, self._owner, sentence)
        table = frames.taken(mean)
        arguments = {"n": n, "mean": table, "within": within, "variance": variance}
        arguments |= {"count": count, "scatter": scatter}
        columns = {
            name: numeric.numbers(self._owner, name, each, most_axes=1 + (name == "mean"))
            for name, each in arguments.items()
            if each is not None
        }
        rows = numeric.same_length(self._owner, **columns)
        numeric.check_whole(self._owner, "n", columns["n"])
        if covariates is not None and not self.strict:  # a gap is a group to be predicted
            gaps = np.any(
                [np.isnan(each.reshape(rows, -1)).any(axis=1) for each in columns.values()], axis=0
            )
            for name in columns.keys() - {"mean"}:
                columns[name] = np.where(gaps, 0.0, columns[name])
        levels, place = labels.one_row_each(self._owner, groups, rows)
        needed = columns["mean"].copy()
        needed[columns["n"] == 0] = 0.0  # a group without rows needs no mean
        others = (each for name, each in columns.items() if name != "mean")
        factor = labels.Factor(levels, place)
        factor, keep, found = self._complete(factor, covariates, needed, *others)
        kept = {name: each[keep] for name, each in columns.items()}
        kept |= {name: kept[name].astype(np.int64) for name in ("n", "count") if name in kept}
        return self._learn(
            Means(**kept), factor.levels[factor.place], table, mean, n, groups, covariates=found
        )

    @classmethod
    def from_statistics(
        cls,
        n: Any,
        mean: Any,
        *,
        within: Any = None,
        variance: Any = None,
        groups: Any = None,
        covariates: Any = None,
        count: Any = None,
        scatter: Any = None,
        **parameters: Any,
    ) -> Self:
        """Return an estimator with these `parameters`, fitted by `fit_statistics`."""
        return cls(**parameters).fit_statistics(
            n,
            mean,
            within=within,
            variance=variance,
            groups=groups,
            covariates=covariates,
            count=count,
            scatter=scatter,
        )
