"""pFedMe: averaging the Moreau envelopes of the clients' losses.

Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import AveragedModel, Weight, added
from fedprior.learning.descent import Descent, mean_loss
from fedprior.learning.steps import Steps


def pfedme(
    model: Model,
    *,
    penalty: float = 0.5,
    inner_steps: int = 3,
    server_rate: float = 1.0,
    steps: Steps = Steps(),
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
) -> Algorithm:
    """theta_i(w) = argmin f_i(theta) + penalty/2 ||theta - w||^2; w follows their mean.

    In each of `local_steps` steps a client moves theta `inner_steps` times on one batch toward
    theta_i(w), and then its copy of w by -gamma_rate * penalty * (w - theta). Theta begins each
    round at the w that was received. The server adds `server_rate` (beta) times the mean increment
    of w. A step thus costs `inner_steps` gradients.

    The paper has every client, sampled or not, train on each w: a personal model is a client's
    theta after a round's steps from the newest w, whether or not it took part. Weight decay and
    clip shape the steps of theta.
    """
    name = "pfedme"
    steps.check_supported(name)
    check.count(name, inner_steps=inner_steps)
    check.positive(name, penalty=penalty, server_rate=server_rate)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    return _Envelope(
        model=model,
        penalty=penalty,
        inner_steps=inner_steps,
        server_rate=server_rate,
        steps=steps,
        own=steps.descent(theta_rate),
        shared=steps.bare(gamma_rate),
        weight=weight,
    ).algorithm(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Envelope(AveragedModel):
    """The functions of `pfedme`; gamma is w."""

    penalty: float
    inner_steps: int
    server_rate: float
    own: Descent
    shared: Descent

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        _, w = self._train(state, memory, data)
        return self.message(w, state["gamma"], data), memory

    def update(self, state: State, total: Message) -> State:
        return added(state, total, rate=self.server_rate)

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        theta, _ = self._train(state, memory, data)
        return tree.where(data.size > 0, theta, state["gamma"])

    def _train(self, state: State, memory: Memory, data: ClientData) -> tuple[PyTree, PyTree]:
        """Theta and w after a round's steps; batches follow the rounds."""
        time = self.steps.times(state["round"])
        batch = self.steps.batches.read(memory["words"], time, data)
        rule = self.own.init(state["gamma"])

        def step(carry: tuple[PyTree, PyTree], batch: Any) -> tuple[tuple[PyTree, PyTree], None]:
            theta, w = carry
            x, y, mask, time = batch

            def inner(_: Array, theta: PyTree) -> PyTree:
                gradient = jax.grad(self._objective)(theta, w, x, y, mask)
                return self.own.step(gradient, rule, theta, time)[0]

            theta = jax.lax.fori_loop(0, self.inner_steps, inner, theta)
            slope = tree.combine(lambda a, b: self.penalty * (a - b), w, theta)
            return (theta, self.shared.step(slope, rule, w, time)[0]), None

        start = (state["gamma"], state["gamma"])
        return jax.lax.scan(step, start, (*batch, time))[0]

    def _objective(self, theta: PyTree, w: PyTree, x: Array, y: Array, mask: Array) -> Array:
        loss = mean_loss(self.model)(theta, x, y, mask)
        away = tree.squared_norm(tree.combine(jnp.subtract, theta, w))
        return loss + self.penalty / 2 * away
