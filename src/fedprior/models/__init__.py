"""Networks and their likelihoods: what a client's parameters predict."""

from fedprior.models import layers
from fedprior.models.images import cnn, resnet
from fedprior.models.lenet import lenet5
from fedprior.models.network import linear, logistic, mlp, network
from fedprior.models.precision import in_precision
from fedprior.models.rewriting import fast_convolutions
from fedprior.models.tabular import in_units

__all__ = [
    "cnn",
    "fast_convolutions",
    "in_precision",
    "in_units",
    "layers",
    "lenet5",
    "linear",
    "logistic",
    "mlp",
    "network",
    "resnet",
]
