"""Personalized logistic and softmax regression: theta integrated out, or the paper's descent."""

from fedprior.regression.logistic.fit import fit_logistic
from fedprior.regression.logistic.pooled import local_logistic, pooled_logistic, probabilities

__all__ = ["fit_logistic", "local_logistic", "pooled_logistic", "probabilities"]
