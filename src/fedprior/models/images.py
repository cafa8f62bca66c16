"""Networks for images: a CNN with two convolutions, and a small residual network.

Both take images (height, width, channels) with pixels in [0, 1]. Their layers stay fast where each
client has kernels of its own (`layers`, `convolution`).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Array, Key, PyTree
from fedprior.models.convolution import convolve_pool_relu, to_cells
from fedprior.models.layers import convolve, group_normalize, max_pool
from fedprior.models.network import Network, dense

_CHANNELS = (32, 64)  # of the CNN's convolutions
_HIDDEN = 512
_KERNEL = 5
_STAGES = (16, 32, 64)  # channels of the residual network
_GROUP = 8  # channels that are normalized together


def cnn(shape: Sequence[int], num_classes: int = 10) -> Network:
    """5x5x32, pool, 5x5x64, pool, 512, classes, with ReLU and without padding.

    The network of the FedAvg paper and of many papers on personalization: 878,538 parameters for
    32 x 32 x 3 images and 10 classes. Images of at least 16 x 16 fit; it is fastest where both
    sides are multiples of 4.
    """
    height, width, channels = _image("cnn", shape, least=16)
    check.count("cnn", least=2, num_classes=num_classes)
    sides = [_after(_after(side)) for side in (height, width)]
    kernels = tuple(pairwise((channels, *_CHANNELS)))
    widths = (prod(sides) * _CHANNELS[-1], _HIDDEN, num_classes)
    in_cells = height % 4 == 0 and width % 4 == 0

    def init(key: Key) -> PyTree:
        keys = jax.random.split(key, 4)
        convolutions = [_kernel(k, _KERNEL, *own) for k, own in zip(keys, kernels, strict=False)]
        return convolutions + [
            dense(k, *own) for k, own in zip(keys[2:], pairwise(widths), strict=True)
        ]

    def apply(parameters: PyTree, x: Array) -> Array:
        x = _centered(x)
        if in_cells:
            x = to_cells(x, 4)
            for layer, side in zip(parameters, (4, 2), strict=False):
                x = convolve_pool_relu(x, layer["weight"], layer["bias"], side=side)
        else:
            for layer in parameters[:2]:
                x = jax.nn.relu(max_pool(convolve(x, layer["weight"])) + layer["bias"])
        x = x.reshape(x.shape[0], -1)
        x = jax.nn.relu(x @ parameters[2]["weight"] + parameters[2]["bias"])
        return x @ parameters[3]["weight"] + parameters[3]["bias"]

    return Network(name="cnn", init=init, apply=apply, shape=(height, width, channels))


def resnet(shape: Sequence[int], num_classes: int = 10, *, depth: int = 8) -> Network:
    """A residual network of `depth` = 6 n + 2 layers with group normalization (He et al. 2016).

    Three stages of n blocks with 16, 32 and 64 channels, stride 2 between stages, then the mean
    over pixels: 77,850 parameters for depth 8, three channels and 10 classes. Channels are
    normalized in groups of 8 (Wu and He 2018), image by image: batch normalization would make a
    prediction depend on the other images of its batch.
    """
    height, width, channels = _image("resnet", shape, least=4)
    check.count("resnet", least=2, num_classes=num_classes)
    check.count("resnet", least=8, depth=depth)
    rule = "6 n + 2 for a whole n, such as 8, 14 or 20"
    check.require(depth % 6 == 2, "resnet", "depth", rule, depth)
    stages = [_STAGES[0], *(width for width in _STAGES for _ in range((depth - 2) // 6))]
    blocks = tuple(pairwise(stages))

    def init(key: Key) -> PyTree:
        first, last, *keys = jax.random.split(key, len(blocks) + 2)
        return {
            "first": _normalized(first, 3, channels, stages[0]),
            "blocks": [_block(k, *own) for k, own in zip(keys, blocks, strict=True)],
            "last": dense(last, stages[-1], num_classes),
        }

    def apply(parameters: PyTree, x: Array) -> Array:
        x = jax.nn.relu(_convolve_normalize(_centered(x), parameters["first"]))
        for block, (before, after) in zip(parameters["blocks"], blocks, strict=True):
            x = _residual(x, block, stride=1 if before == after else 2)
        return x.mean((1, 2)) @ parameters["last"]["weight"] + parameters["last"]["bias"]

    return Network(name="resnet", init=init, apply=apply, shape=(height, width, channels))


def _residual(x: Array, block: PyTree, *, stride: int) -> Array:
    inside = jax.nn.relu(_convolve_normalize(x, block["first"], stride=stride))
    inside = _convolve_normalize(inside, block["second"])
    if stride != 1:
        x = convolve(x, block["skip"], stride=stride)
    return jax.nn.relu(x + inside)


def _convolve_normalize(x: Array, layer: PyTree, *, stride: int = 1) -> Array:
    """A convolution that keeps the sides (over the stride), then group normalization."""
    x = convolve(x, layer["weight"], stride=stride, padding=1)
    groups = x.shape[-1] // _GROUP
    return group_normalize(x, layer["scale"], layer["bias"], groups=groups)


def _block(key: Key, before: int, after: int) -> PyTree:
    keys = jax.random.split(key, 3)
    block = {
        "first": _normalized(keys[0], 3, before, after),
        "second": _normalized(keys[1], 3, after, after),
    }
    if before != after:
        block["skip"] = _kernel(keys[2], 1, before, after)["weight"]
    return block


def _normalized(key: Key, size: int, before: int, after: int) -> dict[str, Array]:
    return {**_kernel(key, size, before, after), "scale": jnp.ones(after)}


def _kernel(key: Key, size: int, before: int, after: int) -> dict[str, Array]:
    layer = dense(key, size * size * before, after)
    return {**layer, "weight": layer["weight"].reshape(size, size, before, after)}


def _after(side: int) -> int:
    """A side after a convolution and a pool of the CNN."""
    return (side - _KERNEL + 1) // 2


def _centered(x: Array) -> Array:
    """Pixels in [0, 1] become numbers in [-1, 1]: not centered, the CNN learns half as fast."""
    return 2 * x - 1


def _image(owner: str, shape: Sequence[int], *, least: int) -> tuple[int, int, int]:
    rule = f"(height, width, channels) of an image of at least {least} x {least}"
    fine = len(shape) == 3 and min(shape[:2]) >= least and shape[2] >= 1
    check.require(fine, owner, "shape", rule, tuple(shape))
    height, width, channels = shape
    return height, width, channels
