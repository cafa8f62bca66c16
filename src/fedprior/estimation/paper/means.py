"""Thm 1 as printed, with the raw variance of the group means (ERRATA D1)."""

from dataclasses import replace

import numpy as np

from fedprior.estimation.gaussian.bins import Bins
from fedprior.estimation.gaussian.fit import MeanLaw, RatioProfile, ratio_profile
from fedprior.estimation.gaussian.posterior import LinearRule


def paper_fit(
    bins: Bins, law: MeanLaw, theta_variance: float | None
) -> tuple[RatioProfile, LinearRule]:
    """Thm 1 as printed: the plain mean, and the raw variance of the means for theta's variance."""
    noise, groups = bins.noise_guess, bins.num_groups
    raw_variance = bins.between * groups / (groups - 1)
    variance = raw_variance if theta_variance is None else theta_variance
    fitted = ratio_profile(bins, law, np.array([variance / noise]))
    plain = replace(fitted, coefficients=np.zeros_like(fitted.coefficients))
    slope = np.append(variance / (variance + noise * bins.unit), 0.0)
    return plain, LinearRule(slope=slope, offset=np.zeros((len(slope), 1, bins.dimension)))
