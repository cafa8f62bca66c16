"""Networks and their likelihoods: what a client's parameters predict."""

from fedprior.models.images import cnn, resnet
from fedprior.models.lenet import lenet5
from fedprior.models.network import linear, logistic, mlp, network

__all__ = [
    "cnn",
    "lenet5",
    "linear",
    "logistic",
    "mlp",
    "network",
    "resnet",
]
