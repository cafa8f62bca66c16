"""AdaMAP: one network for all, class frequencies of each client's own, a prior that is learned."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.alternating import alternating
from fedprior.learning.averaging import Weight, toward
from fedprior.learning.descent import mean_loss
from fedprior.learning.frequencies import from_population, number_of_classes
from fedprior.learning.judging import ENTIRELY, judged, shrunk
from fedprior.learning.method import ChannelNoise
from fedprior.learning.optimizer import optimized
from fedprior.learning.steps import Steps
from fedprior.populations.point import PointMass

_NORM = 1.0  # what gradients are cut to where neither a norm nor a clip is given


def adamap(
    model: Model,
    *,
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    last_steps: int = 100,
    gradient_norm: float | None = None,
    momentum: float = 0.95,
    horizon: float = 30.0,
    prior_samples: float = 10.0,
    smoothing: float = 0.1,
    judge_every: int = 30,
    class_frequencies: bool = True,
) -> Algorithm:
    """theta_i = mean + n_i / (n_i + prior_samples) (w_i - mean), P_i ~ exp(f(theta_i)) pi_i / pi.

    w_i is where `last_steps` steps on the client's own n_i samples lead from the mean: the mean of
    the second half of them, at `theta_rate`. The prior counts as `prior_samples` samples, so a
    client with few stays near the mean. pi_i are the client's class frequencies, what it knows best
    with little data: the posterior mean under a Dirichlet prior around the population's, pi, which
    counts as `smoothing` samples of each class. A quantity has no such part.

    All of the population is learned. In one of `judge_every` rounds clients hold out half of their
    samples and send how well each of ten values of `prior_samples` predicts them, and how well each
    of ten of `smoothing` predicts a sample by the frequencies of the others; both numbers become
    what predicts best (`judged`). pi is the mean of the clients' frequencies.
    With `judge_every` = 0 both numbers stay as they are and nobody sends frequencies, as private
    channels need; clients then train with their own ones, as other methods do (`optimized`), and so
    they do where the number of classes is not known from the model (a network without `shape`).

    In a round clients take steps on the likelihood, gradients cut to `gradient_norm` (where it is
    not given, to `clip`, and to 1 without either); the server adds `momentum` to their mean
    increment, and keeps an average over about `horizon` rounds, at least 1: that is the newest mean
    alone. A round in which nobody took part changes nothing. All of that is FedAvg with an
    optimizer that every method can have (`optimized`). Nothing about a client is kept between
    rounds; a newcomer is served like everybody else.
    """
    name = "adamap"
    steps.check_supported(name)
    check.count(name, least=0, last_steps=last_steps, judge_every=judge_every)
    check.nonnegative(name, prior_samples=prior_samples, theta_rate=theta_rate)
    check.flag(name, class_frequencies=class_frequencies)
    if gradient_norm is None:
        gradient_norm = _NORM if steps.clip is None else steps.clip
    check.positive(name, gradient_norm=gradient_norm)
    start = {"prior_samples": prior_samples}
    frequencies = class_frequencies and not getattr(model, "regression", False)
    if judge_every and frequencies:
        start["smoothing"] = smoothing
    num_classes = number_of_classes(model) if judge_every and frequencies else None

    def build(model: Model) -> Algorithm:
        return optimized(
            _fedavg_with_prior,
            model,
            momentum=momentum,
            horizon=horizon,
            class_frequencies=class_frequencies and num_classes is None,
            smoothing=smoothing,
            name=name,
            steps=replace(steps, clip=gradient_norm),
            theta_rate=theta_rate,
            last_steps=last_steps,
            start=start,
            gamma_rate=gamma_rate,
            weight=weight,
        )

    algorithm = build(model)
    if num_classes is not None:
        algorithm = from_population(
            algorithm, build, model, smoothing=smoothing, num_classes=num_classes
        )
    if judge_every == 0:
        return algorithm
    return judged(algorithm, every=judge_every, smoothing=frequencies)


def fixed_under_noise(model: Model, noise: ChannelNoise, *, judge_every: int = 0) -> dict[str, int]:
    """Options for noisy messages: the prior is not judged, because noise would choose at random."""
    rule, remedy = "0 in a private run", "Noise would choose the prior at random."
    check.require(judge_every == 0, "adamap", "judge_every", rule, judge_every, remedy)
    return {"judge_every": 0}


def _fedavg_with_prior(
    model: Model,
    *,
    name: str,
    steps: Steps,
    theta_rate: float,
    last_steps: int,
    start: Mapping[str, float],
    **options: Any,
) -> Algorithm:
    """FedAvg, then steps of each client's own, of which the prior leaves a share."""
    plain = alternating(model, PointMass(), name=name, steps=steps, **options)
    own = steps.constant(theta_rate)

    def init(key: Key) -> State:
        numbers = {name: jnp.asarray(value, jnp.float32) for name, value in start.items()}
        return {**plain.init(key), **numbers}

    def personalize(state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        center, prior_samples = state["gamma"]["mean"], state["prior_samples"]

        def body(number: Array, carry: tuple[PyTree, Any, PyTree]) -> tuple[PyTree, Any, PyTree]:
            theta, rule, average = carry
            batch = steps.batches.read(memory["words"], number, data)
            gradient = jax.grad(mean_loss(model))(theta, *batch)
            theta, rule = own.step(gradient, rule, theta, jnp.zeros((), jnp.int32))
            rate = 1 / jnp.maximum(number + 1 - last_steps // 2, 1)
            return theta, rule, toward(average, theta, rate)

        moves = (data.size > 0) & (prior_samples < ENTIRELY)
        first = (center, own.init(center), center)
        w = jax.lax.fori_loop(0, jnp.where(moves, last_steps, 0), body, first)[2]
        return shrunk(center, w, data.size, prior_samples)

    return replace(plain, init=init, personalize=personalize)
