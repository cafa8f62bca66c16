"""FedEM: every client mixes a few models that all share.

Marfoq, Neglia, Bellet, Kameni and Vidal, "Federated Multi-Task Learning under a Mixture of
Distributions", NeurIPS 2021.
"""

from dataclasses import dataclass
from typing import Any, get_args

import jax
import jax.numpy as jnp

from fedprior.core import check, random
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import Weight, added, begun, increment, weight_of
from fedprior.learning.batches import Batches
from fedprior.learning.curvature import each_loss
from fedprior.learning.descent import Descent, masked_mean
from fedprior.learning.predictive import mixed, mixture, several

_JITTER = 0.01  # models that start at zero would otherwise start alike, and stay alike
_SHARE_ROUNDS = 10  # of expectation and maximization of the shares of a personal model


def fedem(
    model: Model,
    *,
    num_components: int = 2,
    local_steps: int = 10,
    batches: Batches | None = None,
    gamma_rate: float = 0.1,
    decay: float = 1.0,
    steps_per_epoch: int = 60,
    weight_decay: float = 0.0,
    clip: float | None = None,
    weight: Weight = "uniform",
    name: str = "fedem",
) -> Algorithm:
    """p_i(y | x) = sum_k share_ik p_k(y | x): shared components, shares of each client's own.

    In a round a client assigns each of its samples to components (expectation), takes the means of
    that as its shares, and moves its copies of all components on its weighted loss; it sends their
    increments, side by side in one message. The paper's server weighs them by `weight="samples"`.
    A personal model mixes the newest components, by shares that are refitted to the client's
    training samples; a newcomer's begin uniform. `theta_rate` and `newcomer_steps` have no meaning
    here.
    """
    check.count(name, num_components=num_components, local_steps=local_steps)
    check.nonnegative(name, gamma_rate=gamma_rate)
    check.choice(name, "weight", weight, get_args(Weight))
    method = _Mixture(
        model=model,
        num_components=num_components,
        local_steps=local_steps,
        batches=Batches(size=20) if batches is None else batches,
        descent=Descent(
            rate=gamma_rate,
            decay=decay,
            steps_per_epoch=steps_per_epoch,
            weight_decay=weight_decay,
            clip=clip,
        ),
        weight=weight,
    )
    return Algorithm.of(
        method, model, name=name, predict=mixed(model), unit_weight=weight == "uniform"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """The functions of `fedem`. Memory: the client's shares, its batches' key, its steps."""

    model: Model
    num_components: int
    local_steps: int
    batches: Batches
    descent: Descent
    weight: Weight

    def init(self, key: Key) -> State:
        return begun(several(self.model, self.num_components, _JITTER, key))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {
            "shares": jnp.full(self.num_components, 1 / self.num_components),
            "words": random.words(random.fold(key, "batches")),
            "step": jnp.zeros((), jnp.int32),
        }

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]
        assigned, shares = self._expect(self._each(received, data), memory["shares"], data)
        numbers = jnp.arange(self.local_steps)
        index, mask = self.batches.at(memory["words"], memory["step"] + numbers, data)
        x, y = data.take(index)
        time = state["round"] * self.local_steps + numbers

        def objective(gamma: PyTree, x: Array, y: Array, mask: Array, weight: Array) -> Array:
            losses = self._losses(gamma, x, y)  # (components, samples)
            return masked_mean(jnp.sum(weight * losses, axis=0), mask)

        def step(carry: tuple[PyTree, Any], batch: Any) -> tuple[tuple[PyTree, Any], None]:
            x, y, mask, time, weight = batch
            gradient = jax.grad(objective)(carry[0], x, y, mask, weight)
            return self.descent.step(gradient, carry[1], carry[0], time), None

        weights = jnp.moveaxis(assigned[:, index], 0, 1)
        start = (received, self.descent.init(received))
        (gamma, _), _ = jax.lax.scan(step, start, (x, y, mask, time, weights))
        memory = {**memory, "shares": shares, "step": memory["step"] + self.local_steps}
        share = weight_of(self.weight, data)
        return Message(increment(gamma, received, share), share), memory

    def update(self, state: State, total: Message) -> State:
        return added(state, total)

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        """The newest components, mixed by shares that fit the client's own samples best."""
        losses = self._each(state["gamma"], data)

        def again(_: Array, shares: Array) -> Array:
            return self._expect(losses, shares, data)[1]

        shares = jax.lax.fori_loop(0, _SHARE_ROUNDS, again, memory["shares"])
        return mixture(state["gamma"], shares)

    def _losses(self, gamma: PyTree, x: Array, y: Array) -> Array:
        return jax.vmap(lambda one: self.model.loss(self.model.apply(one, x), y))(gamma)

    def _each(self, gamma: PyTree, data: ClientData) -> Array:
        """Losses of all of the client's rows, (components, rows)."""
        return jax.vmap(lambda one: each_loss(self.model, one, data))(gamma)

    def _expect(self, losses: Array, shares: Array, data: ClientData) -> tuple[Array, Array]:
        """P(component | sample), (components, rows), and its mean over the client's samples."""
        mask = data.rows < data.size
        logits = jnp.log(jnp.maximum(shares, 1e-30))[:, None] - losses
        assigned = jax.nn.softmax(logits, axis=0)
        mean = jnp.sum(assigned * mask, axis=1) / jnp.maximum(jnp.sum(mask), 1)
        return assigned, jnp.where(data.size > 0, mean, shares)
