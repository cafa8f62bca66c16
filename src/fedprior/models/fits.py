"""Whether a network fits the clients: its outputs, and that it treats samples one by one."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedprior.core import check, random
from fedprior.core.protocols import Model

_SAMPLES = 4
_ROUNDING = 1e-4  # relative: how much a matrix product of another batch may differ


def check_network(model: Model, shape: Sequence[int], num_classes: int | None) -> None:
    """Raise unless `model` gives one output per class (or one number) for each sample by itself.

    A network whose output for a sample depends on the other samples of the batch (batch
    normalization) has no likelihood of one sample, and its predictions would depend on who is
    asked beside whom.
    """
    parameters = model.init(random.root(0))
    draws = np.random.default_rng(0)
    first, second = draws.normal(size=(2, _SAMPLES, *shape)).astype(np.float32)
    second[0] = first[0]
    outputs = jax.eval_shape(model.apply, parameters, first)
    wanted = (_SAMPLES,) if num_classes is None else (_SAMPLES, num_classes)
    got = getattr(outputs, "shape", None)
    if got != wanted:
        rule = f"of shape {wanted} for {_SAMPLES} samples and "
        rule += "a quantity" if num_classes is None else f"{num_classes} classes"
        raise ValueError(check.message("network", "outputs", rule, got))
    one, other = (np.asarray(model.apply(parameters, each))[0] for each in (first, second))
    if not np.allclose(one, other, rtol=_ROUNDING, atol=_ROUNDING * _largest(one)):
        raise ValueError(
            "network: the output for a sample changes with the other samples of its batch, as with "
            "batch normalization. Use a network that treats samples one by one, for example with "
            "layer or group normalization."
        )


def _largest(values: Any) -> float:
    return float(np.abs(values).max(initial=1e-6))
