"""Any network with its convolutions and pools in the form of `layers`, whoever wrote it.

A network of Equinox, Flax, Haiku or plain JAX is the same few primitives once it is traced. So the
trace is evaluated with other code for `conv_general_dilated` and for the maximum and the sum over
windows, and the network itself stays as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Predict
from fedprior.models.layers import added, largest, side_by_side, tiled, unpadded, windows

SLOW = (
    "conv_general_dilated",
    "reduce_window_max",
    "reduce_window_min",
)  # by how much: see `layers`
_INLINED = ("jit", "pjit", "closed_call", "core_call")
_TRACED_AGAIN = ("scan", "cond", "while", "remat", "remat2", "checkpoint")


@dataclass(frozen=True)
class FastConvolutions:
    """`apply` with fast convolutions and pools; equal for an equal `apply`."""

    apply: Predict

    def __call__(self, parameters: PyTree, x: Array) -> Array:
        traced, shape = jax.make_jaxpr(self.apply, return_shape=True)(parameters, x)
        leaves = jax.tree.leaves((parameters, x))
        outputs = _evaluate(traced.jaxpr, traced.consts, leaves)
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def fast_convolutions(apply: Predict) -> Predict:
    """Return `apply(parameters, x)` with convolutions and pools that are fast for many clients.

    `fedprior.network` does this by default. The outputs agree to rounding; where members of a
    pooling window are equal and largest, the gradient is shared among them.
    """
    return apply if isinstance(apply, FastConvolutions) else FastConvolutions(apply)


def conv_general_dilated(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """`jax.lax.conv_general_dilated` as in `layers`, with the same arguments.

    Flax takes it as an argument: `nn.Conv(..., conv_general_dilated=...)`.
    """
    dimensions = lhs.ndim - 2
    numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    inner = lhs_dilation or (1,) * dimensions
    outer = rhs_dilation or (1,) * dimensions
    batch, channels, *pixels = numbers.lhs_spec
    out, into, *places = numbers.rhs_spec
    x = jnp.transpose(lhs, (batch, *pixels, channels))
    kernel = jnp.transpose(rhs, (*places, into, out))
    lengths = [1 + (n - 1) * step for n, step in zip(x.shape[1:-1], inner, strict=True)]
    reach = [1 + (n - 1) * step for n, step in zip(kernel.shape[:-2], outer, strict=True)]
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(lengths, reach, window_strides, padding)
    ends = [(*pair, step - 1) for pair, step in zip(padding, inner, strict=True)]
    if any(map(any, ends)):
        x = jax.lax.pad(x, jnp.zeros((), x.dtype), ((0, 0, 0), *ends, (0, 0, 0)))
    if batch_group_count > 1:  # groups of samples instead of channels
        x = jnp.moveaxis(x.reshape(batch_group_count, -1, *x.shape[1:]), 0, -2)
        x = x.reshape(*x.shape[:-2], -1)
        feature_group_count = batch_group_count
    options = {"precision": precision, "preferred_element_type": preferred_element_type}
    y = unpadded(x, kernel, tuple(window_strides), tuple(outer), feature_group_count, **options)
    order = numbers.out_spec
    return jnp.transpose(y, [_place(axis, order) for axis in range(y.ndim)])


def slow_operations(traced: Jaxpr) -> Iterator[str]:
    """Names of the operations in `traced` that are slow with a kernel for every client."""
    return _named(traced, SLOW)


def _named(traced: Jaxpr, names: Sequence[str]) -> Iterator[str]:
    for equation in traced.eqns:
        if equation.primitive.name in names:
            yield equation.primitive.name
        for inner in _inside(equation):
            yield from _named(inner, names)


def _place(axis: int, order: Sequence[int]) -> int:
    """Return where (batch, ..., channels) has what belongs at `axis` of an output in `order`."""
    at = order.index(axis)  # 0 is the batch, 1 the channels, the rest are pixels
    return 0 if at == 0 else len(order) - 1 if at == 1 else at - 1


def _inside(equation: JaxprEqn) -> Iterator[Jaxpr]:
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, ClosedJaxpr | Jaxpr):
                yield each.jaxpr if isinstance(each, ClosedJaxpr) else each


def _evaluate(traced: Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values = dict(zip(traced.constvars, constants, strict=True))
    values |= dict(zip(traced.invars, arguments, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for equation in traced.eqns:
        outputs = _replaced(equation, [read(variable) for variable in equation.invars])
        values |= dict(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in traced.outvars]


def _replaced(equation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    """Return the outputs of one operation, in its fast form where there is one."""
    primitive: Any = equation.primitive
    parameters = equation.params
    if primitive.name in _FORMS:
        fast = _FORMS[primitive.name](*inputs, **parameters)
        if fast is not None:
            return [fast]
    if any(True for inner in _inside(equation) for _ in _named(inner, tuple(_FORMS))):
        if primitive.name in _INLINED:
            closed: Any = parameters.get("jaxpr", parameters.get("call_jaxpr"))
            return _evaluate(closed.jaxpr, closed.consts, inputs)
        if primitive.name in _TRACED_AGAIN:
            parameters = {name: _again(value) for name, value in parameters.items()}
    bound = primitive.get_bind_params(parameters)
    functions, options = bound if isinstance(bound, tuple) else ((), bound)  # before jax 0.10
    with equation.ctx.manager:
        outputs = primitive.bind(*functions, *inputs, **options)
    return outputs if primitive.multiple_results else [outputs]


def _again(value: Any) -> Any:
    """Return a parameter of an operation, with fast forms in the traces that it holds."""
    if isinstance(value, tuple):
        return tuple(map(_again, value))
    if isinstance(value, ClosedJaxpr):
        return jax.make_jaxpr(lambda *given: _evaluate(value.jaxpr, value.consts, given))(
            *value.in_avals
        )
    if isinstance(value, Jaxpr):
        again = jax.make_jaxpr(lambda *given: _evaluate(value, (), given))(
            *(variable.aval for variable in value.invars)
        )
        return value if again.consts else again.jaxpr
    return value


def _convolution(lhs: Array, rhs: Array, **parameters: Any) -> Array | None:
    numbers = parameters["dimension_numbers"]
    window = [rhs.shape[axis] for axis in numbers.rhs_spec[2:]]
    sides = [1]
    if parameters["feature_group_count"] == parameters["batch_group_count"] == 1:
        lengths = [
            1 + (lhs.shape[axis] - 1) * step + sum(pair)
            for axis, step, pair in zip(
                numbers.lhs_spec[2:], parameters["lhs_dilation"], parameters["padding"], strict=True
            )
        ]
        moves = parameters["window_strides"], parameters["rhs_dilation"]
        sides = side_by_side(lengths, window, *moves)
    if not window or prod(window) > _WIDEST * prod(sides):
        return None
    known = {name: parameters[name] for name in parameters if name in _ARGUMENTS}
    return conv_general_dilated(lhs, rhs, **known)


def _maximum(x: Array, **parameters: Any) -> Array | None:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return _pooled(x, -jnp.inf, largest, jnp.max, **parameters)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return _pooled(x, np.iinfo(x.dtype).min, largest, jnp.max, **parameters)
    return None


def _minimum(x: Array, **parameters: Any) -> Array | None:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return None
    found = _maximum(-x, **parameters)
    return None if found is None else -found


def _sum(x: Array, **parameters: Any) -> Array | None:
    return _pooled(x, 0, lambda *given: added(windows(*given)), jnp.sum, **parameters)


def _pooled(
    x: Array,
    empty: float,
    pool: Callable[..., Array],
    whole: Callable[..., Array],
    *,
    padding: Sequence[tuple[int, int]],
    window_dimensions: tuple[int, ...],
    window_strides: tuple[int, ...],
    base_dilation: tuple[int, ...],
    window_dilation: tuple[int, ...],
) -> Array | None:
    """`pool` of windows; where they are wide, first the `whole` of their sides side by side."""
    ends = [(*pair, step - 1) for pair, step in zip(padding, base_dilation, strict=True)]
    if any(map(any, ends)):
        x = jax.lax.pad(x, jnp.asarray(empty, x.dtype), ends)
    window, stride = window_dimensions, window_strides
    if prod(window) > _WIDEST:
        sides = side_by_side(x.shape, window, stride, window_dilation)
        window, stride = (
            tuple(1 if side > 1 else own for side, own in zip(sides, moves, strict=True))
            for moves in (window, stride)
        )
        if prod(window) > _WIDEST:
            return None
        x = whole(tiled(x, sides), axis=tuple(range(1, 2 * x.ndim, 2)))
    return pool(x, window, stride, window_dilation)


_WIDEST = 121  # members of overlapping windows: each is a slice, which takes time to compile
_ARGUMENTS = conv_general_dilated.__annotations__.keys()
_FORMS: dict[str, Callable[..., Array | None]] = {
    "conv_general_dilated": _convolution,
    "reduce_window_max": _maximum,
    "reduce_window_min": _minimum,
    "reduce_window_sum": _sum,
}
