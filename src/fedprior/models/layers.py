"""Convolution, pooling and group normalization that stay fast with a kernel for every client.

Mapped over clients, XLA's convolution becomes a grouped one, and inside a loop on a CPU it loses
its fast code: measured 9 to 60 times slower there than a product with patches, which has as many
multiplications and runs at the speed of matrix products. The gradient of XLA's pooling scatters
one number at a time and is 7 to 18 times slower than a comparison of slices. Here both are slices,
concatenations and products, which stay what they are under `vmap`, `scan` and reverse-mode `grad`.

Images are (batch, height, width, channels) and kernels (height, width, channels, outputs), with any
number of axes instead of height and width.
"""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from math import prod
from operator import le
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.models.winograd import convolve_tiles

Padding = Literal["valid", "same"] | int | Sequence[int | tuple[int, int]]
Sizes = int | Sequence[int]
_Pairs = tuple[tuple[int, int], ...]


def convolve(
    x: Array,
    kernel: Array,
    *,
    stride: Sizes = 1,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """(batch, ..., C) and (..., C / groups, O) -> (batch, ..., O): the sum over a window at a time.

    `padding` is "valid" (none), "same" (as many outputs as inputs at stride 1), a number of zeros
    for both ends of every axis, or a number or a pair (before, after) for each axis.
    """
    owner = "convolve"
    dimensions = x.ndim - 2
    check.require(kernel.ndim == x.ndim, owner, "kernel", f"of {x.ndim} axes, as x", kernel.shape)
    rule = f"({x.shape[-1]} channels of x) / groups = {groups}"
    fits = groups * kernel.shape[-2] == x.shape[-1] and kernel.shape[-1] % groups == 0
    check.require(fits, owner, "the channels of kernel", rule, kernel.shape[-2:])
    strides = _sizes(owner, "stride", stride, dimensions)
    dilations = _sizes(owner, "dilation", dilation, dimensions)
    window = kernel.shape[:-2]
    reach = tuple(1 + (size - 1) * step for size, step in zip(window, dilations, strict=True))
    pairs = _pairs(owner, padding, x.shape[1:-1], reach, strides)
    return unpadded(_padded(x, pairs), kernel, strides, dilations, groups)


def max_pool(
    x: Array, *, window: Sizes = 2, stride: Sizes | None = None, padding: Padding = "valid"
) -> Array:
    """Maximum over windows; its gradient is shared among the equal largest members of a window.

    The stride is the window unless it is given. Padding never wins.
    """
    sizes, strides, pairs = _pooling("max_pool", x, window, stride, padding)
    lowest = -jnp.inf if jnp.issubdtype(x.dtype, jnp.inexact) else np.iinfo(x.dtype).min
    return largest(_padded(x, pairs, lowest), sizes, strides, (1,) * x.ndim)


def average_pool(
    x: Array, *, window: Sizes = 2, stride: Sizes | None = None, padding: Padding = "valid"
) -> Array:
    """Mean over windows, padding included as zeros; the stride is the window unless given."""
    sizes, strides, pairs = _pooling("average_pool", x, window, stride, padding)
    return added(windows(_padded(x, pairs), sizes, strides)) / prod(sizes)


def group_normalize(
    x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float = 1e-5
) -> Array:
    """Normalize each sample over its pixels and each of `groups` groups of channels; then scale.

    No sample sees another one, unlike in batch normalization (Wu and He 2018).
    """
    channels = x.shape[-1]
    rule = f"a divisor of the {channels} channels"
    check.require(groups >= 1 and channels % groups == 0, "group_normalize", "groups", rule, groups)
    parts = x.reshape(x.shape[0], -1, groups, channels // groups)
    mean = parts.mean(axis=(1, 3), keepdims=True)
    variance = jnp.square(parts - mean).mean(axis=(1, 3), keepdims=True)
    parts = (parts - mean) * jax.lax.rsqrt(variance + epsilon)
    return parts.reshape(x.shape) * scale + bias


def windows(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
) -> list[Array]:
    """Return the members of all windows of x, one array for each place in the window.

    `size`, `stride` and `dilation` have a number for every axis of x.
    """
    ones = (1,) * x.ndim
    strides, gaps = stride or ones, dilation or ones
    reach = [1 + (width - 1) * gap for width, gap in zip(size, gaps, strict=True)]
    check.require(
        all(map(le, reach, x.shape)), "windows", "size", f"at most {x.shape}", tuple(reach)
    )
    members = []
    for place in product(*map(range, size)):
        first = [at * gap for at, gap in zip(place, gaps, strict=True)]
        last = [
            start + (length - far) // step * step + 1
            for start, length, far, step in zip(first, x.shape, reach, strides, strict=True)
        ]
        members.append(jax.lax.slice(x, first, last, strides))
    return members


def added(terms: Sequence[Array]) -> Array:
    """Sum of the terms, without the zero that Python's `sum` starts from."""
    return reduce(jnp.add, terms)


def unpadded(
    x: Array,
    kernel: Array,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    **options: Any,
) -> Array:
    """The convolution of x without padding; `options` are those of a product of matrices.

    By tiles where that was measured to be faster (decision 0074), and by patches otherwise.
    """
    *window, inputs, _ = kernel.shape
    simple = groups == 1 and max(*stride, *dilation) == 1 and not any(options.values())
    square = len(window) == 2 and window[0] == window[1] and window[0] in (3, 4, 5)
    single = x.dtype == kernel.dtype == jnp.float32
    if simple and square and single and inputs >= 16 and jax.default_backend() == "cpu":
        return convolve_tiles(x, kernel)
    return _by_patches(x, kernel, stride, dilation, groups, **options)


def _by_patches(
    x: Array,
    kernel: Array,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    **options: Any,
) -> Array:
    """One product for each group of channels; a group of one channel needs no matrices."""
    if groups == 1:
        sides = side_by_side(x.shape[1:-1], kernel.shape[:-2], stride, dilation)
        x, kernel = _cut(x, sides), _cut_kernel(kernel, sides)
        stride = tuple(1 if side > 1 else step for side, step in zip(sides, stride, strict=True))
    *window, inputs, outputs = kernel.shape
    members = windows(x, (1, *window, 1), (1, *stride, 1), (1, *dilation, 1))
    matrix = kernel.reshape(-1, outputs)
    if inputs == 1 and groups > 1:
        kind = options.get("preferred_element_type") or x.dtype
        # As products do: half precision is too short for the sums of the kernel's gradient.
        wide = jnp.promote_types(kind, jnp.float32) if jnp.issubdtype(kind, jnp.floating) else kind
        rows = matrix.astype(wide)
        each = [jnp.repeat(member, outputs // groups, axis=-1).astype(wide) for member in members]
        return added([member * row for member, row in zip(each, rows, strict=True)]).astype(kind)
    shape = (*members[0].shape[:-1], outputs)
    if groups == 1:
        rows = jnp.concatenate(members, axis=-1).reshape(-1, matrix.shape[0])
        return jnp.matmul(rows, matrix, **options).reshape(shape)
    parts = [member.reshape(*shape[:-1], groups, inputs) for member in members]
    matrix = matrix.reshape(-1, groups, outputs // groups)
    patches = jnp.concatenate(parts, axis=-1)
    return jnp.einsum("...gi,igo->...go", patches, matrix, **options).reshape(shape)


def side_by_side(
    lengths: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int] | None = None,
) -> list[int]:
    """The window's side on axes where windows neither overlap nor leave gaps, 1 on others.

    There, patches are a transposition of x. A window that has one place on an axis is such a one.
    """

    def beside(length: int, side: int, step: int, gap: int) -> bool:
        return gap == 1 and (side == step <= length or side <= length < side + min(side, step))

    gaps = dilation or (1,) * len(window)
    axes = zip(lengths, window, stride, gaps, strict=True)
    return [axis[1] if beside(*axis) else 1 for axis in axes]


def _cut(x: Array, window: Sequence[int]) -> Array:
    """(batch, ..., C) -> (batch, ..., window and C): patches side by side, without the rest."""
    if max(window) == 1:
        return x
    x = tiled(x, (1, *window, x.shape[-1]))
    x = x.transpose(*range(0, x.ndim, 2), *range(1, x.ndim, 2))
    return x.reshape(*x.shape[: 1 + len(window)], -1)


def _cut_kernel(kernel: Array, sides: Sequence[int]) -> Array:
    """(window, C, O) -> (rest of the window, sides and C, O): the kernel for `_cut` images."""
    if max(sides) == 1:
        return kernel
    *window, inputs, outputs = kernel.shape
    rest = [width // side for width, side in zip(window, sides, strict=True)]
    kernel = tiled(kernel, (*sides, inputs, outputs))
    kernel = kernel.transpose(*range(0, kernel.ndim, 2), *range(1, kernel.ndim, 2))
    return kernel.reshape(*rest, prod(sides) * inputs, outputs)


def tiled(x: Array, window: Sequence[int]) -> Array:
    """x, without the rest, with two axes for each of its own: the window, and the place in it."""
    counts = [length // width for length, width in zip(x.shape, window, strict=True)]
    pairs = list(zip(counts, window, strict=True))
    x = jax.lax.slice(x, (0,) * x.ndim, [count * width for count, width in pairs])
    return x.reshape([number for pair in pairs for number in pair])


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def largest(x: Array, *moves: tuple[int, ...]) -> Array:
    """Maximum over windows of x, without padding; `moves` are those of `windows`."""
    return reduce(jnp.maximum, windows(x, *moves))


def _largest_forward(x: Array, *moves: tuple[int, ...]) -> tuple:
    found = largest(x, *moves)
    return found, (x, found)


def _largest_backward(
    window: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    saved: tuple[Array, Array],
    gradient: Array,
) -> tuple[Array]:
    # Comparisons; differentiating jnp.maximum would keep a mask for each member and cost more.
    x, found = saved
    members, back = jax.vjp(lambda x: windows(x, window, stride, dilation), x)
    hits = [member == found for member in members]
    share = gradient / added([hit.astype(gradient.dtype) for hit in hits])
    shares = [jnp.where(hit, share, 0) for hit in hits]
    beside = window == stride and max(dilation) == 1
    return (_joined(shares, window, x.shape),) if beside else back(shares)


def _joined(members: list[Array], window: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """The array of `shape` whose windows side by side have these members; zero beyond the last."""
    counts = members[0].shape
    tiles = jnp.stack(members).reshape(*window, *counts)
    axes = [axis for place in range(len(counts)) for axis in (len(window) + place, place)]
    covered = tuple(count * width for count, width in zip(counts, window, strict=True))
    whole = tiles.transpose(axes).reshape(covered)
    return jnp.pad(whole, [(0, length - end) for length, end in zip(shape, covered, strict=True)])


largest.defvjp(_largest_forward, _largest_backward)


def _pooling(
    owner: str, x: Array, window: Sizes, stride: Sizes | None, padding: Padding
) -> tuple[tuple[int, ...], tuple[int, ...], _Pairs]:
    sizes = _sizes(owner, "window", window, x.ndim - 2)
    strides = sizes if stride is None else _sizes(owner, "stride", stride, x.ndim - 2)
    pairs = _pairs(owner, padding, x.shape[1:-1], sizes, strides)
    return (1, *sizes, 1), (1, *strides, 1), pairs


def _sizes(owner: str, name: str, given: Sizes, dimensions: int) -> tuple[int, ...]:
    sizes = (given,) * dimensions if isinstance(given, int) else tuple(given)
    rule = f"a positive number, or {dimensions} of them"
    fits = len(sizes) == dimensions and min(sizes, default=1) >= 1
    check.require(fits, owner, name, rule, given)
    return sizes


def _pairs(
    owner: str,
    padding: Padding,
    lengths: tuple[int, ...],
    reach: tuple[int, ...],
    strides: tuple[int, ...],
) -> _Pairs:
    """Return how many zeros go before and after each axis."""
    named = padding.upper() if isinstance(padding, str) else None
    if named in ("VALID", "SAME"):
        return tuple(jax.lax.padtype_to_pads(lengths, reach, strides, named))
    given = (padding,) * len(lengths) if isinstance(padding, int) else padding
    rule = f'"valid", "same", a number, or {len(lengths)} numbers or pairs of them'
    fits = not isinstance(given, str) and len(given) == len(lengths)
    check.require(fits, owner, "padding", rule, padding)
    pairs: Any = [(each, each) if isinstance(each, int) else tuple(each) for each in given]
    return tuple(pairs)


def _padded(x: Array, pairs: _Pairs, value: float = 0.0) -> Array:
    if not any(map(any, pairs)):
        return x
    return jnp.pad(x, ((0, 0), *pairs, (0, 0)), constant_values=value)
