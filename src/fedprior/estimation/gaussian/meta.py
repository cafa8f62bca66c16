"""The figures of a meta-analysis, from the restricted likelihood of the studies."""

from typing import Any

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.coefficients import coefficients_of, explained
from fedprior.estimation.gaussian.fit import (
    MeanLaw,
    RatioProfile,
    common_law,
    information,
    ratio_of_squares,
    ratio_profile,
)
from fedprior.estimation.gaussian.leave_one_out import without_each
from fedprior.estimation.gaussian.rows import locations
from fedprior.estimation.gaussian.summary import average_row
from fedprior.estimation.intervals import normal_score
from fedprior.estimation.meta import MetaAnalysis


def meta_analysis(
    bins: Bins,
    fitted: RatioProfile,
    raw: np.ndarray,
    *,
    level: float,
    leave_one_out: bool = False,
) -> MetaAnalysis:
    """The meta-analysis of studies with known variances; `fitted` is the restricted maximum."""
    from scipy import special

    law = common_law(bins)
    variance, freedom = float(fitted.ratio[0]), bins.num_groups - law.design.shape[1]
    q = float(ratio_profile(bins, law, np.zeros(1)).squares[0])
    typical = freedom / _trace(bins, law)
    low, high = (
        ratio_of_squares(bins, law, float(special.chdtri(freedom, (1 - side * level) / 2)))
        for side in (1, -1)
    )
    share = average_row(bins, law)
    mean = float((share @ fitted.coefficients[0] + bins.center)[0])
    error = float(np.sqrt(share @ fitted.covariance[0] @ share))
    score = normal_score(level)
    reach = score * float(np.sqrt(error**2 + variance))
    found = MetaAnalysis(
        num_studies=bins.num_groups,
        freedom=freedom,
        q=q,
        q_p_value=float(special.chdtrc(freedom, q)),
        i_squared=variance / (variance + typical),
        h_squared=1 + variance / typical,
        variance=variance,
        variance_error=float(information(bins, law, ratio=variance, noise=1.0)[0, 0] ** -0.5),
        variance_lower=low,
        variance_upper=high,
        mean=mean,
        mean_error=error,
        mean_lower=mean - score * error,
        mean_upper=mean + score * error,
        prediction_lower=mean - reach,
        prediction_upper=mean + reach,
        log_likelihood=_log_likelihood(bins, law, fitted),
        level=level,
        study_errors=np.sqrt(np.append(bins.unit, np.nan))[bins.place],
        study_means=locations(bins, law, fitted.coefficients[0], slice(None))[:, 0] + bins.center,
        leave_one_out=without_each(bins, law, raw) if leave_one_out else None,
        **_regression(bins, law, fitted, level),
    )
    return found


def _regression(bins: Bins, law: MeanLaw, fitted: RatioProfile, level: float) -> dict[str, Any]:
    """The coefficients and the test that all slopes are 0, if there are covariates."""
    from scipy import special

    if bins.covariates is None:
        return {}
    share = explained(bins, law, fitted)
    slopes, inside = fitted.coefficients[0, 1:, 0], fitted.covariance[0, 1:, 1:]
    test = float(slopes @ np.linalg.solve(inside, slopes))
    return {
        "coefficients": coefficients_of(bins, law, fitted, level=level, r_squared=share),
        "covariate_q": test,
        "covariate_p_value": float(special.chdtrc(len(slopes), test)),
    }


def _log_likelihood(bins: Bins, law: MeanLaw, fitted: RatioProfile) -> float:
    """The restricted log-likelihood, with log |X'X| / 2, so that it does not depend on units."""
    freedom = bins.num_groups - law.design.shape[1]
    size = float(np.linalg.slogdet(law.gram.sum(axis=0))[1])
    return float(fitted.log_likelihood[0]) + (size - freedom * float(np.log(2 * np.pi))) / 2


def _trace(bins: Bins, law: MeanLaw) -> float:
    """tr(P) at variance 0, P = W - W X (X'WX)^-1 X'W; (m - p) / tr(P) is a typical variance."""
    weight = 1 / bins.unit
    first, second = (np.tensordot(each, law.gram, axes=1) for each in (weight, weight**2))
    return float(bins.count @ weight - np.trace(np.linalg.solve(first, second)))
