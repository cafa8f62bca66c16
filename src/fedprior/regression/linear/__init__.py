"""Personalized linear regression: marginal likelihood, federated EM, and known populations."""

from fedprior.regression.linear.fit import fit_linear
from fedprior.regression.linear.pooled import dependent_columns, local_linear, pooled_linear

__all__ = ["dependent_columns", "fit_linear", "local_linear", "pooled_linear"]
