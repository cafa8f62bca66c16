"""Mixtures of regressions: theta_i is near, or equal to, one of k centers."""

from fedprior.regression.mixture.fit import fit_mixture as fit_mixture
