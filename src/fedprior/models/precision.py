"""Networks whose matrix products are computed in fewer digits, for speed on a GPU."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import jax

from fedprior.core import check
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Predict
from fedprior.models.network import Network

Precision = Literal["default", "float32", "bfloat16"]
_NAMES = {"float32": "highest", "bfloat16": "BF16_BF16_F32"}  # as JAX calls them


@dataclass(frozen=True)
class InPrecision:
    """`apply` with products of `precision`, forward and backward; equal for equal arguments."""

    apply: Predict
    precision: str

    def __call__(self, parameters: PyTree, x: Array) -> Array:
        with jax.default_matmul_precision(_NAMES[self.precision]):
            return self.apply(parameters, x)


def in_precision(model: Network, precision: Precision) -> Network:
    """Return `model` with matrix products of this precision, and parameters of 32 bits.

    "bfloat16" rounds the factors of every product to 8 binary digits and adds up in 32 bits, in the
    gradient too; a CPU computes it in 32 bits. "float32" keeps all 24 digits. "default" is what JAX
    takes: 32 bits on a CPU, about 11 digits ("TF32") on a recent GPU.
    """
    check.choice("in_precision", "precision", precision, get_args(Precision))
    if precision == "default":
        return model
    return replace(model, apply=InPrecision(model.apply, precision))
