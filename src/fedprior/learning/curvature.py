"""How much a client's own samples say about theta: loss, gradient and Gauss-Newton curvature."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData, network_input
from fedprior.learning.batches import Batches

Curvature = Literal["diagonal", "full"]

_ENTRIES = 2**20  # of the Jacobians that are held at once, per client
_BLOCK = 128  # samples evaluated together, at most: what a network makes of them stays in cache


class Quadratic(NamedTuple):
    """Sums over samples, for theta as a flat vector of d entries."""

    loss: Array
    gradient: Array  # (d,)
    curvature: Array  # (d,), or (d, d) in full


class Samples(NamedTuple):
    """Some of a client's samples; their sums times `share` stand for all of its samples."""

    x: Array
    y: Array
    mask: Array
    share: Array


def all_samples(data: ClientData) -> Samples | ClientData:
    """Every sample of the client; read in turn where no bound on their number is public."""
    return data if data.rows is None else Samples(*data.all(), jnp.ones(()))


def some_samples(data: ClientData, number: int, words: Array, draw: Array) -> Samples:
    """`number` of the client's samples, other ones for every `draw`; all where it has no more."""
    index, mask = Batches(size=number).at(words, draw, data)
    x, y = data.take(index)
    return Samples(x, y, mask, data.size / jnp.maximum(jnp.sum(mask), 1))


def losses(model: Model, theta: PyTree, samples: Samples | ClientData) -> Array:
    """Sum of the loss over these samples, times the share that makes it stand for all."""

    def block(x: Array, y: Array, mask: Array) -> Array:
        return jnp.sum(_kept(model.loss(model.apply(theta, x), y), mask))

    if isinstance(samples, ClientData):
        return samples.sum_in_turn(block)
    return samples.share * block(samples.x, samples.y, samples.mask)


def each_loss(model: Model, theta: PyTree, data: ClientData) -> Array:
    """The loss of every row of the client, (rows,); a padded row repeats the last one."""
    largest = data.most
    number = -(-largest // _BLOCK)
    width = -(-largest // number)
    rows = jnp.arange(number * width).reshape(number, width)

    def block(rows: Array) -> Array:
        x, y = data.take(jnp.clip(rows, 0, jnp.maximum(data.size - 1, 0)))
        return model.loss(model.apply(theta, x), y)

    return jax.lax.map(block, rows).reshape(-1)[:largest]


def total_loss(model: Model, theta: PyTree, data: ClientData) -> Array:
    """Sum of the loss over all of the client's samples."""
    if data.rows is None:
        return losses(model, theta, data)
    return jnp.sum(_kept(each_loss(model, theta, data), data.rows < data.size))


def measure(
    model: Model, theta: PyTree, samples: Samples | ClientData, *, curvature: Curvature
) -> Quadratic:
    """Sum of the loss, its gradient and sum_i J_i^T (d^2 loss_i / d outputs^2) J_i at theta.

    That is the Hessian where outputs are linear in theta (linear and logistic models); elsewhere it
    is the part of it that cannot be negative. Costs one backward pass per output and sample.
    """
    flat = tree.flatten(theta)

    def outputs_of(vector: Array, x: Array) -> Array:
        return model.apply(tree.unflatten(vector, theta), x[None])[0]

    def one(x: Array, y: Array) -> Quadratic:
        outputs = outputs_of(flat, x)

        def loss_of(outputs: Array) -> Array:
            return model.loss(outputs[None], y[None])[0]

        width = outputs.size
        jacobian = jax.jacrev(outputs_of)(flat, x).reshape(width, -1)
        slope = jax.grad(loss_of)(outputs).reshape(width)
        bent = jax.hessian(loss_of)(outputs).reshape(width, width) @ jacobian
        curved = jacobian.T @ bent if curvature == "full" else jnp.sum(jacobian * bent, axis=0)
        return Quadratic(loss_of(outputs), slope @ jacobian, curved)

    def block(x: Array, y: Array, mask: Array) -> Quadratic:
        each = jax.vmap(one)(x, y)
        return tree.combine(lambda leaf: jnp.sum(_kept(leaf, mask), axis=0), each)

    outputs = jax.eval_shape(lambda: outputs_of(flat, network_input(samples.x[0])))
    held = flat.size * (flat.size if curvature == "full" else outputs.size)
    length = max(1, _ENTRIES // held)
    if isinstance(samples, ClientData):
        return samples.sum_in_turn(block, min(length, _BLOCK))
    sums = _in_blocks(block, samples, length)
    return tree.combine(lambda leaf: samples.share * leaf, sums)


def _kept(values: Array, mask: Array) -> Array:
    """Zero where the mask is 0: what padding leads to may be NaN, which times 0 is NaN."""
    return jnp.where(mask.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)


def _in_blocks(
    block: Callable[[Array, Array, Array], Quadratic], samples: Samples, length: int
) -> Quadratic:
    """Sum of `block` over runs of at most `length` samples."""
    x, y, mask = samples.x, samples.y, samples.mask
    number = len(mask)
    if length >= number:
        return block(x, y, mask)
    places = jnp.arange(-(-number // length) * length)
    inside = (places < number).reshape(-1, length)
    places = jnp.minimum(places, number - 1).reshape(-1, length)

    def add(total: Quadratic, rows: tuple[Array, Array]) -> tuple[Quadratic, None]:
        own, there = rows
        return tree.combine(jnp.add, total, block(x[own], y[own], mask[own] & there)), None

    zero = tree.combine(jnp.zeros_like, jax.eval_shape(block, x[:1], y[:1], mask[:1]))
    return jax.lax.scan(add, zero, (places, inside))[0]
