"""Personalized logistic, softmax and Poisson regression, with theta integrated out."""

from fedprior.regression.logistic.fit import fit_logistic, fit_poisson
from fedprior.regression.logistic.pooled import (
    local_logistic,
    local_poisson,
    pooled_logistic,
    pooled_poisson,
)
from fedprior.regression.logistic.predictive import odds_covariance, predictive, probabilities

__all__ = [
    "fit_logistic",
    "fit_poisson",
    "local_logistic",
    "local_poisson",
    "odds_covariance",
    "pooled_logistic",
    "pooled_poisson",
    "predictive",
    "probabilities",
]
