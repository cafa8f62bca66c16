"""A client's posterior under one normal prior: its mode, its spread, how well both fit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedprior.core import tree
from fedprior.core.algorithm import Array, PyTree
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.batches import Batches
from fedprior.learning.curvature import Samples, losses, measure
from fedprior.learning.descent import Descent, mean_loss

_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.0)  # of a Gauss-Newton step: the longest that does no harm
_ROUNDING = 1e-5  # a rise of the objective, relative to it, that 32-bit sums do not show


class Fit(NamedTuple):
    """theta ~ N(w, spread), given the data and a part of the prior, N(center, 1 / precision).

    `evidence` is log p(data | prior) by Laplace's method, up to a constant of the data alone (exact
    for a linear model); `squares` the expected sum of squared residuals of a regression model.
    """

    w: PyTree
    spread: PyTree
    evidence: Array
    squares: Array


class Walk(NamedTuple):
    """`number` gradient steps on the client's minibatches, from its step `first`, at `time`."""

    data: ClientData
    batches: Batches
    descent: Descent
    words: Array
    first: Array
    number: Array
    time: Array

    def step(self, model: Model, theta: PyTree, number: Array) -> tuple[PyTree, Array]:
        """Theta after step `number` on the mean loss, and the rate of that step."""
        batch = self.batches.read(self.words, self.first + number, self.data)
        gradient, time = jax.grad(mean_loss(model))(theta, *batch), self.time + number
        moved, _ = self.descent.step(gradient, self.descent.init(theta), theta, time)
        return moved, rate_at(self.descent, time)


def rate_at(descent: Descent, time: Array) -> Array:
    """The rate of a step at `time`."""
    return descent.rate * jnp.asarray(descent.decay) ** (time // descent.steps_per_epoch)


def toward(w: PyTree, center: PyTree, strength: PyTree) -> PyTree:
    """The v of least |v - w|^2 + strength |v - center|^2: an implicit step on a normal prior."""
    return tree.combine(lambda v, c, s: (v + s * c) / (1 + s), w, center, strength)


def gradient_fit(
    model: Model,
    center: PyTree,
    precision: PyTree,
    certainty: PyTree,
    w: PyTree,
    *,
    variance: Array,
    samples: Samples | ClientData,
    walk: Walk,
) -> Fit:
    """Gradient steps on the loss, each followed by an implicit one on the prior; diagonal spread.

    At rest w is the posterior's mode, and no precision makes a step unstable.
    """
    share = variance / jnp.maximum(walk.data.size, 1)  # the prior's, beside the mean loss

    def body(number: Array, w: PyTree) -> PyTree:
        moved, rate = walk.step(model, w, number)
        return toward(moved, center, tree.combine(lambda one: rate * share * one, precision))

    w = jax.lax.fori_loop(0, walk.number, body, w)
    at_mode = measure(model, w, samples, curvature="diagonal")
    sure, prior = tree.flatten(certainty), tree.flatten(precision)
    spread = 1 / (at_mode.curvature / variance + sure)
    away = tree.flatten(w) - tree.flatten(center)
    evidence = -at_mode.loss / variance - jnp.sum(prior * away**2 - jnp.log(sure * spread)) / 2
    squares = 2 * at_mode.loss + jnp.sum(at_mode.curvature * spread)
    return Fit(w, tree.unflatten(spread, w), evidence, squares)


def full_fit(
    model: Model,
    center: PyTree,
    precision: PyTree,
    certainty: PyTree,
    w: PyTree,
    *,
    variance: Array,
    samples: Samples | ClientData,
    number: Array,
) -> Fit:
    """`number` Gauss-Newton steps to the mode, and the diagonal of the whole covariance there."""
    prior, middle = tree.flatten(precision), tree.flatten(center)

    def objective(vector: Array) -> Array:
        loss = losses(model, tree.unflatten(vector, w), samples)
        return loss / variance + jnp.sum(prior * (vector - middle) ** 2) / 2

    def factor(curvature: Array, added: Array) -> tuple[Array, bool]:
        return jax.scipy.linalg.cho_factor(curvature / variance + jnp.diag(added), lower=True)

    def body(_: Array, vector: Array) -> Array:
        here = measure(model, tree.unflatten(vector, w), samples, curvature="full")
        slope = here.gradient / variance + prior * (vector - middle)
        move = jax.scipy.linalg.cho_solve(factor(here.curvature, prior), slope)
        points = vector - jnp.asarray(_LENGTHS)[:, None] * move
        values = jax.vmap(objective)(points)
        harmless = values <= values[-1] + _ROUNDING * jnp.abs(values[-1])
        return points[jnp.argmax(harmless)]

    vector = jax.lax.fori_loop(0, number, body, tree.flatten(w))
    mode = tree.unflatten(vector, w)
    at_mode = measure(model, mode, samples, curvature="full")
    sure = tree.flatten(certainty)
    root = factor(at_mode.curvature, sure)
    covariance = jax.scipy.linalg.cho_solve(root, jnp.eye(len(prior)))
    logs = jnp.log(sure) / 2 - jnp.log(jnp.diagonal(root[0]))
    away = jnp.sum(prior * (vector - middle) ** 2) / 2
    evidence = -at_mode.loss / variance - away + jnp.sum(logs)
    squares = 2 * at_mode.loss + jnp.sum(at_mode.curvature * covariance)
    return Fit(mode, tree.unflatten(jnp.diagonal(covariance), w), evidence, squares)
