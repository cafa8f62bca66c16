"""pFedVEM: Gaussian heads around a learned mean, weighed by confidence.

Zhu, Ma and Blaschko, "Confidence-aware Personalized Federated Learning via Variational Expectation
Maximization", CVPR 2023.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core import check, tree
from fedprior.core.algorithm import (
    Algorithm,
    Array,
    Key,
    Memory,
    Message,
    Moved,
    PyTree,
    State,
    Theta,
)
from fedprior.core.protocols import Model
from fedprior.data.federation import ClientData
from fedprior.learning.averaging import (
    AveragedModel,
    Weight,
    begun,
    increment,
    mean_share,
    moved,
    weight_of,
)
from fedprior.learning.descent import Descent, masked_mean, reading
from fedprior.learning.representation import check_start
from fedprior.learning.steps import Steps, newcomer
from fedprior.populations.shared_body import Head, SharedBody


def pfedvem(
    model: Model,
    *,
    steps: Steps = Steps(),
    head: Head | None = None,
    scale: float = 0.3,
    num_draws: int = 5,
    head_steps: int | None = None,
    theta_rate: float = 0.1,
    gamma_rate: float = 0.1,
    weight: Weight = "uniform",
    newcomer_steps: int | None = None,
) -> Algorithm:
    """Heads w_i ~ N(mean, rho_i^2 I) on a body of all; client i knows q_i = N(m_i, diag(s_i^2)).

    A round of a client: rho_i^2 becomes the mean over coordinates of s_i^2 + (m_i - mean)^2, which
    maximizes its evidence bound; m_i and s_i take `head_steps` steps (`local_steps` where it is not
    given) on E_q[loss] + KL(q_i || prior) / n_i, at `theta_rate`, and its copy of the body then
    `local_steps` on E_q[loss], at `gamma_rate`. Expectations are means over `num_draws` draws from
    q_i. Bodies are averaged; the mean of the heads becomes that of the m_i, weighed by their
    confidence 1 / rho_i^2, which is sent along. Personal models have the head m_i. Momentum and an
    average over rounds (`optimized`) are for the body, the end of steps; the heads' mean is not.

    `scale` is where s_i begins: in the paper, as large as the entries of an initial head. A small
    one is a stiff prior, on which steps are stable only for a `theta_rate` below 2 n_i scale^2.
    Weight decay is for the body; heads have their prior. The paper's clients also train their heads
    in the rounds in which they send nothing; here all methods train when they take part. Its server
    weighs bodies by `weight="samples"`. `head` as in `SharedBody`. A newcomer begins with m_i =
    mean and takes `newcomer_steps` steps of its head. For a quantity the loss is that of variance
    1. The server divides by a sum of confidences, which noise would spoil: private channels are
    refused.
    """
    name = "pfedvem"
    steps.check_supported(name)
    head_steps = steps.local_steps if head_steps is None else head_steps
    check.count(name, head_steps=head_steps, num_draws=num_draws)
    check.positive(name, scale=scale)
    check.nonnegative(name, theta_rate=theta_rate, gamma_rate=gamma_rate)
    parts = SharedBody(head=head)
    check_start(model, parts)
    return _Confident(
        model=model,
        parts=parts,
        steps=steps,
        own=replace(steps, weight_decay=0.0).descent(theta_rate),
        shared=steps.descent(gamma_rate),
        scale=scale,
        num_draws=num_draws,
        head_steps=head_steps,
        weight=weight,
        newcomer_steps=newcomer(name, newcomer_steps, steps),
    ).algorithm(name, memoryless=False, bears_noise=False, moved=Moved(("body",)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Confident(AveragedModel):
    """The functions of `pfedvem`. gamma: the body, and the mean of the heads as `head`.

    Memory: the client's q as `w` (a center, and the softplus preimage `raw` of its scales), the key
    of its batches, the steps of its head. Batches of the body follow the rounds.
    """

    parts: SharedBody
    own: Descent
    shared: Descent
    scale: float
    num_draws: int
    head_steps: int
    newcomer_steps: int

    def init(self, key: Key) -> State:
        return begun(self.parts.start(self.model.init(key)))

    def enroll(self, state: State, client: Array, key: Key) -> Memory:
        return {"w": self._initial(state["gamma"]["head"]), **reading(key)}

    def local(
        self, state: State, memory: Memory, data: ClientData, key: Key
    ) -> tuple[Message, Memory]:
        received, head_key, body_key = state["gamma"], *jax.random.split(key)
        variance = _spread(memory["w"], received["head"])
        after = self._learn_head(state, memory, data, head_key, self.head_steps)
        body = self._learn_body(state, after, data, body_key)
        count = weight_of(self.weight, data)
        value = {
            "body": increment(body, received["body"], count),
            "head": increment(after["w"]["center"], received["head"], 1 / variance),
            "confidence": 1 / variance,
        }
        return Message(value, count), after

    def update(self, state: State, total: Message) -> State:
        gamma, sums = state["gamma"], total.value
        confidence = jnp.where(sums["confidence"] > 0, sums["confidence"], 1)
        body = moved(gamma["body"], sums["body"], mean_share(total))
        head = moved(gamma["head"], sums["head"], 1 / confidence)
        return {**state, "gamma": {"body": body, "head": head}, "round": state["round"] + 1}

    def personalize(self, state: State, memory: Memory, data: ClientData, key: Key) -> Theta:
        fresh = memory["step"] == 0
        begun = {**memory, "w": self._initial(state["gamma"]["head"])}
        number = jnp.where(fresh & (data.size > 0), self.newcomer_steps, 0)
        memory = self._learn_head(state, tree.where(fresh, begun, memory), data, key, number)
        return self.parts.realize(state["gamma"], memory["w"]["center"])

    def _initial(self, mean: PyTree) -> PyTree:
        raw = jnp.log(jnp.expm1(jnp.asarray(self.scale, jnp.float32)))
        return {"center": mean, "raw": tree.combine(lambda leaf: jnp.full_like(leaf, raw), mean)}

    def _learn_head(
        self, state: State, memory: Memory, data: ClientData, key: Key, number: Any
    ) -> Memory:
        """`number` steps of q at the body received, the prior's spread as it fits q before them."""
        body, mean = state["gamma"]["body"], state["gamma"]["head"]
        variance, size = _spread(memory["w"], mean), jnp.maximum(data.size, 1)
        time = state["round"] * self.steps.local_steps

        def objective(w: PyTree, key: Key, x: Array, y: Array, mask: Array) -> Array:
            loss = self._expected_loss(body, w, key, x, y, mask)
            return loss + _divergence(w, mean, variance) / size

        def step(turn: Array, w: PyTree) -> PyTree:
            batch = self.steps.batches.read(memory["words"], memory["step"] + turn, data)
            gradient = jax.grad(objective)(w, jax.random.fold_in(key, turn), *batch)
            return self.own.step(gradient, self.own.init(w), w, time + turn)[0]

        w = jax.lax.fori_loop(0, number, step, memory["w"])
        return {**memory, "w": w, "step": memory["step"] + number}

    def _learn_body(self, state: State, memory: Memory, data: ClientData, key: Key) -> PyTree:
        first = state["round"] * self.steps.local_steps

        def step(turn: Array, body: PyTree) -> PyTree:
            batch = self.steps.batches.read(memory["words"], first + turn, data)
            drawn = jax.random.fold_in(key, turn)
            gradient = jax.grad(self._expected_loss)(body, memory["w"], drawn, *batch)
            return self.shared.step(gradient, self.shared.init(body), body, first + turn)[0]

        return jax.lax.fori_loop(0, self.steps.local_steps, step, state["gamma"]["body"])

    def _expected_loss(
        self, body: PyTree, w: PyTree, key: Key, x: Array, y: Array, mask: Array
    ) -> Array:
        """The mean loss over draws of the head: the body's part is computed once for all."""
        center, raw = tree.flatten(w["center"]), tree.flatten(w["raw"])
        noise = jax.random.normal(key, (self.num_draws, center.size))

        def one(noise: Array) -> Array:
            head = tree.unflatten(center + jax.nn.softplus(raw) * noise, w["center"])
            outputs = self.model.apply(self.parts.realize({"body": body}, head), x)
            return masked_mean(self.model.loss(outputs, y), mask)

        return jnp.mean(jax.vmap(one)(noise))


def _spread(w: PyTree, mean: PyTree) -> Array:
    """rho^2: the mean over coordinates of E_q (head - mean)^2."""
    return _second_moments(w, mean) / tree.size(mean)


def _second_moments(w: PyTree, mean: PyTree) -> Array:
    gap = tree.combine(jnp.subtract, w["center"], mean)
    return tree.squared_norm(gap) + tree.squared_norm(tree.combine(jax.nn.softplus, w["raw"]))


def _divergence(w: PyTree, mean: PyTree, variance: Array) -> Array:
    """KL(N(center, diag(scale^2)) || N(mean, variance I))."""
    logs = jnp.sum(jnp.log(jax.nn.softplus(tree.flatten(w["raw"]))))
    constant = 0.5 * tree.size(mean) * (jnp.log(variance) - 1)
    return constant - logs + _second_moments(w, mean) / (2 * variance)
