"""Convolution, max pooling and ReLU as one wide matrix product, for clients with own kernels.

A convolution mapped over clients has a different kernel for each client, which compilers turn into
a slow grouped convolution. Here an image is stored as *cells*: (batch, H/s, W/s, s*s*C), each cell
an s x s patch of pixels. The rows of the product are the windows of cells that one output cell
reads, the columns are all s x s outputs of that cell, and the four members of a pooling window are
the four quarters of the columns. So patches are a few contiguous slices instead of k*k strided
ones, products are wide, pooling is a maximum of four contiguous slices, and the result is laid out
in cells of s/2 for the next layer. The cost is multiplication by the zeros that pad the kernel.
"""

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Array
from fedprior.models.layers import windows


def to_cells(x: Array, side: int) -> Array:
    """(batch, H, W, C) -> (batch, H/side, W/side, side*side*C)."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // side, side, width // side, side, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(batch, height // side, width // side, side * side * channels)


def convolve_pool_relu(x: Array, kernel: Array, bias: Array, *, side: int) -> Array:
    """relu(max_pool_2x2(valid convolution of x with kernel) + bias).

    x is in cells of `side`, the result in cells of side/2. The kernel is (k, k, C, O); `side` must
    be even, and k - 1 a multiple of it.
    """
    size, _, channels, outputs = kernel.shape
    rule = f"even, and a divisor of {size - 1}"
    check.require(
        (size - 1) % side == 0 and side % 2 == 0, "convolve_pool_relu", "side", rule, side
    )
    rule = f"{side} x {side} x {channels} numbers"
    check.require(
        x.shape[-1] == side * side * channels, "convolve_pool_relu", "each cell", rule, x.shape
    )
    length = 1 + (size - 1) // side
    patches = jnp.concatenate(windows(x, (1, length, length, 1)), axis=-1)
    products = patches.reshape(-1, patches.shape[-1]) @ _expand(kernel, side)
    pixels = side * side // 4
    pooled = _max_of_four(products.reshape(*patches.shape[:3], 4, pixels * outputs))
    return jax.nn.relu(pooled + jnp.tile(bias, pixels))


def _expand(kernel: Array, side: int) -> Array:
    """The kernel as a matrix from a window of cells to the side*side*O outputs of one cell.

    Rows are ordered as `windows` orders them; columns as (dy, dx, y, x, O) for the output pixel
    (2y + dy, 2x + dx) of the cell, so that (dy, dx) runs over a pooling window.
    """
    size, _, channels, outputs = kernel.shape
    length = 1 + (size - 1) // side
    moved = _shifted(_shifted(kernel, 0, side), 2, side)  # (y, row, x, column, C, O)
    half = (side // 2, 2, length, side)
    full = moved.reshape(*half, *half, channels, outputs)  # (y, dy, cell, pixel, x, dx, ...)
    full = full.transpose(2, 6, 3, 7, 8, 1, 5, 0, 4, 9)
    return full.reshape(-1, side * side * outputs)


def _shifted(x: Array, axis: int, number: int) -> Array:
    """Stack copies of x, preceded by 0, 1, ... zeros along `axis`, in a new axis before it.

    Copies of x and `number` zeros are concatenated and cut into pieces that are one shorter.
    """
    length = x.shape[axis] + number
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    x = jnp.pad(x, [(0, number if place == axis else 0) for place in range(x.ndim)])
    x = jnp.broadcast_to(jnp.expand_dims(x, axis), (*before, number, length, *after))
    x = x.reshape(*before, number * length, *after)
    x = jax.lax.slice_in_dim(x, 0, number * (length - 1), axis=axis)
    return x.reshape(*before, number, length - 1, *after)


@jax.custom_vjp
def _max_of_four(z: Array) -> Array:
    """Maximum over the second-last axis, of length four; its gradient is shared among ties."""
    first = jnp.maximum(z[..., 0, :], z[..., 1, :])
    return jnp.maximum(first, jnp.maximum(z[..., 2, :], z[..., 3, :]))


def _max_forward(z: Array) -> tuple[Array, tuple[Array, Array]]:
    largest = _max_of_four(z)
    return largest, (z, largest)


def _max_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    # An elementwise select; differentiating jnp.maximum would generate pads and adds instead.
    z, largest = saved
    hit = z == largest[..., None, :]
    share = gradient / jnp.sum(hit, axis=-2).astype(gradient.dtype)
    return (jnp.where(hit, share[..., None, :], 0),)


_max_of_four.defvjp(_max_forward, _max_backward)
