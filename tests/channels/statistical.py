"""What the tests of channels share: a bound on the mean of many draws."""

import numpy as np
from scipy.stats import norm

FALSE_ALARM = 1e-6  # of each statistical test


def close_in_mean(draws, expected, scale):
    """Whether the mean over axis 0 is `expected`, the draws having standard deviation `scale`.

    Every coordinate gets its share of the false alarm; an error of 5 to 6 standard errors is seen.
    """
    error = np.abs(draws.mean(axis=0) - expected) / (scale / np.sqrt(len(draws)) + 1e-15)
    return bool((error < norm.isf(FALSE_ALARM / 2 / max(error.size, 1))).all())
