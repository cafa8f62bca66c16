"""What may leave a client: one channel per file."""

from fedprior.channels.central_gaussian import CentralGaussian
from fedprior.channels.chain import Chain
from fedprior.channels.distributed_gaussian import DistributedGaussian
from fedprior.channels.identity import Identity
from fedprior.channels.local_gaussian import LocalGaussian
from fedprior.channels.matrix_gaussian import MatrixGaussian
from fedprior.channels.quantize import Quantize
from fedprior.channels.randomized_response import KaryResponse, OneBit

__all__ = [
    "CentralGaussian",
    "Chain",
    "DistributedGaussian",
    "Identity",
    "KaryResponse",
    "LocalGaussian",
    "MatrixGaussian",
    "OneBit",
    "Quantize",
]
