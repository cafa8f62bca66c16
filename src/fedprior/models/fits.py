"""Whether a network fits the clients: its outputs, and that it treats samples one by one."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr

from fedprior.core import random
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Model
from fedprior.models.rewriting import slow_operations

_SAMPLES = 4
_REAL = "real numbers of at least 32 bits"
_REMEDY = (
    "Keep what is not trained out of them, as equinox.partition(module, equinox.is_inexact_array) "
    "and flax.nnx.split(module, flax.nnx.Param, ...) do."
)
_REMEDIES = {
    jnp.complexfloating: "Train its real and its imaginary part.",
    jnp.floating: "Convert it in init; apply may round it.",
}
_STATISTICS = "batch_stats"  # Flax's name for means and variances of batches
_SHAPES = (TypeError, ValueError, IndexError)  # of inputs that do not fit, which say so themselves
_AS_FOR_PREDICTION = (
    " A run applies networks as for prediction: without dropout and without statistics that change."
)
_ROUNDING = 1e-4  # relative: how much a matrix product of another batch may differ
_HALF_ROUNDING = 0.02  # and that of another row, which may be rounded to half precision


class SlowNetworkWarning(UserWarning):
    """A network would be trained with convolutions or pools that are slow for many clients."""


def check_network(
    model: Model, shape: tuple[int, ...], outputs: tuple[int, ...], inputs: str = "float32"
) -> None:
    """Raise unless `model` gives an array of shape `outputs` for each sample by itself.

    A network whose output for a sample depends on the other samples of the batch (batch
    normalization) has no likelihood of a single sample, and its predictions would depend on which
    samples happen to be predicted together.
    """
    arguments: tuple[Any, ...] = (model, shape, outputs, inputs)
    try:
        hash(arguments)
    except TypeError:  # a model of one's own may be a plain dataclass
        _check.__wrapped__(*arguments)
    else:
        _check(*arguments)


@lru_cache(maxsize=128)  # every run of a model asks again
def _check(model: Model, shape: tuple[int, ...], outputs: tuple[int, ...], inputs: str) -> None:
    draws = np.random.default_rng(0)

    def drawn(leaf: Any) -> Array:  # a layer that starts at zero would hide the others
        return jnp.asarray(draws.normal(size=leaf.shape).astype(leaf.dtype))

    # Shapes alone: compiling the model's own draws takes longer than all the rest.
    parameters = jax.tree.map(drawn, _parameters(model))
    first, second = np.abs(draws.normal(size=(2, _SAMPLES, *shape))).astype(inputs)
    second[0] = second[-1] = first[0]  # among others, and in another place
    try:
        traced, got = jax.make_jaxpr(model.apply, return_shape=True)(parameters, first)
    except Exception as error:  # of the network's own library, such as one of dropout without a key
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"network: it cannot be applied to {inputs} samples of shape {tuple(shape)}: {said}"
            f"{'' if isinstance(error, _SHAPES) else '.' + _AS_FOR_PREDICTION}"
        ) from error
    if not isinstance(got, jax.ShapeDtypeStruct):
        raise ValueError(
            "network: outputs must be one array, got "
            f"{jax.tree.map(lambda leaf: leaf.shape, got)}. Return the predictions alone; layers "
            "with a state must leave it as it is."
        )
    if got.shape != (_SAMPLES, *outputs):
        raise ValueError(
            f"network: outputs for {_SAMPLES} samples must be of shape {(_SAMPLES, *outputs)}, "
            f"{_reason(outputs)}, got {got.shape}."
        )
    if not _is_real(got):
        raise ValueError(
            f"network: outputs must be {_REAL}, got {got.dtype}. Convert them with .astype."
        )
    _warn_if_slow(traced.jaxpr)
    if not np.isfinite(model.apply(parameters, first)).all():
        # A parameter has a limited range, such as that of a variance.
        parameters = model.init(random.root(0))
    (one, *_), (same, *_, moved) = (
        np.asarray(model.apply(parameters, each)) for each in (first, second)
    )
    if not np.isfinite(one).all():
        raise ValueError(
            "network: outputs must be finite at the initial parameters, got "
            f"{one[~np.isfinite(one)].flat[0]} for inputs that are random positive numbers. Change "
            "init, or let apply bring inputs into range."
        )
    scale = float(np.abs(one).max(initial=1e-6))
    if not np.allclose(one, same, rtol=_ROUNDING, atol=_ROUNDING * scale):
        raise ValueError(
            "network: the output for a sample changes with the other samples of its batch, as with "
            "batch normalization. Use a network that treats samples one by one, for example with "
            "layer or group normalization."
        )
    if not np.allclose(one, moved, rtol=_HALF_ROUNDING, atol=_HALF_ROUNDING * scale):
        raise ValueError(
            "network: the output for a sample changes with its place in the batch, as with dropout "
            f"by a fixed key.{_AS_FOR_PREDICTION}"
        )


def _parameters(model: Model) -> PyTree:
    """The shapes of the parameters, all of which are trained."""
    try:
        shapes = jax.eval_shape(model.init, random.root(0))
    except TypeError as error:
        raise TypeError(
            f"network: parameters must be arrays. {_REMEDY} ({str(error).splitlines()[0]})"
        ) from error
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        if _STATISTICS in map(str, (getattr(part, "key", part) for part in path)):
            raise ValueError(
                f"network: parameters must be without {_STATISTICS}, which a gradient step would "
                "change like weights. Let init return params alone, and use layer or group "
                "normalization; apply may also add statistics that stay as they are."
            )
        if not _is_real(leaf):
            known = (text for kind, text in _REMEDIES.items() if jnp.issubdtype(leaf.dtype, kind))
            remedy = next(known, _REMEDY)
            raise TypeError(
                f"network: parameters must be {_REAL}, got {leaf.dtype} at "
                f"{jax.tree_util.keystr(path, simple=True, separator='/') or 'the top'}. {remedy}"
            )
    return shapes


def _is_real(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize >= 4


def _warn_if_slow(traced: Jaxpr) -> None:
    names = sorted(set(slow_operations(traced)))
    if names:
        warnings.warn(
            f"network: {' and '.join(names)} may take 10 to 60 times as long as needed with a "
            "model for every client, and minutes to compile. fedprior.network and "
            "fedprior.models.fast_convolutions replace them, except in a function with a gradient "
            "of its own (custom_vjp, custom_jvp) and in overlapping windows of more than 121 "
            "places: use the functions of fedprior.models.layers there.",
            SlowNetworkWarning,
            stacklevel=2,
        )


def _reason(outputs: Sequence[int]) -> str:
    return f"one per class ({outputs[-1]})" if outputs else "one number each for a quantity"
