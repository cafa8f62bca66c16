"""Personalized logistic and softmax regression, with theta integrated out."""

from fedprior.regression.logistic.fit import fit_logistic
from fedprior.regression.logistic.pooled import local_logistic, pooled_logistic
from fedprior.regression.logistic.predictive import odds_covariance, predictive, probabilities

__all__ = [
    "fit_logistic",
    "local_logistic",
    "odds_covariance",
    "pooled_logistic",
    "predictive",
    "probabilities",
]
