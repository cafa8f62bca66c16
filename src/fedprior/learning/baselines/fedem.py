"""FedEM: every client mixes a few models that all share.

Marfoq, Neglia, Bellet, Kameni and Vidal, "Federated Multi-Task Learning under a Mixture of
Distributions", NeurIPS 2021.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from fedprior.core import check
from fedprior.core.algorithm import Algorithm, Array, Key, Memory, Message, PyTree, State, Theta
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import AveragedModel, Weight, begun
from fedprior.learning.curvature import each_loss
from fedprior.learning.descent import Descent, masked_mean, reading, take_steps
from fedprior.learning.predictive import mixed, mixture, several
from fedprior.learning.steps import Steps

_JITTER = 0.01  # models that start at zero would otherwise start alike, and stay alike
_SHARE_ROUNDS = 10  # of expectation and maximization of the shares of a personal model


def fedem(
    model: Model,
    *,
    num_components: int = 2,
    steps: Steps = Steps(),
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
) -> Algorithm:
    """p_i(y | x) = sum_k share_ik p_k(y | x): shared components, shares of each client's own.

    In a round a client assigns each of its samples to components (expectation), takes the means of
    that as its shares, and moves its copies of all components on its weighted loss; it sends their
    increments, side by side in one message. The paper's server weighs them by `weight="samples"`.
    A personal model mixes the newest components, by shares that are refitted to the client's
    training samples; a newcomer's begin uniform.
    """
    name = "fedem"
    steps.check_supported(name, rule=True)
    check.count(name, num_components=num_components)
    check.nonnegative(name, gamma_rate=gamma_rate)
    return _Mixture(
        model=model,
        num_components=num_components,
        steps=steps,
        descent=steps.descent(gamma_rate),
        weight=weight,
    ).algorithm(name, predict=mixed(model), memoryless=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture(AveragedModel):
    """The functions of `fedem`. Memory: the client's shares, its batches' key, its steps."""

    num_components: int
    descent: Descent

    def init(self, key: Key) -> State:
        return begun(several(self.model, self.num_components, _JITTER, key))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {
            "shares": jnp.full(self.num_components, 1 / self.num_components),
            **reading(key),
        }

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received = state["gamma"]
        numbers = memory["step"] + jnp.arange(self.steps.local_steps)
        index, _ = self.steps.batches.at(memory["words"], numbers, data)
        x, y, mask = self.steps.batches.read(memory["words"], numbers, data)
        if data.rows is None:
            before = memory["shares"]
            shares = self._shares_in_turn(received, before, data)
            plain = data.take(index)
            weight = jax.vmap(lambda x, y: _assigned(self._losses(received, x, y), before))(*plain)
        else:
            assigned, shares = self._expect(self._each(received, data), memory["shares"], data)
            weight = jnp.moveaxis(assigned[:, index], 0, 1)

        def objective(gamma: PyTree, x: Array, y: Array, mask: Array, weight: Array) -> Array:
            losses = self._losses(gamma, x, y)  # (components, samples)
            return masked_mean(jnp.sum(weight * losses, axis=0), mask)

        batch = (x, y, mask, weight)
        time = self.steps.times(state["round"])
        gamma = take_steps(jax.grad(objective), received, *batch, descent=self.descent, time=time)
        memory = {**memory, "shares": shares, "step": memory["step"] + self.steps.local_steps}
        return self.message(gamma, received, data), memory

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        """The newest components, mixed by shares that fit the client's own samples best."""
        gamma = state["gamma"]
        losses = None if data.rows is None else self._each(gamma, data)

        def again(_: Array, shares: Array) -> Array:
            if losses is None:
                return self._shares_in_turn(gamma, shares, data)
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
        assigned = _assigned(losses, shares)
        mean = jnp.sum(assigned * mask, axis=1) / jnp.maximum(jnp.sum(mask), 1)
        return assigned, jnp.where(data.size > 0, mean, shares)

    def _shares_in_turn(self, gamma: PyTree, shares: Array, data: ClientData) -> Array:
        """The mean over all samples of a client whose number has no public bound."""

        def block(x: Array, y: Array, mask: Array) -> Array:
            return jnp.sum(_assigned(self._losses(gamma, x, y), shares) * mask, axis=1)

        mean = data.sum_in_turn(block) / jnp.maximum(data.size, 1)
        return jnp.where(data.size > 0, mean, shares)


def _assigned(losses: Array, shares: Array) -> Array:
    """P(component | sample), (components, samples)."""
    logits = jnp.log(jnp.maximum(shares, 1e-30))[:, None] - losses
    return jax.nn.softmax(logits, axis=0)
