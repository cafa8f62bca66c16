"""The base of personal regressions: columns, labels, intervals, frames, held-out errors."""

import warnings
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fedprior.core import check
from fedprior.core.plain import picked
from fedprior.core.version import __version__
from fedprior.data import frames
from fedprior.estimation import groups as labels
from fedprior.estimation import numeric
from fedprior.estimation.features import feature_columns
from fedprior.estimation.page.on_pages import OnPages
from fedprior.estimation.parameters import Parameters
from fedprior.pages.page import Page
from fedprior.regression.face.analysis import Analysis, analyze
from fedprior.regression.face.holdout import HeldOut, compare
from fedprior.regression.face.specification import Specification
from fedprior.regression.result import Family


class PersonalEstimator(OnPages, Parameters):
    """Common part of regressions in which every group has its own coefficients.

    Fitted attributes with one row per group: `groups_` (labels), `n_`, `theta_` and
    `theta_errors_`, whose columns are `coefficient_names_`, in the units of the table. Others:
    `population_` (mean, covariance, components and standard errors), `fixed_` with `fixed_names_`,
    `noise_variance_`, `share_between_` (the share of the variance that is between groups),
    `covariance_kind_`, `log_likelihood_`, `responsibilities_` (of the components), `notes_`,
    `num_dropped_`, and `analysis_`, which holds all of these.

    A text column becomes one indicator for each word but the first. Rows with a missing target,
    feature or group are dropped, or refused if `strict`.
    """

    _fitted: ClassVar[str] = "analysis_"
    _family: ClassVar[Family]
    method: str
    fixed: Any
    level: float

    def fit(self, X: Any, y: Any, groups: Any) -> Self:
        """Fit to rows with features X, target y and the label of each row's group."""
        return self._fit(X, y, groups)

    def _fit(self, X: Any, y: Any, groups: Any, exposure: Any = None) -> Self:
        check.fraction(self._owner, level=self.level)
        check.require(self.level < 1, self._owner, "level", "below 1", self.level)
        for name in ("intercept", "center", "standardize", "strict"):
            value = getattr(self, name)
            is_truth = isinstance(value, bool | np.bool_)
            check.require(is_truth, self._owner, name, "True or False", value)
        remedy = "It requires y to be passed, but the target y is None."
        check.require(y is not None, self._owner, "y", "one target per row", None, remedy)
        columns = self._columns(X, reset=True)
        self._learn(
            analyze(
                columns,
                _single(self._owner, y),
                groups,
                specification=self._specification(),
                **picked(self, "fixed", "intercept", "center", "standardize", "strict"),
                exposure=exposure,
            )
        )
        self._frame = numeric.frame_kind(X, y, groups)
        if not self.analysis_.fit.converged and self.method != "paper":
            message = f"{self._owner}: the fit did not converge; see notes_."
            warnings.warn(message, labels.EstimationWarning, stacklevel=3)
        return self

    def interval(self, groups: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper limits of theta, one row per label; for all groups by default.

        They include the uncertainty of theta, of the population's mean and, with fewer than 50
        groups, of its covariance: the limits are then theta -+ t scale with scale and degrees of
        freedom of `analysis_.spread`, else theta -+ z error. A group not seen in `fit` gets the
        limits of the population.
        """
        check_is_fitted(self, "analysis_")
        if groups is None:
            return self.analysis_.interval(self.level, np.arange(len(self.groups_)))
        return self.analysis_.interval(self.level, self._place(groups))

    def to_frame(self) -> Any:
        """Return one row per group: group, n, each coefficient with error, lower and upper limit.

        The result is a pandas or polars frame if the data came as one, else a dictionary of
        columns.
        """
        check_is_fitted(self, "analysis_")
        return labels.to_frame(self.analysis_.columns(self.level), self._frame)

    def held_out(self, *, share: float = 0.25, seed: int = 0) -> HeldOut:
        """Return the errors of personal, separate and pooled fits on held-out rows.

        A `share` of each group of at least 3 rows is held out, drawn with `seed`; all three are
        fitted to the rest. The model itself remains fitted to all rows.
        """
        check_is_fitted(self, "analysis_")
        analysis = self.analysis_
        return compare(analysis.rows, analysis.specification, share=share, seed=seed)

    def _page(self, *, whole: bool) -> Page:
        from fedprior.estimation.page.fitted import settings
        from fedprior.regression.page import regression_page
        from fedprior.regression.summary import page_keys, summary_of

        found, held = self.analysis_, None
        told = {"notes": list(self.notes_), "settings": settings(self), "version": __version__}
        if whole:
            try:
                held = self.held_out()
            except ValueError as error:  # groups are too small
                told["notes"] = [*self.notes_, f"No held-out comparison: {error}"]
            told |= page_keys(found, held)
        summary = summary_of(found, self.level, held)
        return regression_page({**summary, **told}, found.columns(self.level))

    def _specification(self) -> Specification:
        """The options of the fit: those of a specification that this estimator has."""
        known = {each.name for each in fields(Specification)}
        own = {name: value for name, value in vars(self).items() if name in known}
        return Specification(owner=self._owner, family=self._family, **own)

    def _learn(self, analysis: Analysis) -> None:
        fit = analysis.fit
        self.analysis_, self.population_ = analysis, fit.population
        self.groups_, self.n_ = analysis.levels, analysis.rows.sizes
        self.theta_, self.theta_errors_ = fit.theta, fit.errors
        self.coefficient_names_, self.fixed_names_ = analysis.names, analysis.fixed_names
        self.fixed_, self.noise_variance_ = fit.population.fixed, fit.population.noise_variance
        self.share_between_, self.log_likelihood_ = analysis.share_between, fit.log_likelihood
        self.covariance_kind_ = analysis.covariance
        self.responsibilities_ = fit.responsibilities
        self.num_dropped_, self.notes_ = analysis.num_dropped, analysis.notes

    def _columns(self, X: Any, *, reset: bool) -> dict[str, Any]:
        X = frames.taken(X)
        names = frames.column_names(X)
        own = names or []
        twice = ", ".join(dict.fromkeys(name for name in own if own.count(name) > 1))
        check.require(not twice, self._owner, "names of columns", "different", twice)
        cells = feature_columns(self, X, reset=reset)
        if not reset:
            names = [column.name for column in self.analysis_.design.columns]
        names = names or [f"x{number}" for number in range(len(cells))]
        return dict(zip(names, cells, strict=True))

    def _place(self, groups: Any) -> np.ndarray:
        return labels.look_up(self._owner, "groups", self.groups_, groups)

    def _asked(self, X: Any, groups: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, fixed and place of the rows to predict."""
        check_is_fitted(self, "analysis_")
        x, fixed = self.analysis_.design.apply(self._columns(X, reset=False))
        place = self._place(groups)
        numeric.same_length(self._owner, X=x, groups=place)
        return x, fixed, place


def _single(owner: str, y: Any) -> Any:
    """Flatten a target of one column, as scikit-learn does."""
    y = numeric.single(owner, "y", y)
    if frames.column_names(y) is not None or getattr(y, "ndim", 1) == 2:
        return column_or_1d(y, warn=True)
    return y
