"""Regressions that come in a few kinds: theta_i is near, or is, one of k centers."""

from fedprior.regression.mixture.fit import fit_mixture as fit_mixture
