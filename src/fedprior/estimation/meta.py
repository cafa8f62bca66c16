"""Meta-analysis: how much studies with known standard errors differ, and what they say together."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedprior.estimation.covariates import Coefficients


@dataclass(frozen=True, kw_only=True, eq=False)
class LeaveOneOut:
    """The mean, its standard error, theta's variance, Q and I^2 without each study, in order."""

    mean: np.ndarray
    mean_error: np.ndarray
    variance: np.ndarray
    q: np.ndarray
    i_squared: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True, eq=False)
class MetaAnalysis:
    """The random-effects model x_i ~ N(theta_i, v_i), theta_i ~ N(mean, variance), v_i known.

    `variance` (tau^2) is the restricted maximum, with its standard error from the expected
    information and a Q-profile interval. `q` is Cochran's Q about the regression at variance 0,
    with `freedom` degrees of freedom and its p-value. `i_squared` = variance / (variance + v) is
    the share of the variation that is not noise, v a typical v_i, and `h_squared` is 1 + variance /
    v. `mean` has the standard error and the normal interval of generalized least squares with the
    variance plugged in; the prediction interval is that of the theta of a new study. With
    covariates, mean and prediction are at their averages, `coefficients` holds the regression with
    the same kind of errors, and `covariate_q` tests that all slopes are 0. `log_likelihood` is the
    restricted one. All intervals have coverage `level`. `study_errors` are the
    standard errors of the studies, `study_means` their means by the regression, one per group (NaN
    for the errors of groups without data). The intervals of the studies themselves, in
    `Estimates`, account for the uncertainty of the variance as well.
    """

    num_studies: int
    freedom: int
    q: float
    q_p_value: float
    i_squared: float
    h_squared: float
    variance: float
    variance_error: float
    variance_lower: float
    variance_upper: float
    mean: float
    mean_error: float
    mean_lower: float
    mean_upper: float
    prediction_lower: float
    prediction_upper: float
    log_likelihood: float
    level: float
    study_errors: np.ndarray
    study_means: np.ndarray
    coefficients: Coefficients | None = None
    covariate_q: float | None = None
    covariate_p_value: float | None = None
    leave_one_out: LeaveOneOut | None = None

    def summary(self) -> dict[str, Any]:
        """What `fedprior estimate --json` prints under `meta_analysis`."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = ("study_errors", "study_means")
        found = {k: each for k, each in found.items() if each is not None and k not in arrays}
        if self.coefficients is not None:
            found["coefficients"] = self.coefficients.summary()
            found["r_squared"] = self.coefficients.r_squared
        if self.leave_one_out is not None:
            columns = self.leave_one_out.columns()
            found["leave_one_out"] = {name: each.tolist() for name, each in columns.items()}
        return found
