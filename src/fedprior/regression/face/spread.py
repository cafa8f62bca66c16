"""How far theta may be from its estimate, for intervals."""

from typing import Any

import numpy as np

from fedprior.regression.face.specification import Specification, in_units
from fedprior.regression.linear.integrated import FEW, ThetaSpread, theta_spread
from fedprior.regression.result import RegressionFit
from fedprior.regression.rows import GroupedRows

FEW_GROUPS = 10  # below, a note


def spread_of(
    fit: RegressionFit, rows: GroupedRows, specification: Specification, scale: np.ndarray
) -> ThetaSpread:
    """The scale and the degrees of freedom of theta about its estimate, in the units of the table.

    With fewer than 50 groups they allow for the uncertainty of the variances: integrated over for
    numbers; for classes and counts, as many degrees of freedom as a mean of the groups has. `rows`
    have features divided by `scale`.
    """
    groups = int((rows.sizes > 0).sum())
    if not _has_student(specification) or groups >= FEW:
        return ThetaSpread(fit.errors, np.full(fit.errors.shape, np.inf))
    if fit.family != "gaussian":
        return ThetaSpread(fit.errors, np.full(fit.errors.shape, max(groups - 1.0, 1.0)))
    covariance: Any = specification.covariance
    found = theta_spread(rows, in_units(fit, 1 / scale), covariance)
    return ThetaSpread(found.scale / scale, found.freedom)


def _has_student(specification: Specification) -> bool:
    """Whether intervals may allow for the uncertainty of the variances."""
    return specification.is_gaussian and specification.method != "paper"


def few_note(rows: GroupedRows, specification: Specification) -> list[str]:
    """What few groups mean for the errors, if they are few."""
    groups = int((rows.sizes > 0).sum())
    if groups >= FEW_GROUPS:
        return []
    allowed = "The intervals allow for this, with Student's t; the standard errors do not."
    ignored = "Errors and intervals do not allow for this."
    told = allowed if _has_student(specification) else ignored
    return [f"Only {groups} groups: how much they differ is known poorly. {told}"]
