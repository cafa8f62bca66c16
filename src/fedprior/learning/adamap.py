"""AdaMAP: one network for all, class frequencies of each client's own, a MAP step at the end."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, random, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning import averaging
from fedprior.learning.averaging import Weight
from fedprior.learning.descent import Descent, masked_mean, take_steps
from fedprior.learning.method import ChannelNoise
from fedprior.learning.steps import Steps

_NORM = 1.0  # what gradients are cut to where neither a norm nor a clip is given
# Noise to signal at which momentum is halved: it amplifies noise as well as increments.
_CALM = 0.2


def adamap(
    model: Model,
    *,
    steps: Steps = Steps(),
    theta_rate: float = 0.05,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int = 100,
    gradient_norm: float | None = None,
    momentum: float = 0.95,
    horizon: float = 30.0,
    precision: float = 3.0,
    smoothing: float = 1.0,
    class_frequencies: bool = True,
    average_steps: bool = True,
) -> Algorithm:
    """theta_i ~ N(mean, I / precision), and P_i(y | x) ~ exp(f(theta_i, x)_y) pi_i(y).

    pi_i are the class frequencies of client i's own samples, `smoothing` added to every count:
    what a client knows best with little data. The shared network learns what is left to know, and
    clients of few classes no longer pull it toward theirs. A quantity has no such part.

    In a round clients take steps on the likelihood, gradients cut to `gradient_norm` (where it is
    not given, to `clip`, and to 1 without either); the server adds `momentum` to their mean
    increment, and keeps an average over about `horizon` rounds, at least 1: that is the newest mean
    alone. A round in which nobody took part changes nothing.

    From that average every client ends with `newcomer_steps` steps toward its posterior mode, at
    `theta_rate`, and keeps the mean of the second half of them, or the last one without
    `average_steps`. Nothing about a client is kept between rounds; a newcomer is served like
    everybody else.
    """
    name = "adamap"
    steps.check_supported(name)
    check.count(name, least=0, newcomer_steps=newcomer_steps)
    check.share(name, momentum=momentum)
    check.positive(name, horizon=horizon, smoothing=smoothing)
    enough = check.is_traced(horizon) or horizon >= 1
    check.require(enough, name, "horizon", "a number of at least 1", horizon)
    check.nonnegative(name, precision=precision, theta_rate=theta_rate, gamma_rate=gamma_rate)
    check.flag(name, class_frequencies=class_frequencies, average_steps=average_steps)
    if gradient_norm is None:
        gradient_norm = _NORM if steps.clip is None else steps.clip
    check.positive(name, gradient_norm=gradient_norm)
    steps = replace(steps, clip=gradient_norm)
    functions = _AdaMap(
        model=model,
        steps=steps,
        own=steps.constant(theta_rate),
        shared=steps.descent(gamma_rate),
        weight=weight,
        personal_steps=newcomer_steps,
        momentum=momentum,
        horizon=horizon,
        precision=precision,
        smoothing=smoothing,
        average_steps=average_steps,
        classes=class_frequencies and not getattr(model, "regression", False),
    )

    def predict(theta: Theta, x: Array) -> Array:
        return model.apply(theta["network"], x) + theta["log_frequencies"]

    return functions.algorithm(name, predict=predict)


def calm_under_noise(
    model: Model, noise: ChannelNoise, *, momentum: float = 0.95
) -> dict[str, float]:
    """Options for noisy increments: momentum falls with the noise-to-signal ratio of the run."""
    num_parameters = tree.size(jax.eval_shape(model.init, random.root(0)))
    return {"momentum": momentum / (1 + (noise.to_signal(num_parameters) / _CALM) ** 2)}


@dataclass(frozen=True, kw_only=True, eq=False)
class _AdaMap(averaging.AveragedModel):
    """The functions of `adamap`. State: mean, its momentum and average. Memory: batches' key."""

    own: Descent
    shared: Descent
    personal_steps: int
    momentum: float
    horizon: float
    precision: float
    smoothing: float
    average_steps: bool
    classes: bool

    def init(self, key: Key) -> State:
        mean = self.model.init(key)
        still = tree.combine(jnp.zeros_like, mean)
        return {**averaging.begun({"mean": mean}), "average": mean, "velocity": still}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]["mean"]
        frequencies = self._log_frequencies(received, data)
        time = self.steps.times(state["round"])
        batch = self.steps.batches.read(memory["words"], time, data)

        def gradient(mean: PyTree, x: Array, y: Array, mask: Array) -> PyTree:
            return jax.grad(self._loss)(mean, frequencies, x, y, mask)

        mean = take_steps(gradient, received, *batch, descent=self.shared, time=time)
        return self.message({"mean": mean}, {"mean": received}, data), memory

    def update(self, state: State, total: Message) -> State:
        share = averaging.mean_share(total)
        velocity = tree.combine(
            lambda old, sum_: self.momentum * old + share * sum_,
            state["velocity"],
            total.value["mean"],
        )
        mean = tree.combine(jnp.add, state["gamma"]["mean"], velocity)
        rate = 1 / jnp.minimum(state["round"] + 1, self.horizon)
        average = _toward(state["average"], mean, rate)
        new = {**state, "gamma": {"mean": mean}, "average": average, "velocity": velocity}
        return {**tree.where(total.weight > 0, new, state), "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        center = state["average"]
        frequencies = self._log_frequencies(center, data)
        size = jnp.maximum(data.size, 1)

        def objective(theta: PyTree, x: Array, y: Array, mask: Array) -> Array:
            gap = tree.squared_norm(tree.combine(jnp.subtract, theta, center))
            return self._loss(theta, frequencies, x, y, mask) + self.precision * gap / (2 * size)

        def body(number: Array, carry: tuple[PyTree, Any, PyTree]) -> tuple[PyTree, Any, PyTree]:
            theta, rule, average = carry
            batch = self.steps.batches.read(memory["words"], number, data)
            gradient = jax.grad(objective)(theta, *batch)
            theta, rule = self.own.step(gradient, rule, theta, jnp.zeros((), jnp.int32))
            if not self.average_steps:
                return theta, rule, theta
            rate = 1 / jnp.maximum(number + 1 - self.personal_steps // 2, 1)
            return theta, rule, _toward(average, theta, rate)

        steps = jnp.where(data.size > 0, self.personal_steps, 0)
        start = (center, self.own.init(center), center)
        _, _, theta = jax.lax.fori_loop(0, steps, body, start)
        return {"network": theta, "log_frequencies": frequencies}

    def _loss(self, theta: PyTree, frequencies: Array, x: Array, y: Array, mask: Array) -> Array:
        outputs = self.model.apply(theta, x) + frequencies
        return masked_mean(self.model.loss(outputs, y), mask)

    def _log_frequencies(self, parameters: PyTree, data: ClientData) -> Array:
        """Log class frequencies of the client's samples; 0 where the target is a quantity."""
        if not self.classes:
            return jnp.zeros(())

        def block(x: Array, y: Array, mask: Array) -> Array:
            num_classes = jax.eval_shape(self.model.apply, parameters, x).shape[-1]
            return jnp.sum(jax.nn.one_hot(y, num_classes) * mask[:, None], axis=0)

        counts = data.sum_in_turn(block) + self.smoothing
        return jnp.log(counts / jnp.sum(counts))


def _toward(old: PyTree, new: PyTree, rate: Array) -> PyTree:
    return tree.combine(lambda before, after: before + rate * (after - before), old, new)
